"""Feature drafters that are not trained, and targets for them, for tests."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round

from specjax.contracts.context import Context
from specjax.decoding.strategy import Strategy
from specjax.models.assistant import Assistant
from specjax.models.assistant_modules import AssistantCausalConfig, AssistantT5Config
from specjax.models.base import Cache
from specjax.models.causal import Causal, CausalConfig
from specjax.models.correction import Correction
from specjax.models.dflash import DFlash, DFlashCausalConfig, DFlashT5Config
from specjax.models.eagle import Eagle, EagleCausalConfig, EagleT5Config
from specjax.models.mtp import get_layer_shape
from specjax.models.on_target import Cross, FeatureDrafter
from specjax.models.p_eagle import PEagle, PEagleCausalConfig, PEagleT5Config
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config

Shape = tuple[FeatureDrafter, dict]
Kind = type[FeatureDrafter]

BLOCK = {"block_size": 4}
MARKOV = Correction("markov", 6, confidence=True)
CORRECTIONS = {
    "markov": MARKOV,
    "gated": Correction("gated", 6),
    "rnn": Correction("rnn", 6, confidence=True, confidence_reads_token=False),
    "gru": Correction("gru", 6, hidden=5, first=1),
    "selector": Correction("selector", 6, candidates=3),
}
"""Of blocks, one of each kind."""
SHAPES: dict[Kind, tuple[type, type, int, dict[str, Any]]] = {
    Eagle: (EagleT5Config, EagleCausalConfig, 1, {}),
    PEagle: (PEagleT5Config, PEagleCausalConfig, 2, {}),
    DFlash: (DFlashT5Config, DFlashCausalConfig, 2, BLOCK),
    Assistant: (AssistantT5Config, AssistantCausalConfig, 1, {}),
}
"""Shapes for T5 and for others, layers, and what else a shape says."""

V, LIMIT = 12, 14
IDS = (1, 2, 3, 5, 7, 8, 9, 11)
PROMPTS = [[3, 4, 5, 1], [6, 1], [7, 8, 9, 2, 3, 4, 1], [2, 2, 2, 1]]
T5_SHAPE = T5Config(
    vocab_size=V, d_model=16, d_kv=4, d_ff=24, num_heads=2, num_layers=1, num_decoder_layers=2,
    max_distance=12, eos=(1,),
)  # fmt: skip
LLAMA_SHAPE = CausalConfig(
    "llama", V, d_model=16, d_ff=16, num_layers=2, num_heads=2, num_kv_heads=1, d_head=8,
    max_positions=64, rope=Rope(8), eos=(1,),
)  # fmt: skip
TARGETS = {"t5": T5(T5_SHAPE), "llama": Causal(LLAMA_SHAPE)}
MTP = "mtp"
"""In place of a target: a head for multi-token prediction of the Llama."""
ONE_FAST = ["t5", pytest.param("llama", marks=pytest.mark.slow)]
"""For tests that compile whole rounds of every target."""


def on_t5(
    target: T5Config,
    features: tuple[int, ...],
    ids: tuple[int, ...],
    kind: Kind = Eagle,
    **changes: Any,
) -> Shape:
    """One for a T5 target that reads these layers and drafts these ids."""
    of_t5, _, layers, more = SHAPES[kind]
    theirs = {"num_heads": target.num_heads, "d_kv": target.d_kv}
    heads = theirs if kind is Assistant else {"num_heads": 3, "d_kv": 3}
    shape = of_t5(
        vocab_size=target.vocab_size, d_model=10, d_ff=14, num_layers=0,
        cross_heads=target.num_heads, cross_width=target.d_kv, num_decoder_layers=layers,
        eos=target.eos, family=f"{kind.__name__.lower()}_t5", max_distance=target.max_distance,
        target_width=target.d_model, features=features, draft_vocab=len(ids),
        cross=target.num_decoder_layers, **heads, **(more | changes),
    )  # fmt: skip
    return draw_weights(kind(shape), ids)


def without_encoder(
    vocab_size: int,
    width: int,
    features: tuple[int, ...],
    ids: tuple[int, ...],
    start_token: int | None,
    eos: tuple[int, ...] = (1,),
    kind: Kind = Eagle,
    **changes: Any,
) -> Shape:
    """One with rotary positions for a target of so many ids and so wide."""
    _, of_others, layers, more = SHAPES[kind]
    heads = {"num_heads": 2, "num_kv_heads": 1, "d_head": 4, "rope": Rope(4)}
    own = heads | more | changes
    shape = of_others(
        family=f"{kind.__name__.lower()}_llama", vocab_size=vocab_size, d_model=8, d_ff=12,
        num_layers=layers, max_positions=64, eos=eos, target_width=width, features=features,
        draft_vocab=len(ids), start_token=start_token, **own,
    )  # fmt: skip
    return draw_weights(kind(shape), ids)


def draw_weights(model: FeatureDrafter, ids: tuple[int, ...], seed: int = 0) -> Shape:
    """The model with sharper random weights than it begins with."""
    params = jax.jit(model.init)(jax.random.key(seed))
    params = jax.tree.map(lambda x: 1.5 * x if x.dtype == jnp.float32 else x, params)
    if "corrector" in params:  # fresh ones change nothing
        params["corrector"] = _noise(params["corrector"], seed)
    return model, params | {"ids": jnp.array(ids, jnp.int32)}


def _noise(params: dict, seed: int) -> dict:
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    made = [jax.random.normal(key, x.shape) for key, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, made)


def mtp_head(target: CausalConfig, ids: tuple[int, ...]) -> Shape:
    """A head for multi-token prediction of such a target that drafts these ids."""
    shape = EagleCausalConfig(
        **get_layer_shape(target) | {"family": "mtp"}, layer_family=target.family,
        target_width=target.d_model, features=(target.num_layers,), draft_vocab=len(ids),
        reads_first=False, normed=True, normed_states=True, joined=True,
    )  # fmt: skip
    return draw_weights(Eagle(shape), ids)


@functools.cache
def make_setting(
    name: str, kind: Kind = Eagle, **changes: Any
) -> tuple[tuple[tuple[str, Any], ...], dict[str, Any]]:
    """A target and a drafter of two of its layers, and their parameters; `mtp`: of its last."""
    target = TARGETS["llama" if name == MTP else name]
    params = jax.tree.map(lambda x: x * 1.3, jax.jit(target.init)(jax.random.key(3)))
    read = (2,) if kind is Assistant else (1, 2)
    if name == "t5":
        drafter, own = on_t5(T5_SHAPE, read, IDS, kind, **changes)
    elif name == MTP:
        drafter, own = mtp_head(LLAMA_SHAPE, IDS)
    else:
        heads = (
            {"d_head": LLAMA_SHAPE.d_head, "rope": LLAMA_SHAPE.rope} if kind is Assistant else {}
        )
        drafter, own = without_encoder(
            V, LLAMA_SHAPE.d_model, read, IDS, None, kind=kind, **(heads | changes)
        )
    return (("target", target), ("drafter", drafter)), {"target": params, "drafter": own}


def states(name: str, strategy: Strategy, kind: Kind = Eagle, **changes: Any):
    """The decoder, its parameters and the state before every round and after the last."""
    models, params = make_setting(name, kind, **changes)
    made = decoder(models, strategy, LIMIT)
    state = first_state(made, params, *inputs(PROMPTS, LIMIT), strategy.options())
    seen = [state]
    while bool(state.context.active.any()):
        state = one_round(made, params, state)
        seen.append(state)
    return made, params, seen


def read_whole(
    models: Any, params: dict[str, Any], context: Context, audio: Any = None
) -> tuple[jax.Array, Cross | None, Cache]:
    """The target's states [B, L, F * E] at a whole buffer, and a cache of the drafter with them.

    `audio` are the frames of a speech target's prompts, and their number.
    """
    (_, target), (_, drafter) = models
    given = audio or (context.encoder_tokens, context.encoder_length)
    if target.info.start_token is None:
        given = context.tokens[:, :1], jnp.ones_like(context.length)
    size, none = context.tokens.shape[1], jnp.zeros_like(context.length)
    before, _ = target.start(params["target"], *given, size)
    wanted = drafter.config.features
    output, _ = target.extend(params["target"], context.tokens, before, features=wanted)
    features = jnp.concatenate(output.features, axis=-1)
    cache, _ = drafter.start(params["drafter"], *given, size)
    cache = drafter.attend(cache.replace(length=none), before)
    cache = drafter.absorb(params["drafter"], cache, features, none)
    cross = (*cache.data["cross"], cache.data["cross_bias"]) if drafter.config.cross else None
    return features, cross, cache


def count_different_slots(got: Cache, want: Cache, length: jax.Array) -> int:
    """Slots before `length` [B] whose keys or values are not those of another cache."""
    bad = 0
    for mine, theirs in zip(got.data["own"], want.data["own"], strict=True):
        for one, other in zip(mine, theirs, strict=True):
            below = np.arange(one.shape[2]) < np.asarray(length)[:, None]
            far = np.abs(np.asarray(one) - np.asarray(other)).max(axis=(1, 3)) > 1e-4
            bad += int(np.sum(far & below))
    return bad


@functools.partial(jax.jit, static_argnames=("models", "size"))
def fresh_blocks(models: Any, params: dict[str, Any], context: Context, anchors: Any, size: int):
    """Blocks at `anchors` as training has them, and a cache of the whole text."""
    _, (_, drafter) = models
    features, cross, cache = read_whole(models, params, context)
    given = context.tokens, features, cross, anchors, size
    return drafter.compute_block_logits(params["drafter"], *given), cache
