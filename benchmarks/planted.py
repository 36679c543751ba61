"""Models of published shapes with random weights, whose greedy text and agreement are planted.

Layers are random and small beside the residual stream, so a state is the embedding of the last
token; the output layer is the embedding table in another order, so what follows a token is chosen.
A target counts, v + 1 after v, by a margin that no rounding of bfloat16 closes. A drafter counts
too, but is wrong after a given part of the tokens: it proposes the target's own greedy tokens with
errors at a given rate, independent of each other, at the whole cost of its shape.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from specjax.hf.hub import SHAPES
from specjax.hf.huggingface import parse_config
from specjax.models.base import LanguageModel, Params

Shape = dict

SMALL = 0.1
"""Gain of a random layer: all of them together stay small beside an embedding of unit variance."""

BLOCK = 100
"""Tokens in a row among which the number of errors is exact."""

_TINY_T5 = {"vocab_size": 500, "d_kv": 16, "d_ff": 96, "num_heads": 4}
_TINY_LLAMA = {"vocab_size": 500, "intermediate_size": 96, "num_attention_heads": 4}


@dataclasses.dataclass(frozen=True)
class Pair:
    """Shapes of a target and of its drafters by name, in the words of their `config.json`."""

    target: Shape
    drafters: Mapping[str, Shape]

    @property
    def encoder_decoder(self) -> bool:
        return self.target["model_type"] == "t5"


def _t5(size: str, *drafters: str) -> Pair:
    published = {name: SHAPES[f"google/t5-v1_1-{name}"] for name in (size, *drafters)}
    return Pair(published.pop(size), published)


def _llama(target: str) -> Pair:
    drafters = {size: SHAPES[f"JackFram/llama-{size}"] for size in ("68m", "160m")}
    return Pair(SHAPES[f"meta-llama/{target}-chat-hf"], drafters)


def _tiny(shape: str, width: str, layers: str, **others: int) -> Pair:
    """Two models of one layer and more that any machine decodes with: to try the benchmark."""
    target, drafter = (
        {**SHAPES[shape], **others, width: size, layers: count}
        for size, count in ((128, 2), (64, 1))
    )
    return Pair(target, {"small": drafter})


PAIRS = {
    "t5xxl": _t5("xxl", "small", "base", "large"),
    "t5xl": _t5("xl", "small", "base", "large"),
    "t5large": _t5("large", "small", "base"),
    "llama2_13b": _llama("Llama-2-13b"),
    "llama2_7b": _llama("Llama-2-7b"),
    "tiny_t5": _tiny("google/t5-v1_1-small", "d_model", "num_layers", **_TINY_T5),
    "tiny_llama": _tiny("JackFram/llama-68m", "hidden_size", "num_hidden_layers", **_TINY_LLAMA),
}
"""By what `--shapes` calls them."""


def endless(shape: Shape) -> Shape:
    """The shape without an end of text: every token may be one that a text counts through."""
    return {**shape, "eos_token_id": None}


def describe_model(shape: Shape) -> LanguageModel:
    """The model of a shape in bfloat16, without an end of text."""
    family, config = parse_config("shape", endless(shape), None, jnp.bfloat16)
    return family.model(config)


def successors(vocabulary: int, acceptance: float = 1.0, seed: int = 0) -> np.ndarray:
    """What follows each token [V]: v + 1, or another token after 1 - `acceptance` of them.

    Of every `BLOCK` tokens as many are wrong, whatever the seed; which ones is drawn.
    """
    rng = np.random.default_rng(seed)
    after = (np.arange(vocabulary) + 1) % vocabulary
    starts = range(0, vocabulary, BLOCK)
    wrong = np.concatenate(
        [_draw(rng, start, min(BLOCK, vocabulary - start), 1 - acceptance) for start in starts]
    )
    # Each gets what should follow the next wrong one: all differ, and the table is only reordered.
    after[wrong] = after[np.roll(wrong, -1)]
    return after


def _draw(rng: np.random.Generator, start: int, size: int, rate: float) -> np.ndarray:
    return start + rng.choice(size, round(rate * size), replace=False)


def find_predecessors(after: np.ndarray) -> np.ndarray:
    """The token [V] that each token follows: the rows of the embedding in the output layer."""
    return np.argsort(after)


def weights(model: LanguageModel, seed: int) -> Params:
    """Random weights in bfloat16 under which the model counts, drawn on the device leaf by leaf."""
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    drawn = [
        _leaf([part.key for part in path], leaf.shape, key)
        for (path, leaf), key in zip(leaves, keys, strict=True)
    ]
    params = jax.tree_util.tree_unflatten(tree, drawn)
    return set_successors(params, successors(model.info.vocab_size))


def set_successors(params: Params, after: np.ndarray) -> Params:
    """The parameters with an output layer by which `after` [V] says what follows each token."""
    return {**params, "head": {"kernel": _reorder(params["embedding"], find_predecessors(after))}}


@jax.jit
def _reorder(table: jax.Array, rows: jax.Array) -> jax.Array:
    return table[rows].T


def _leaf(path: list[str], shape: tuple[int, ...], key: jax.Array) -> jax.Array | None:
    """Random numbers for one parameter; nothing for the output layer, which is planted."""
    if path == ["head", "kernel"]:
        return None
    if path[-1] == "scale":
        return jnp.ones(shape, jnp.bfloat16)
    return _normal(key, shape, 1.0 if path == ["embedding"] else SMALL * shape[0] ** -0.5)


@functools.partial(jax.jit, static_argnames="shape")
def _normal(key: jax.Array, shape: tuple[int, ...], scale: float) -> jax.Array:
    return jax.random.normal(key, shape, jnp.bfloat16) * jnp.bfloat16(scale)


def prompt(pair: Pair, tokens: int) -> list[int]:
    """A random prompt."""
    return np.random.default_rng(0).integers(2, pair.target["vocab_size"], tokens).tolist()
