"""Random models of unusual shapes: Hugging Face writes, specjax reads and decodes, and writes back.

Greedy decoding is checked without decoding in PyTorch: if each token that was decoded here is the
one that PyTorch's logits put first, given those before it, then PyTorch decodes the same tokens.
"""

from __future__ import annotations

import dataclasses
import functools
import runpy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from decodes import run, texts
from odd_shapes import COUNTS, shapes

torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM  # noqa: E402

from specjax.decoding.strategy import Strategy, autoregressive  # noqa: E402
from specjax.drafting.copying import PromptLookup  # noqa: E402
from specjax.drafting.early_exit import EarlyExit  # noqa: E402
from specjax.hf import huggingface  # noqa: E402
from specjax.hf.huggingface import load  # noqa: E402

pytestmark = pytest.mark.slow

MAKERS = Path(__file__).parents[1] / "golden"
T5 = runpy.run_path(str(MAKERS / "make_t5.py"))
BART = runpy.run_path(str(MAKERS / "make_bart.py"))
GEMMA = runpy.run_path(str(MAKERS / "make_t5gemma.py"))
CAUSAL = runpy.run_path(str(MAKERS / "make_causal.py"))
SHAPES = shapes()
ROWS, LONGEST, NEW_TOKENS, DRAFTED = 20, 24, 40, 3
TOLERANCE = 1e-4
"""Of logits, and the lead of PyTorch's first token below which rounding may choose the second."""
MAGNIFIED = {
    "t5gemma": 3,
    "t5gemma2": 3,
    "gemma": 3,
    "llama4_text": 3,
    "qwen3_5_text": 3,
    "qwen3_next": 4,
    "qwen3_5_moe_text": 4,
    "granitemoehybrid": 3,
    "nemotron_h": 3,
    "gemma3n_text": 3,
}
"""Norms behind its sublayers magnify the rounding of those that add little, and so do norms of the
two features that one Gemma and one Llama 4 have: PyTorch's own logits in float32 are 6e-4 and
2.5e-4 from those in float64. So do the norms of recurrent outputs, where PyTorch's blocks are
4.5e-4 from its single tokens. Of a Gemma 3n whose feed-forward layers are mostly zeros, weights
that differ in their last bit alone move our own logits by 5e-4 to 7e-4."""
MOST_TIES = 2
"""Of the 800 tokens of a model."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A random PyTorch model, the same one read here, and prompts."""

    theirs: Any
    ours: Any
    folder: Path
    prompts: list[list[int]]

    @property
    def encodes(self) -> bool:
        return self.theirs.config.is_encoder_decoder

    @functools.cached_property
    def decoded(self) -> list[list[int]]:
        return self.decode(autoregressive())

    def decode(self, strategy: Strategy) -> list[list[int]]:
        params = {"target": self.ours.params}
        models = (("target", self.ours.model),)
        return texts(run(models, params, strategy, self.prompts, NEW_TOKENS))


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    (family, shape), folder = SHAPES[request.param], tmp_path_factory.mktemp(request.param)
    seed = list(SHAPES).index(request.param)
    if "num_decoder_layers" in shape:
        theirs = T5["build"](family, seed, **shape)
        T5["save"](theirs, folder, shape["tie_word_embeddings"])
    elif "decoder_layers" in shape:
        ends = {"pad_token_id": 0, "eos_token_id": CAUSAL["EOS"], "decoder_start_token_id": 2}
        theirs = BART["build"](family, seed, **shape, **ends)
        BART["save"](theirs, folder)
    elif family in GEMMA["SHAPES"]:
        theirs = GEMMA["build"](shape, seed)
        GEMMA["save"](theirs, folder)
    else:
        theirs = CAUSAL["build"](family, shape, seed)
        theirs.save_pretrained(folder)
    if seed % 16 == 0:
        jax.clear_caches()  # of earlier models' programs: each one maps memory
    return Pair(theirs, load(folder), folder, prompts(seed, shape["vocab_size"]))


def prompts(seed: int, vocabulary: int) -> list[list[int]]:
    """Ragged, the shortest of two tokens, the longest of LONGEST."""
    rng = np.random.default_rng(seed)
    lengths = [2, LONGEST, *rng.integers(2, LONGEST + 1, ROWS - 2).tolist()]
    return [rng.integers(2, vocabulary, length).tolist() for length in lengths]


def pad_rows(rows: list[list[int]], width: int) -> np.ndarray:
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], np.int32)


def their_logits(pair: Pair) -> np.ndarray:
    """Logits [B, N, V] of the positions that were decoded here."""
    if pair.encodes:
        source, length = pad_rows(pair.prompts, LONGEST), np.array([len(p) for p in pair.prompts])
        return T5["logits"](pair.theirs, source, length, feed_rows(pair))
    rows = [prompt + made for prompt, made in zip(pair.prompts, pair.decoded, strict=True)]
    every = CAUSAL["logits"](pair.theirs, pad_rows(rows, LONGEST + NEW_TOKENS))
    starts = np.array([len(prompt) - 1 for prompt in pair.prompts])
    where = starts[:, None] + np.arange(NEW_TOKENS)
    return np.take_along_axis(every, where[:, :, None], axis=1)


def feed_rows(pair: Pair) -> np.ndarray:
    """Tokens [B, N] behind which the decoded ones come."""
    start = pair.ours.model.info.start_token if pair.encodes else None
    first = [[start] if pair.encodes else prompt[-1:] for prompt in pair.prompts]
    made = [made[: NEW_TOKENS - 1] for made in pair.decoded]
    return pad_rows([a + b for a, b in zip(first, made, strict=True)], NEW_TOKENS)


def our_logits(pair: Pair) -> np.ndarray:
    model = pair.ours.model

    @jax.jit
    def compute(params: Any, prompt: jax.Array, length: jax.Array, tokens: jax.Array) -> jax.Array:
        cache, _ = model.start(params, prompt, length, LONGEST + NEW_TOKENS)
        return model.extend(params, tokens, cache)[0].logits

    length = np.array([len(prompt) for prompt in pair.prompts], np.int32)
    return np.asarray(
        compute(pair.ours.params, pad_rows(pair.prompts, LONGEST), length, feed_rows(pair))
    )


def inside(pair: Pair) -> np.ndarray:
    """Mask [B, N] of the tokens that were decoded; rows end with EOS."""
    return np.arange(NEW_TOKENS) < np.array([len(made) for made in pair.decoded])[:, None]


def test_logits_and_greedy_tokens_are_those_of_pytorch(pair: Pair) -> None:
    expected, mask = their_logits(pair), inside(pair)
    difference = np.abs(our_logits(pair) - expected)[mask]
    tolerance = TOLERANCE * MAGNIFIED.get(pair.theirs.config.model_type, 1)
    assert difference.max() < tolerance * max(1.0, np.abs(expected[mask]).max())
    chosen = pad_rows(pair.decoded, NEW_TOKENS)
    lead = expected.max(-1) - np.take_along_axis(expected, chosen[..., None], -1)[..., 0]
    assert lead[mask].max() < TOLERANCE
    assert np.count_nonzero(lead[mask]) <= MOST_TIES
    for made in pair.decoded:
        ended = CAUSAL["EOS"] in made
        assert made.index(CAUSAL["EOS"]) == len(made) - 1 if ended else len(made) == NEW_TOKENS


def test_speculative_tokens_are_the_same(pair: Pair) -> None:
    """By the target's first layer where it has several, else by copying from the prompt."""
    deep = pair.ours.model.info.depth > 1
    strategy = Strategy(EarlyExit(DRAFTED, exit=1) if deep else PromptLookup(DRAFTED))
    assert pair.decode(strategy) == pair.decoded


def test_exported_it_is_the_same_in_hugging_face(pair: Pair, tmp_path: Path) -> None:
    huggingface.save(tmp_path / "out", pair.ours.model, pair.ours.params)
    auto = AutoModelForSeq2SeqLM if pair.encodes else AutoModelForCausalLM
    again = auto.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    again = BART["add_hooks"](again)
    assert type(again) is type(pair.theirs)
    expected, found = text_weights(pair.theirs), text_weights(again)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    exported = dataclasses.replace(pair, theirs=again)
    exported.__dict__["decoded"] = pair.decoded
    # PyTorch's grouped products of experts round by how their weights lie in memory.
    rounding = 1e-5 * bool(getattr(pair.theirs.config, "num_experts", 0))
    found, written = their_logits(exported), their_logits(pair)
    np.testing.assert_allclose(found, written, rtol=0, atol=rounding)


def text_weights(model: Any) -> dict[str, Any]:
    """Those of all but images, which are not read here."""
    images = "model.encoder.vision_tower.", "model.encoder.multi_modal_projector."
    weights = model.state_dict().items()
    return {name: weight for name, weight in weights if not name.startswith(images)}


def test_the_shapes_are_many_and_differ() -> None:
    assert len(SHAPES) == sum(COUNTS.values()) >= 60
    assert len({repr(shape) for shape in SHAPES.values()}) == len(SHAPES)
