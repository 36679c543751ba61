"""Feature drafters that are not trained, for tests."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.models.eagle import Eagle, EagleCausalConfig, EagleT5Config
from specjax.models.rope import Rope
from specjax.models.t5 import T5Config

Shape = tuple[Eagle, dict]


def on_t5(target: T5Config, features: tuple[int, ...], ids: tuple[int, ...]) -> Shape:
    """One for a T5 target that reads these layers and drafts these ids."""
    shape = EagleT5Config(
        vocab_size=target.vocab_size, d_model=10, d_kv=3, d_ff=14, num_heads=3, num_layers=0,
        cross_heads=target.num_heads, cross_width=target.d_kv, num_decoder_layers=1, eos=target.eos,
        family="eagle_t5", max_distance=target.max_distance, target_width=target.d_model,
        features=features, draft_vocab=len(ids), cross=target.num_decoder_layers,
    )  # fmt: skip
    return drawn(Eagle(shape), ids)


def without_encoder(
    vocab_size: int,
    width: int,
    features: tuple[int, ...],
    ids: tuple[int, ...],
    start_token: int | None,
    eos: tuple[int, ...] = (1,),
) -> Shape:
    """One with rotary positions for a target of so many ids and so wide."""
    shape = EagleCausalConfig(
        family="eagle_llama", vocab_size=vocab_size, d_model=8, d_ff=12, num_layers=1, num_heads=2,
        num_kv_heads=1, d_head=4, max_positions=64, rope=Rope(4), eos=eos, target_width=width,
        features=features, draft_vocab=len(ids), start_token=start_token,
    )  # fmt: skip
    return drawn(Eagle(shape), ids)


def drawn(model: Eagle, ids: tuple[int, ...], seed: int = 0) -> Shape:
    """The model with sharper random weights than it begins with."""
    params = model.init(jax.random.key(seed))
    params = jax.tree.map(lambda x: 1.5 * x if x.dtype == jnp.float32 else x, params)
    return model, params | {"ids": jnp.array(ids, jnp.int32)}
