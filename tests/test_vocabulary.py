"""Drafters whose vocabulary is padded differently, and drafters of another tokenizer."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import corpus, write_pair
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import specjax
from specjax.experiments.config.validation import check_config
from specjax.experiments.pairs import load_pair
from specjax.hf.huggingface import save
from specjax.hf.tokenizer import train_tokenizer
from specjax.models.info import ModelInfo
from specjax.prompts import OwnIds, make_own_ids

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


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padding_of_the_drafter_is_never_drafted(loaded, temperature):
    target, drafter = loaded
    width = target.model.info.vocab_size
    loud = with_loud_padding(drafter, width)
    strategy = specjax.speculative(3, temperature=temperature)

    def tokens(drafter):
        made = specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=10)
        return made(PROMPTS, seed=2)

    assert drafter.model.info.vocab_size == width + PADDING
    assert tokens(loud).tokens == tokens(drafter).tokens
    assert tokens(loud).statistics.acceptance_rate == tokens(drafter).statistics.acceptance_rate


@pytest.mark.slow
def test_padding_of_the_target_is_never_decoded(loaded):
    """The wider model as the target: alone beside a narrow drafter it decodes common ids only."""
    narrow, wide = loaded
    loud = with_loud_padding(wide, narrow.model.info.vocab_size)
    for strategy in (specjax.autoregressive(), specjax.speculative(3)):
        made = specjax.Generator(loud, {"drafter": narrow}, strategy, max_new_tokens=10)
        tokens = made(PROMPTS).tokens
        assert max(map(max, tokens)) < narrow.model.info.vocab_size
    assert tokens == specjax.Generator(wide, {"drafter": narrow}, max_new_tokens=10)(PROMPTS).tokens


def test_another_tokenizer_is_refused_where_ids_are_compared_with_the_first_differing(loaded):
    """Beams; training asks the same."""
    target, drafter = loaded
    other = train_tokenizer(["quite another text of other words"], target.model.info.vocab_size)
    stranger = dataclasses.replace(drafter, tokenizer=other)
    with pytest.raises(specjax.UserError, match="another tokenizer") as caught:
        specjax.BeamGenerator(target, {"drafter": stranger})
    theirs, ours = target.tokenizer.get_vocab(), other.get_vocab()
    first = sorted((theirs[p], p) for p in theirs if ours.get(p) != theirs[p])[:3]
    assert len(first) == 3 and all(repr(piece) in str(caught.value) for _, piece in first)


# Another tokenizer


def with_vocabulary(drafter, tokenizer, params=None, **changes):
    """The drafter with another tokenizer, and with fresh weights where none are given."""
    config = dataclasses.replace(drafter.model.config, vocab_size=len(tokenizer) + 3, **changes)
    model = dataclasses.replace(drafter.model, config=config)
    if params is None:
        params = jax.tree.map(lambda x: x * 2.0, model.init(jax.random.key(4)))
    return dataclasses.replace(drafter, model=model, params=params, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def stranger(loaded):
    """A drafter whose tokenizer has half as many tokens."""
    lines = [text for pair in corpus() for text in (pair.source, pair.target)]
    return with_vocabulary(loaded[1], train_tokenizer(lines, 150))


@pytest.mark.slow
def test_a_drafter_of_another_tokenizer_drafts_and_the_text_is_the_targets_own(loaded, stranger):
    target, _ = loaded
    baseline = specjax.Generator(target, max_new_tokens=10)(PROMPTS)
    made = specjax.Generator(
        target, {"drafter": stranger}, specjax.speculative(3), max_new_tokens=10
    )
    result = made(PROMPTS, batch_size=3)
    assert result.tokens == baseline.tokens and result.texts == baseline.texts
    assert "".join(made.stream(PROMPTS[0], batch_size=3)) == baseline.texts[0]
    # The drafter reads the prompts in its own ids.
    batch = made.batch(made.encode(PROMPTS), 5)
    tokens, length = batch.own["drafter"]
    for prompt, row, size in zip(PROMPTS, tokens, length, strict=False):
        assert row[:size].tolist() == stranger.tokenizer(prompt).input_ids
    assert batch.shape == (5, batch.tokens.shape[1], tokens.shape[1]) and len(length) == 5


@pytest.mark.slow
def test_it_drafts_beside_models_that_are_padded_otherwise(loaded, stranger):
    """The target is then cut to what the narrowest has, and so is what is heard of the stranger."""
    narrow, wide = loaded
    assert narrow.model.info.vocab_size < wide.model.info.vocab_size
    drafters = {"drafter": stranger, "narrow": narrow}
    baseline = specjax.Generator(wide, drafters, max_new_tokens=10)(PROMPTS).tokens
    made = specjax.Generator(wide, drafters, specjax.speculative(2), max_new_tokens=10)
    assert made(PROMPTS).tokens == baseline


def reorder_ids(tokenizer, order):
    """The tokenizer with other ids."""
    fields = json.loads(tokenizer.backend_tokenizer.to_str())
    words = fields["model"]["vocab"]
    fields["model"]["vocab"] = {piece: int(order[token]) for piece, token in words.items()}
    for token in fields["added_tokens"]:
        token["id"] = int(order[token["id"]])
    for special in fields["post_processor"]["special_tokens"].values():
        special["ids"] = [int(order[token]) for token in special["ids"]]
    names = {name: getattr(tokenizer, name) for name in ("pad_token", "eos_token", "unk_token")}
    backend = Tokenizer.from_str(json.dumps(fields))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


@pytest.mark.slow
@pytest.mark.parametrize(("which", "temperature"), [(0, 0.0), (1, 3.0)])
def test_the_targets_tokens_under_other_ids_are_drafted_and_accepted_alike(
    loaded, which, temperature
):
    """Of a twin of the target, and of a drafter."""
    target, drafter = loaded[0], loaded[which]
    size = len(target.tokenizer)
    order = np.random.default_rng(0).permutation(size)
    rows = np.asarray(drafter.params["embedding"])[:size]
    table = np.zeros((size + 3, rows.shape[1]), np.float32)
    table[order] = rows
    moved = with_vocabulary(
        drafter,
        reorder_ids(target.tokenizer, order),
        drafter.params | {"embedding": jnp.asarray(table)},
        eos=(int(order[1]),), start_token=int(order[0]), pad=int(order[0]),
    )  # fmt: skip
    strategy = specjax.speculative(3, temperature=temperature)
    one, two = (
        specjax.Generator(target, {"drafter": each}, strategy, max_new_tokens=10)(PROMPTS, seed=2)
        for each in (drafter, moved)
    )
    assert one.tokens == two.tokens
    assert one.statistics.acceptance_rate == two.statistics.acceptance_rate > 0


def test_a_job_hears_of_another_vocabulary_once(loaded, stranger, tmp_path, capsys):
    for name, each in (("target", loaded[0]), ("drafter", stranger)):
        save(tmp_path / name, each.model, each.params, each.tokenizer)
    config = specjax.decode_config(**{name: str(tmp_path / name) for name in ("target", "drafter")})
    pair = load_pair(config)
    specjax.Generator(pair.target, pair.drafters, specjax.speculative(2))
    assert capsys.readouterr().out.count("'drafter' has another vocabulary") == 1
    config.least_shared = 0.99
    with pytest.raises(specjax.UserError, match="least_shared, 0.99"):
        load_pair(config)
    config.least_shared = 1.5
    with pytest.raises(specjax.UserError, match="config.least_shared is 1.5"):
        check_config(config)


def test_prompts_that_are_too_short_or_long_for_a_drafter_are_spelled_otherwise():
    class Letters:
        def __call__(self, text):
            return SimpleNamespace(input_ids=[ord(letter) for letter in text])

    spelled = OwnIds(Letters(), np.array([7, 8, 9]), fewest=4, most=6)
    assert spelled("abcd", [0] * 9) == list(b"abcd")
    assert spelled("abc", [0, 2, 1, 1, 0]) == [7, 9, 8, 8, 7]  # token by token
    assert spelled("ab", [0, 2]) == list(b"ab")
    assert spelled("abcdefgh", [0] * 9) == list(b"cdefgh")
    model = SimpleNamespace(info=ModelInfo(3, 1, max_positions=16))
    entry = SimpleNamespace(model=model, own_tokenizer=Letters(), params={"fed": np.zeros(3)})
    assert make_own_ids("drafter", entry, 8).most == 8
    with pytest.raises(specjax.UserError, match="16 positions, of which a prompt needs 8"):
        make_own_ids("drafter", entry, 9)


def test_a_vocabulary_too_small_for_the_tokenizer_is_refused(loaded):
    target, drafter = loaded
    config = dataclasses.replace(drafter.model.config, vocab_size=target.model.info.vocab_size - 5)
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
    config = CausalConfig("llama", target.model.info.vocab_size, **shape, d_head=8, max_positions=8)
    model = Causal(config)
    stranger = specjax.LoadedModel(model, model.init(jax.random.key(0)))
    with pytest.raises(specjax.UserError, match="decoder-only"):
        specjax.Generator(target, {"drafter": stranger}, specjax.speculative(2))


@pytest.mark.slow
def test_learned_positions_that_do_not_suffice_are_refused():
    from specjax.models.causal import Causal, CausalConfig

    shape = {"d_model": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1}
    model = Causal(CausalConfig("gpt2", 30, **shape, d_head=8, max_positions=16))
    loaded = specjax.LoadedModel(model, model.init(jax.random.key(0)))
    generator = specjax.Generator(loaded, max_new_tokens=8)
    assert len(generator([[1] * 8]).tokens[0]) == 8
    with pytest.raises(specjax.UserError, match="16 positions"):
        generator([[1] * 9])
