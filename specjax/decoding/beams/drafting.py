"""Drafts of a beam search: a smaller model goes on with a beam of its own.

Letters: B batch rows, W beams, U width of the draft, S slots of the trie.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.core.env import Env
from specjax.decoding.beams.state import BeamDecoder, State
from specjax.decoding.beams.step import best_of, candidates
from specjax.decoding.beams.trie import Nodes, feed, joined, live_nodes, own_slots


def draft(decoder: BeamDecoder, env: Env, state: State) -> tuple[Nodes, State]:
    """The live hypotheses and those that the drafter's beam of width U has in the next steps.

    The beam begins with the target's own scores. Hypotheses that end are left out: they are never
    gone on from, so nothing need be known behind them.
    """
    search, name = state.search, decoder.drafter
    model, cache, begin = env[name], state.caches[name], state.begin[name]
    level, score, first = live_nodes(decoder, search), search.live.score, 0
    levels = [level]
    for _ in range(decoder.length):
        logits, cache = feed(decoder, model, search, cache, begin, level, first)
        found = candidates(logits, decoder.width, _barred(decoder, logits.shape[-1]))
        best = best_of(score, found, decoder.width)
        parent, score = first + best.rank, best.score
        first += level.token.shape[1]
        sees = jnp.take_along_axis(level.sees, best.rank[..., None], axis=1)
        sees |= own_slots(decoder, search, first, decoder.width)
        level = Nodes(best.token, parent, sees)
        levels.append(level)
    # The last drafted step is read as well: all of it may stand, and the next draft goes on there.
    cache = feed(decoder, model, search, cache, begin, level, first)[1]
    return joined(levels), state.replace(caches={**state.caches, name: cache})


def _barred(decoder: BeamDecoder, vocabulary: int) -> jax.Array:
    """Tokens [V] that end a text, and ids that the target does not have."""
    ids, target = jnp.arange(vocabulary), decoder.target_model
    return jnp.isin(ids, jnp.array(target.eos, jnp.int32)) | (ids >= target.vocab_size)
