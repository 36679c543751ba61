"""Tiny models of three decoder layers that tests let exit early."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run

from specjax.models.bart import Bart, BartConfig
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.models.t5gemma import Stack, T5Gemma, T5GemmaConfig
from specjax.models.t5gemma2 import T5Gemma2, T5Gemma2Config

V, EOS, DEPTH = 12, 1, 3
MODELS = {
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=16, d_kv=4, d_ff=24, num_heads=2, num_layers=1,
            num_decoder_layers=DEPTH, max_distance=12, eos=(EOS,),
        )
    ),
    "llama": Causal(
        CausalConfig(
            "llama", V, d_model=16, d_ff=24, num_layers=DEPTH, num_heads=2, num_kv_heads=1,
            d_head=8, max_positions=64, rope=Rope(8), eos=(EOS,),
        )
    ),
    "bart": Bart(
        BartConfig(
            "bart", V, d_model=12, d_ff=24, num_heads=2, num_decoder_layers=DEPTH, encoder_ff=16,
            encoder_heads=3, num_layers=1, max_positions=32, offset=2, post_norm=True,
            embedding_norm=True, final_norm=False, logits_bias=True, start_token=0, eos=(EOS,),
        )
    ),
    "t5gemma": T5Gemma(
        T5GemmaConfig(
            V, Stack(12, 16, 1, 2, 2, 6, Rope(6), (2,), query_scalar=4.0, softcap=3.0),
            Stack(16, 24, DEPTH, 4, 2, 4, Rope(4), (0,) * DEPTH, query_scalar=4.0, softcap=3.0),
            logit_cap=5.0, start_token=0, eos=(EOS,),
        )
    ),
    "t5gemma2": T5Gemma2(
        T5Gemma2Config(
            V, Stack(16, 16, 1, 2, 2, 6, Rope(6), (3,), 4.0, sliding_rope=Rope(6, 50.0)),
            Stack(16, 24, DEPTH, 4, 2, 4, Rope(4), (0, 0, 0), 4.0, sliding_rope=Rope(4, 50.0)),
            logit_cap=5.0, start_token=0, eos=(EOS,), image_end=V - 1,
        )
    ),
}  # fmt: skip
KINDS = [
    kind if kind in ("t5", "llama") else pytest.param(kind, marks=pytest.mark.slow)
    for kind in MODELS
]
"""For tests of single calls, which compile one layer after another."""


class _Params(dict[str, Any]):
    """Weights by kind, drawn when first asked for: most runs of pytest only collect these tests.

    Sharper than fresh ones: outputs vary, and now and then there is an EOS.
    """

    def __missing__(self, kind: str) -> Any:
        self[kind] = jax.tree.map(lambda x: x * 1.3, MODELS[kind].init(jax.random.key(5)))
        return self[kind]


PARAMS = _Params()
BOTH = ["t5", pytest.param("llama", marks=pytest.mark.slow)]
"""For tests that compile whole decodes: the second one shows the same of the other family."""

PROMPTS = [[3, 4, 5, 1], [6, 2], [7, 8, 9, 2, 3, 4, 2], [2, 2, 2, 5]]


@functools.partial(jax.jit, static_argnames=("model", "exit"))
def teach(model, params, batch, exit):
    return model.teach(params, batch, exits=(exit,))[0]


@dataclasses.dataclass(frozen=True)
class Uncached:
    """The first `exit` layers on the whole text, without any cache, for `sequence_law`."""

    kind: str
    exit: int = DEPTH
    eos: tuple[int, ...] = (EOS,)
    room: int = 24

    def logits(self, params, source, prefix) -> np.ndarray:
        """Next-token logits [V] after the decoder tokens `prefix`."""
        fed = [*prefix, *[0] * (self.room - len(prefix))]
        batch = {"inputs": jnp.array([fed]), "length": jnp.array([len(prefix)])}
        if source:
            batch |= {"prompt": jnp.array([source]), "prompt_length": jnp.array([len(source)])}
        logits = teach(MODELS[self.kind], params, batch, self.exit)[0, len(prefix) - 1]
        return np.asarray(logits, np.float64)

    def greedy(self, prompt: list[int], limit: int) -> list[int]:
        """The tokens of largest logits."""
        start = MODELS[self.kind].info.start_token
        source, head = ((), prompt) if start is None else (prompt, [start])
        made: list[int] = []
        while len(made) < limit and made[-1:] != [EOS]:
            made.append(int(self.logits(PARAMS[self.kind], source, head + made).argmax()))
        return made


def decode(kind: str, strategy, prompts=PROMPTS, limit: int = 14, seed: int = 0, settings=None):
    """A whole decode of one of the models."""
    models = (("target", MODELS[kind]),)
    params = {"target": PARAMS[kind]}
    return run(models, params, strategy, prompts, limit, seed, settings=settings)


def sixteen_prompts() -> list[list[int]]:
    """Rows of many lengths; the first is as wide as any, so that every batch has one width."""
    rng = np.random.default_rng(2)
    return [[3] * 7, *(rng.integers(2, V, rng.integers(1, 8)).tolist() for _ in range(15))]
