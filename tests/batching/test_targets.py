"""Targets of every kind in slots: prompts that are read narrowly have the tokens of one batch."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import without_encoder

import specjax
from specjax.batching.requests import Entry, ListFeed
from specjax.batching.rows import find_width, list_bounds
from specjax.decoding import filling, parts
from specjax.decoding.summary import summarize
from specjax.loading import LoadedModel
from specjax.selection.choosing import ByChance
from specjax.selection.strategies import make_selected, make_switched

GOLDEN = Path(__file__).parents[1] / "golden"
ENCODERS = [
    "t5_v1_1", "bart", "mt5", "m2m_100", "marian_two", "pegasus", "t5gemma", "t5gemma2", "longt5",
    "switch_transformers", "led", "pegasus_x",
]  # fmt: skip
DECODERS = [
    "llama", "gemma3_text", "gpt2", "gpt_neox", "mistral", "opt_350m", "qwen3_moe", "qwen3_5_text",
    "gpt_oss", "deepseek_v3", "granitemoehybrid", "nemotron_h",
]  # fmt: skip
NEW = 10


def prompts(model, longest: int = 30) -> list[list[int]]:
    """Prompts of every length up to the longest, shuffled, of ids that all tables have."""
    draw = np.random.default_rng(3)
    ids = min(model.info.vocab_size, model.info.source_vocab or model.info.vocab_size)
    lengths = draw.permutation(np.arange(1, longest + 1, 2))
    return [draw.integers(3, ids, length).tolist() for length in lengths]


def on_states(target: LoadedModel) -> LoadedModel:
    """A random drafter on the target's states."""
    config = target.model.config
    ids = tuple(range(config.vocab_size))
    model, params = without_encoder(config.vocab_size, config.d_model, (1, 2), ids, None)
    return LoadedModel(model, params, None, "drafter")


def near(target: LoadedModel) -> LoadedModel:
    """A drafter: the target with its weights a little off."""
    params = jax.tree.map(lambda x: x * 0.97, target.params)
    return LoadedModel(target.model, params, None, "drafter")


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS + DECODERS)
def test_rows_are_those_of_one_batch(name):
    target = specjax.load(GOLDEN / name)
    generator = specjax.Generator(
        target, {"drafter": near(target)}, specjax.speculative(length=3), max_new_tokens=NEW
    )
    ids = prompts(target.model)
    assert generator(ids, batch_size=3).tokens == generator(ids).tokens


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"guidance_scale": 1.7}, {"stop_strings": ["e", "r W"]}])
def test_settings_hold_in_slots(pair, settings):
    if "guidance_scale" in settings:
        target = specjax.load(GOLDEN / "llama")
        given = prompts(target.model)
    else:
        target = specjax.load(pair / "target")
        given = [line for line in (pair / "source.txt").read_text("utf-8").splitlines()[:12]]
    generator = specjax.Generator(
        target,
        {"drafter": near(target)},
        specjax.speculative(length=3),
        max_new_tokens=NEW,
        generation=settings,
    )
    plain = specjax.Generator(target, max_new_tokens=NEW)(given)
    whole = generator(given)
    assert generator(given, batch_size=3).tokens == whole.tokens != plain.tokens


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("chooses", ["texts", "rounds"])
def test_choices_of_a_drafter_in_slots(chooses, size):
    """With one slot the chosen drafter has a loop of its own."""
    target = specjax.load(GOLDEN / "llama")
    fields = {"neural": {"model": "drafter"}, "prompt_lookup": {}}
    arms = {
        name: specjax.strategy(drafter=name, length=3, temperature=0.7, **own)
        for name, own in fields.items()
    }
    made = make_selected(arms, ByChance()) if chooses == "texts" else make_switched(arms, (0.1, 0))
    generator = specjax.Generator(
        target, {"drafter": near(target)}, made, max_new_tokens=NEW, bucket=32
    )
    ids = prompts(target.model)
    assert generator(ids, batch_size=size).tokens == generator(ids).tokens


@pytest.mark.slow
def test_audio_in_slots():
    target = specjax.load(GOLDEN / "whisper")
    draw = np.random.default_rng(0)
    audio = [draw.normal(size=3000).astype(np.float32) for _ in range(5)]
    generator = specjax.Generator(target, max_new_tokens=6)
    assert generator(audio, batch_size=2).tokens == generator(audio).tokens


@pytest.mark.slow
def test_half_precision_with_invariant_calls():
    target = specjax.load(GOLDEN / "llama", dtype="bfloat16")
    ids = prompts(target.model)
    made = [
        specjax.Generator(
            target, {"drafter": near(target)}, strategy, max_new_tokens=NEW, invariant=8, bucket=32
        )
        for strategy in (specjax.autoregressive(), specjax.speculative(length=3))
    ]
    for size in (1, 4):
        plain, drafted = (one(ids, batch_size=size).tokens for one in made)
        assert plain == drafted


@pytest.mark.slow
def test_slots_of_a_stream_fit_the_models_positions():
    target = specjax.load(GOLDEN / "gpt2")
    generator = specjax.Generator(target, max_new_tokens=NEW, max_prompt_tokens=4096)
    assert find_width(generator.prompts) == 56  # of 64 positions 54 for a prompt, in buckets of 8
    ids = prompts(target.model)
    found = dict(generator.stream_many(ids, batch_size=3))
    assert [found[place] for place in range(len(ids))] == generator(ids).tokens


@pytest.mark.slow
def test_narrow_reading_gives_the_same_caches():
    for name in ("t5_v1_1", "llama", "mistral"):
        loaded = specjax.load(GOLDEN / name)
        tokens = jnp.asarray(np.random.default_rng(0).integers(3, 30, (2, 24)), jnp.int32)
        length = jnp.array([7, 3])
        wide, narrow = (
            loaded.model.start(loaded.params, tokens, length, 40, ahead=12, longest=longest)
            for longest in (None, 8)
        )
        shapes = [jax.tree.map(jnp.shape, one) for one in (wide, narrow)]
        assert shapes[0] == shapes[1]
        step = jnp.array([[5, 6], [7, 8]])
        logits = [
            loaded.model.extend(loaded.params, step, cache)[0].logits for cache, _ in (wide, narrow)
        ]
        np.testing.assert_allclose(logits[0], logits[1], atol=1e-5)
        np.testing.assert_allclose(wide[1].embedding, narrow[1].embedding, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "drafter"),
    [("mistral", "eagle"), ("mistral", "neural"), ("llama", "neural"), ("llama", "eagle")],
)
def test_long_prompts_are_read_in_parts(name, drafter):
    """Also on rings; the other rows go on between the parts."""
    target = specjax.load(GOLDEN / name)
    strategy = specjax.strategy(drafter=drafter, length=3)
    loaded = near(target) if drafter == "neural" else on_states(target)
    generator = specjax.Generator(target, {"drafter": loaded}, strategy, max_new_tokens=NEW)
    ids = prompts(target.model, 48)
    width = find_width(generator.prompts, ids)
    entries = [Entry(place, row, NEW, 0, place) for place, row in enumerate(ids)]
    found, traces = {}, []
    slots = generator.slots(3, width, part=8)
    slots.warm_up(list_bounds(generator.prompts, width, 1, 8), in_parts=True)
    programs = filling.fill, parts.read_part, parts.open_parts
    sizes = [program._cache_size() for program in programs]
    for one in slots.run(ListFeed(entries)):
        assert all(a < b for a, b in zip(one.start_times, one.first_token_times, strict=True))
        rows = generator.rows(one.generation)
        found |= {entry.place: row for entry, row in zip(one.entries, rows, strict=True)}
        traces.append((one.generation, len(rows)))
    assert [program._cache_size() for program in programs] == sizes
    whole = generator(ids)
    assert [found[place] for place in range(len(ids))] == whole.tokens
    assert summarize(generator.decoder, traces).accepted == whole.statistics.accepted
