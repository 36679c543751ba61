"""Drafters whose vocabulary is padded differently, and drafters of another tokenizer."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from tiny import corpus, write_pair

import specjax
from specjax.checkpoints.tokenizer import train_tokenizer

PROMPTS = [pair.source for pair in corpus()[:4]]
PADDING = 20


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("padded")
    write_pair(folder, padding=PADDING)
    return specjax.load(folder / "target"), specjax.load(folder / "drafter")


def with_loud_padding(model, width: int):
    """The model with padding ids that win every argmax."""
    params = dict(model.params)
    table = params["embedding"]
    params["embedding"] = table.at[width:].set(1e3 * jnp.sign(table[width:]) + 50.0)
    return dataclasses.replace(model, params=params)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_of_the_drafter_is_never_drafted(loaded, temperature):
    target, drafter = loaded
    width = target.model.vocab_size
    loud = with_loud_padding(drafter, width)
    strategy = specjax.speculative(3, temperature=temperature)

    def tokens(drafter):
        made = specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=10)
        return made(PROMPTS, seed=2)

    assert drafter.model.vocab_size == width + PADDING
    assert tokens(loud).tokens == tokens(drafter).tokens
    assert tokens(loud).statistics.acceptance_rate == tokens(drafter).statistics.acceptance_rate


def test_padding_of_the_target_is_never_decoded(loaded):
    """The wider model as the target: alone beside a narrow drafter it decodes common ids only."""
    narrow, wide = loaded
    loud = with_loud_padding(wide, narrow.model.vocab_size)
    for strategy in (specjax.autoregressive(), specjax.speculative(3)):
        made = specjax.Generator(loud, {"drafter": narrow}, strategy, max_new_tokens=10)
        tokens = made(PROMPTS).tokens
        assert max(map(max, tokens)) < narrow.model.vocab_size
    assert tokens == specjax.Generator(wide, {"drafter": narrow}, max_new_tokens=10)(PROMPTS).tokens


def test_another_tokenizer_is_refused_with_the_first_differing_pieces(loaded):
    target, drafter = loaded
    other = train_tokenizer(["quite another text of other words"], target.model.vocab_size)
    stranger = dataclasses.replace(drafter, tokenizer=other)
    with pytest.raises(specjax.UserError, match="another tokenizer") as caught:
        specjax.Generator(target, {"drafter": stranger}, specjax.speculative(2))
    theirs, ours = target.tokenizer.get_vocab(), other.get_vocab()
    first = sorted((theirs[p], p) for p in theirs if ours.get(p) != theirs[p])[:3]
    assert len(first) == 3 and all(repr(piece) in str(caught.value) for _, piece in first)


def test_a_vocabulary_too_small_for_the_tokenizer_is_refused(loaded):
    target, drafter = loaded
    config = dataclasses.replace(drafter.model.config, vocab_size=target.model.vocab_size - 5)
    small = dataclasses.replace(drafter, model=dataclasses.replace(drafter.model, config=config))
    with pytest.raises(specjax.UserError, match="too small"):
        specjax.Generator(target, {"drafter": small}, specjax.speculative(2))


def test_without_tokenizers_widths_must_be_equal(loaded):
    target, drafter = (dataclasses.replace(model, tokenizer=None) for model in loaded)
    with pytest.raises(specjax.UserError, match="must be the same"):
        specjax.Generator(target, {"drafter": drafter}, specjax.speculative(2))


def test_a_drafter_of_another_kind_is_refused(loaded):
    from specjax.models.causal import Causal, CausalConfig

    target = dataclasses.replace(loaded[0], tokenizer=None)
    shape = {"d_model": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1}
    config = CausalConfig("llama", target.model.vocab_size, **shape, d_head=8, max_positions=8)
    model = Causal(config)
    stranger = specjax.LoadedModel(model, model.init(jax.random.key(0)))
    with pytest.raises(specjax.UserError, match="decoder-only"):
        specjax.Generator(target, {"drafter": stranger}, specjax.speculative(2))


def test_learned_positions_that_do_not_suffice_are_refused():
    from specjax.models.causal import Causal, CausalConfig

    shape = {"d_model": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1}
    model = Causal(CausalConfig("gpt2", 30, **shape, d_head=8, max_positions=16))
    loaded = specjax.LoadedModel(model, model.init(jax.random.key(0)))
    generator = specjax.Generator(loaded, max_new_tokens=8)
    assert len(generator([[1] * 8]).tokens[0]) == 8
    with pytest.raises(specjax.UserError, match="16 positions"):
        generator([[1] * 9])
