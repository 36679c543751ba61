"""The Python API: texts and token ids in; texts, tokens, statistics and streams out."""

from __future__ import annotations

import dataclasses
import types

import jax
import pytest
from tiny import corpus

import specjax


@pytest.fixture(scope="module")
def loaded(pair):
    return specjax.load(pair / "target"), specjax.load(pair / "drafter")


@pytest.fixture(scope="module")
def generator(loaded):
    target, drafter = loaded
    strategy = specjax.speculative(length=3)
    return specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=12, bucket=64)


PROMPTS = [each.source for each in corpus()[:5]]


def test_texts_give_texts_tokens_and_statistics(generator):
    result = generator(PROMPTS)
    assert len(result.texts) == len(result.tokens) == 5
    assert result.statistics.tokens == sum(map(len, result.tokens))
    assert result.statistics.calls["target"] == result.statistics.rounds
    assert 0.0 <= result.statistics.acceptance_rate <= 1.0


@pytest.mark.slow
def test_a_notebook_shows_who_wrote_each_token(generator):
    result = generator(PROMPTS, batch_size=2)
    entries = result.first.entries()
    assert len(entries) == 5
    for entry, text, prompt in zip(entries, result.texts, PROMPTS, strict=True):
        assert entry["source"] == prompt
        kept = [
            "".join(each["drafted"][: each["accepted"]]) + (each["next"] or "")
            for each in entry["rounds"]
        ]
        assert "".join(kept).replace("</s>", "").strip() == text
    page = result._repr_html_()
    assert ">drafter</span>" in page
    assert "and 1 more" in generator([*PROMPTS, PROMPTS[0]])._repr_html_()


def test_token_ids_give_the_same_as_their_texts(generator):
    ids = generator.target.tokenizer(PROMPTS).input_ids
    assert generator(ids).tokens == generator(PROMPTS).tokens


@pytest.mark.slow
def test_a_single_text_is_a_list_of_one_and_what_is_streamed(generator):
    result = generator(PROMPTS[0])
    assert result.texts == generator(PROMPTS[:1]).texts and len(result.tokens) == 1
    assert "".join(generator.stream(PROMPTS[0])) == result.texts[0]


def test_speculative_equals_autoregressive(generator, loaded):
    baseline = specjax.Generator(loaded[0], max_new_tokens=12, bucket=64)
    assert baseline(PROMPTS).tokens == generator(PROMPTS).tokens


@pytest.mark.slow
def test_sampled_rows_do_not_depend_on_the_batch_size(loaded):
    target, drafter = loaded
    strategy = specjax.speculative(length=3, temperature=1.0)
    made = specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=12, bucket=64)
    together = made(PROMPTS, seed=3).tokens
    assert made(PROMPTS, seed=3, batch_size=2).tokens == together
    assert made(PROMPTS, seed=4).tokens != together


def test_outputs_of_earlier_calls_can_be_searched(loaded):
    from specjax.decoding.loop import generate

    target = loaded[0]
    earlier = specjax.Corpus(target.model, 256)
    searching = specjax.Generator(
        target,
        strategy=specjax.strategy(drafter="suffix", length=4, corpus=True),
        tables={"corpus": earlier.table()},
        max_new_tokens=12,
        bucket=64,
    )
    first = searching(PROMPTS)
    earlier.add(first.tokens)
    before = generate._cache_size()
    again = searching(PROMPTS, tables={"corpus": earlier.table()})
    assert again.tokens == first.tokens
    assert 2 * again.statistics.rounds < first.statistics.rounds
    assert generate._cache_size() == before
    with pytest.raises(specjax.UserError, match="tables has 'ngram'; .* reads 'corpus'"):
        searching(PROMPTS, tables={"ngram": earlier.table()})
    with pytest.raises(specjax.UserError, match="tables is 3"):
        searching(PROMPTS, tables=3)
    with pytest.raises(specjax.UserError, match="table of a specjax.Corpus"):
        searching(PROMPTS, tables={"corpus": {}})


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_stream_joins_to_the_whole_text(generator, rounds):
    pieces = list(generator.stream(PROMPTS[0], rounds=rounds))
    assert len(pieces) > 1
    assert "".join(pieces) == generator(PROMPTS[:1]).texts[0]


def test_prompts_of_one_bucket_share_a_program(generator):
    from specjax.decoding.loop import generate

    generator(PROMPTS, batch_size=1)
    before = generate._cache_size()
    generator([pair.source for pair in corpus()[5:9]], batch_size=1)
    assert generate._cache_size() == before


def test_a_call_drops_programs_when_they_hold_too_many_memory_maps(generator, monkeypatch):
    from specjax.runtime import programs

    dropped = []
    monkeypatch.setattr(programs.jax, "clear_caches", lambda: dropped.append(True))
    generator(PROMPTS)
    assert not dropped
    monkeypatch.setattr(programs, "MOST_MAPS", 10)
    generator(PROMPTS, batch_size=len(PROMPTS))
    assert len(dropped) == 1
    list(generator.stream(PROMPTS[0]))
    assert len(dropped) == 2


def test_memory_maps_are_counted_again_after_something_was_compiled(monkeypatch, tmp_path):
    from specjax.runtime import programs

    file = tmp_path / "maps"
    monkeypatch.setattr(programs, "_MAPS", file)
    maps = programs._Maps()
    file.write_text("map\n" * 3)
    assert maps.count() == 3
    file.write_text("map\n" * 5)
    assert maps.count() == 3
    jax.jit(lambda x: x + 41)(1.0)
    assert maps.count() == 5


@pytest.mark.parametrize(
    ("prompts", "named"),
    [([], "empty"), ([[]], "prompt 0"), ([[5] * 600], "max_prompt_tokens"), (7, "list")],
)
def test_unusable_prompts_are_named(generator, prompts, named):
    with pytest.raises(specjax.UserError, match=named):
        generator(prompts)


class CountingTokenizer:
    """One token for every word, and how many characters it has read."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, text: str):
        self.read += len(text)
        return types.SimpleNamespace(input_ids=[5] * len(text.split()))


def test_a_text_far_too_long_is_refused_by_its_beginning(loaded):
    tokenizer = CountingTokenizer()
    target = dataclasses.replace(loaded[0], tokenizer=tokenizer)
    generator = specjax.Generator(target, max_prompt_tokens=100)
    with pytest.raises(specjax.UserError, match="prompt 0 has 10,000,000 characters, of which the"):
        generator(["word " * 2_000_000])
    assert tokenizer.read < 10_000
    assert len(generator.encode(["word" + 10_000 * " "])[0]) == 1  # long, and few tokens


def test_a_missing_drafter_is_named(loaded):
    with pytest.raises(specjax.UserError, match="'drafter'"):
        specjax.Generator(loaded[0], strategy=specjax.speculative())
