"""T5 against transformers' PyTorch classes: fresh random models and the trained checkpoints."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shared import MODELS, needs_shared

torch = pytest.importorskip("torch")

from specjax.contracts.context import Options  # noqa: E402
from specjax.decoding.loop import generate  # noqa: E402
from specjax.decoding.state import Decoder  # noqa: E402
from specjax.drafting.nothing import Nothing  # noqa: E402
from specjax.hf import huggingface  # noqa: E402
from specjax.hf.huggingface import load  # noqa: E402
from specjax.hf.tokenizer import load_tokenizer  # noqa: E402
from specjax.models.positions import compute_relative_bucket  # noqa: E402
from specjax.sampling import make_sampling  # noqa: E402
from specjax.verification.speculative_sampling import SpeculativeSampling  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GOLDEN = runpy.run_path(str(ROOT / "tests" / "golden" / "make_t5.py"))
GEMMA = runpy.run_path(str(ROOT / "tests" / "golden" / "make_t5gemma.py"))

PROMPTS, NEW_TOKENS = 20, 64
FAMILIES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "t5_v1_0": ("t5_v1_0", 101, {}),
    "t5_v1_1": ("t5_v1_1", 102, {}),
    # Published buckets, and heads that together are wider than the model, as in Flan-T5 small.
    "flan": (
        "t5_v1_1",
        103,
        {
            "vocab_size": 320, "d_model": 48, "d_kv": 16, "num_heads": 5, "d_ff": 80,
            "num_layers": 4, "num_decoder_layers": 3, "relative_attention_num_buckets": 32,
            "relative_attention_max_distance": 128,
        },
    ),
    "mt5": ("mt5", 104, {}),
    "umt5": ("umt5", 105, {}),
    "switch_transformers": ("switch_transformers", 111, {}),
    "longt5": ("longt5", 109, {}),
    "longt5_local": ("longt5", 110, {"encoder_attention_type": "local"}),
    "t5gemma": ("t5gemma", 106, {}),
    "t5gemma_unequal": ("t5gemma_unequal", 107, {}),
    "t5gemma2": ("t5gemma2", 108, {}),
}  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model and the same one loaded here."""
    shape, seed, changes = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    if shape in GEMMA["SHAPES"]:
        theirs = GEMMA["build"](GEMMA["SHAPES"][shape], seed)
        GEMMA["save"](theirs, folder)
    else:
        theirs = GOLDEN["build"](shape, seed, **changes)
        GOLDEN["save"](theirs, folder, GOLDEN["SHAPES"][shape]["tie_word_embeddings"])
    return theirs, load(folder)


def random_prompts(vocabulary: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompts [B, S] of 3 to 60 tokens with EOS, padded with 0, and their lengths."""
    rng = np.random.default_rng(7)
    length = rng.integers(3, 61, count).astype(np.int32)
    tokens = rng.integers(2, vocabulary, (count, 60)).astype(np.int32)
    tokens[np.arange(count), length - 1] = 1
    return np.where(np.arange(60) < length[:, None], tokens, 0).astype(np.int32), length


def our_logits(checkpoint: Any, source: np.ndarray, length: np.ndarray, target: np.ndarray) -> Any:
    """Logits [B, T, V] through the cache."""
    cache, _ = checkpoint.model.start(checkpoint.params, source, length, target.shape[1])
    return np.asarray(checkpoint.model.extend(checkpoint.params, target, cache)[0].logits)


def until_eos(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(1) + 1] if 1 in tokens else tokens


def our_greedy(checkpoint: Any, source: np.ndarray, length: np.ndarray) -> list[list[int]]:
    decoder = Decoder((("target", checkpoint.model),), Nothing(), SpeculativeSampling(), NEW_TOKENS)
    keys = jax.random.split(jax.random.key(0), len(source))
    limit = jnp.full(len(source), NEW_TOKENS, jnp.int32)
    params = {"target": checkpoint.params}
    made = generate(decoder, params, source, length, keys, limit, Options(make_sampling(0.0), {}))
    bounds = zip(np.asarray(made.begin), np.asarray(made.length), strict=True)
    return [np.asarray(made.tokens)[row, b:n].tolist() for row, (b, n) in enumerate(bounds)]


def their_greedy(model: Any, source: np.ndarray, length: np.ndarray) -> list[list[int]]:
    inside = np.arange(source.shape[1]) < length[:, None]
    made = model.generate(
        input_ids=torch.tensor(source, dtype=torch.long),
        attention_mask=torch.tensor(inside, dtype=torch.long),
        do_sample=False,
        num_beams=1,
        max_new_tokens=NEW_TOKENS,
        # transformers 5.23 sizes T5's cache by the encoder and fails on a deeper decoder; T5Gemma
        # without one hides padding that was generated.
        use_cache=model.config.model_type.startswith("t5gemma"),
    )
    return [until_eos(row) for row in made[:, 1:].tolist()]


def test_logits_of_random_models_equal_pytorch(pair: Any) -> None:
    theirs, ours = pair
    source, length = random_prompts(ours.model.info.vocab_size, 6)
    target = np.random.default_rng(8).integers(2, ours.model.info.vocab_size, (6, 70))
    target = np.concatenate([np.zeros((6, 1)), target], axis=1).astype(np.int32)
    expected = GOLDEN["logits"](theirs, source, length, target)
    found = our_logits(ours, source, length, target)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def test_greedy_decoding_of_random_models_equals_pytorch(pair: Any) -> None:
    theirs, ours = pair
    source, length = random_prompts(ours.model.info.vocab_size, PROMPTS)
    expected = their_greedy(theirs, source, length)
    assert sum(map(len, expected)) > PROMPTS * NEW_TOKENS // 3  # not all ended at once
    assert our_greedy(ours, source, length) == expected


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("buckets, max_distance", [(32, 128), (32, 256), (12, 16), (64, 1000)])
def test_buckets_of_all_distances_equal_pytorch(
    bidirectional: bool, buckets: int, max_distance: int
) -> None:
    """Truncation puts some distances on a bucket's very edge: the rounding must agree."""
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = np.arange(-3000, 3001)
    expected = T5Attention._relative_position_bucket(
        torch.tensor(distance), bidirectional, buckets, max_distance
    )
    found = compute_relative_bucket(distance, bidirectional, buckets, max_distance)
    np.testing.assert_array_equal(found, expected.numpy())


SENTENCES = {
    "t5-ende-target": [
        "translate English to German: A man in a blue shirt is standing on a ladder.",
        "translate English to German: Two dogs play in the snow.",
        "translate German to English: Eine Frau liest einem kleinen Jungen ein Buch vor.",
    ],
    "t5-ende-drafter": [
        "translate English to German: A man in a blue shirt is standing on a ladder.",
        "translate English to German: Two dogs play in the snow.",
        "translate English to German: A group of people sits around a table and eats.",
    ],
    "t5-deen-drafter": [
        "translate German to English: Ein Mann in einem blauen Hemd steht auf einer Leiter.",
        "translate German to English: Zwei Hunde spielen im Schnee.",
        "translate German to English: Eine Frau liest einem kleinen Jungen ein Buch vor.",
    ],
}


@needs_shared
@pytest.mark.parametrize("name", SENTENCES)
def test_trained_checkpoints_equal_pytorch_on_sentences(name: str) -> None:
    """Logits along PyTorch's own greedy translation."""
    folder = MODELS / name
    from transformers import T5ForConditionalGeneration

    theirs = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    batch = load_tokenizer(folder)(SENTENCES[name], padding=True, return_tensors="np")
    source = batch["input_ids"].astype(np.int32)
    length = batch["attention_mask"].sum(axis=1).astype(np.int32)
    translated = their_greedy(theirs, source, length)
    width = max(map(len, translated))
    target = np.array([[0, *row, *[0] * (width - len(row))] for row in translated], np.int32)
    expected = GOLDEN["logits"](theirs, source, length, target)
    ours = load(folder)
    assert ours.model.config.tied is (name != "t5-deen-drafter")
    np.testing.assert_allclose(our_logits(ours, source, length, target), expected, 0, 1e-3)
    assert our_greedy(ours, source, length) == translated


def test_an_exported_model_loads_in_transformers_and_here_unchanged(
    pair: Any, tmp_path: Path
) -> None:
    from transformers import AutoModelForSeq2SeqLM

    theirs, ours = pair
    huggingface.save(
        tmp_path / "out", ours.model, ours.params, original_config=ours.original_config
    )
    again = load(tmp_path / "out")
    assert again.model == ours.model
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)
    exported = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    source, length = random_prompts(ours.model.info.vocab_size, 3)
    target = np.ones((3, 20), np.int32)
    np.testing.assert_array_equal(
        GOLDEN["logits"](exported.eval(), source, length, target),
        GOLDEN["logits"](theirs, source, length, target),
    )


@needs_shared
def test_an_exported_drafter_assists_in_transformers(tmp_path: Path) -> None:
    """As `assistant_model`: the target's own translations come out."""
    from transformers import AutoModelForSeq2SeqLM

    names = ("t5-ende-target", "t5-ende-drafter")
    target = AutoModelForSeq2SeqLM.from_pretrained(MODELS / names[0], dtype=torch.float32)
    drafter = load(MODELS / names[1])
    tokenizer = load_tokenizer(MODELS / names[1])
    huggingface.save(tmp_path / "drafter", drafter.model, drafter.params, tokenizer)
    load_torch = AutoModelForSeq2SeqLM.from_pretrained
    exported = load_torch(tmp_path / "drafter", dtype=torch.float32)
    original = load_torch(MODELS / names[1], dtype=torch.float32)
    for sentence in SENTENCES[names[1]]:
        batch = tokenizer(sentence, return_tensors="pt")
        settings = {**batch, "max_new_tokens": 40, "do_sample": False}
        plain = target.generate(**settings).tolist()
        assert target.generate(**settings, assistant_model=exported).tolist() == plain
        assert exported.generate(**settings).tolist() == original.generate(**settings).tolist()
