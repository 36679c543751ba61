"""Drafts of a beam search: a drafter extends its own beam.

Letters: B batch rows, W beams, U width of the draft, S slots of the trie.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from specjax.contracts.context import Options
from specjax.contracts.env import Env
from specjax.contracts.rows import run_if
from specjax.decoding.beams.settings import process_logits
from specjax.decoding.beams.state import BeamDecoder, State
from specjax.decoding.beams.step import candidates, select_best
from specjax.decoding.beams.trie import Nodes, concatenate_nodes, live_nodes, own_slots


def draft(decoder: BeamDecoder, env: Env, options: Options, state: State) -> tuple[Nodes, State]:
    """The live hypotheses and the drafter's beam of width U in the next steps.

    The beam begins with the target's scores. Finished hypotheses are left out, because they are
    never extended.
    """
    search, drafter = state.search, decoder.drafter
    level, score, first = live_nodes(decoder, search), search.live.score, 0
    levels, memory = [level], drafter.begin(decoder, state, level)
    for _ in range(decoder.length):
        logits, memory = drafter.logits(decoder, env, state, memory, level, first)
        barred = _make_forbidden_mask(decoder, logits.shape[-1])
        adjust = process_logits(decoder, options, state, concatenate_nodes(levels), level.sees)
        found = candidates(logits, decoder.width, barred, adjust)
        best = select_best(score, found, decoder.width)
        memory = drafter.follow(memory, best)
        parent, score = first + best.rank, best.score
        first += level.token.shape[1]
        sees = jnp.take_along_axis(level.sees, best.rank[..., None], axis=1)
        sees |= own_slots(decoder, search, first, decoder.width)
        level = Nodes(best.token, parent, sees)
        levels.append(level)
    return concatenate_nodes(levels), drafter.end(state, memory)


def catch_up(
    decoder: BeamDecoder, env: Env, state: State, nodes: Nodes, wanted: jax.Array
) -> State:
    """Feeds the last drafted step to the drafter's model, if rows [B] continue after it.

    `state` is that of the draft. If the step is rejected, later calls overwrite it.
    """
    first = nodes.token.shape[1] - decoder.width
    level, drafter = jax.tree.map(lambda x: x[:, first:], nodes), decoder.drafter

    def step(memory: Any) -> Any:
        return drafter.logits(decoder, env, state, memory, level, first)[1]

    memory = drafter.begin(decoder, state, level)
    return drafter.end(state, run_if(jnp.any(wanted), step, memory))


def _make_forbidden_mask(decoder: BeamDecoder, vocabulary: int) -> jax.Array:
    """Mask [V] of tokens that end a text and of ids that the target lacks."""
    ids, target = jnp.arange(vocabulary), decoder.target_model
    return jnp.isin(ids, jnp.array(target.info.eos, jnp.int32)) | (ids >= target.info.vocab_size)
