"""Texts that end at strings: the automaton against a search of the text, and whole decodes."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from decodes import inputs, texts
from scripted import PrefixModel, prefix_params

from specjax.contracts.stopping import RowStops, Stops
from specjax.decoding.loop import generate
from specjax.decoding.strategy import Strategy, strategy
from specjax.logits.settings import apply_settings
from specjax.logits.stop_strings import StopStrings, make_byte_moves, make_token_texts
from specjax.runtime.errors import UserError

PIECES = {0: "<s>", 2: b"a", 3: b"ab", 4: b"ba", 5: b" b", 6: "é".encode()[:1], 7: "é".encode()[1:]}
V = 9
STRINGS = [("aa",), ("abab", "b b"), ("é",), ("aba", "bab", "abba"), ("s>a",), ("zz",)]


def ends(tokens: list[int], strings: tuple[str, ...], prompt: int = 0) -> int:
    """Tokens up to and including the first behind the prompt in which a string is complete."""
    text = b""
    for count, token in enumerate(tokens, 1):
        piece = PIECES.get(token, b"")
        before, text = len(text), text + (piece.encode() if isinstance(piece, str) else piece)
        for string in strings:
            found = text.find(string.encode(), max(before - len(string.encode()) + 1, 0))
            if found >= 0 and piece and count > prompt:
                return count
    return len(tokens)


def stops_of(strings: tuple[str, ...]) -> Stops:
    return StopStrings(strings).stops(PIECES, V)


@pytest.mark.parametrize("strings", STRINGS, ids=str)
def test_the_automaton_finds_what_a_search_of_the_text_finds(strings) -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, V, (300, 12)).astype(np.int32)
    counts = rng.integers(0, 13, 300).astype(np.int32)
    stops, split = stops_of(strings), 5
    # Read in two pieces, as rounds do.
    first, start = jnp.minimum(counts, split), jnp.zeros(300, jnp.int32)
    state, read, done = stops.read(start, jnp.asarray(rows[:, :split]), first)
    rest = jnp.where(done, 0, counts - first)
    _, more, found = stops.read(state, jnp.asarray(rows[:, split:]), rest)
    expected = [
        ends(row[:count].tolist(), strings) for row, count in zip(rows, counts, strict=True)
    ]
    assert (np.asarray(read) + np.asarray(more)).tolist() == expected
    complete = np.asarray(done) | np.asarray(found)
    assert complete.any() != (strings == ("zz",)) and not complete.all()


@pytest.mark.slow
def test_each_row_has_strings_of_its_own() -> None:
    rng = np.random.default_rng(4)
    rows = rng.integers(0, V, (70, 14)).astype(np.int32)
    strings = [*STRINGS, ()] * 10
    stops = RowStops(make_token_texts(PIECES, V), make_byte_moves(strings))
    text, lengths = jnp.asarray(rows), rng.integers(0, 5, 70).astype(np.int32)
    state = stops.begin(text[:, :4], lengths)
    given = jnp.take_along_axis(text, lengths[:, None] + jnp.arange(10), axis=1)
    state, read, done = stops.read(state, given[:, :5], jnp.full(70, 5))
    rest = jnp.where(done, 0, 5)
    _, more, found = stops.read(state, given[:, 5:], rest)
    expected = [
        ends(row[: length + 10].tolist(), own, length) - length
        for row, own, length in zip(rows, strings, lengths, strict=True)
    ]
    assert (read + more).tolist() == expected
    complete = np.asarray(done | found).reshape(10, -1)
    assert complete[:, :-2].any() and not complete[:, -2:].any()


MODEL = PrefixModel(V)
PARAMS = {"target": prefix_params(V, seed=1), "drafter": prefix_params(V, seed=2, scale=0.7)}
PROMPTS = [[3, 2, 4, 2], [2, 2], [4, 3, 2], [3], [4, 4, 2, 3], [2, 4], [3, 5], [2, 3, 4, 8]]
LIMIT = 12


def decode(made: Strategy, model: PrefixModel, stops: Stops | None, seed: int = 0):
    decoder = made.decoder((("target", model), ("drafter", model)), LIMIT)
    params = {name: PARAMS[name] for name in decoder.inputs}
    options = made.options().replace(stops=stops)
    return texts(generate(decoder, params, *inputs(PROMPTS, LIMIT, seed), options))


@pytest.mark.parametrize("encoder", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_text_ends_with_the_token_that_completes_a_string(encoder) -> None:
    model = MODEL if encoder else dataclasses.replace(MODEL, start_token=None)
    strings = ("abab", "b b", "aa", "é")
    drafted = strategy(drafter="neural", length=3, temperature=1.0)
    whole = decode(drafted, model, None)
    heads = [[0]] * len(PROMPTS) if encoder else PROMPTS
    cut = [
        row[: ends([*head, *row], strings, len(head)) - len(head)]
        for head, row in zip(heads, whole, strict=True)
    ]
    assert decode(drafted, model, stops_of(strings)) == cut
    assert cut != whole and any(len(row) == LIMIT for row in whole)


def test_what_cannot_be_a_stop_string_is_refused() -> None:
    with pytest.raises(UserError, match="needs the target's tokenizer; it has none"):
        apply_settings(Strategy().options(), {"stop_strings": "a"}, MODEL)
    with pytest.raises(UserError, match="stop_strings is .*; it must be a list of texts"):
        apply_settings(Strategy().options(), {"stop_strings": [""]}, MODEL)
    with pytest.raises(UserError, match="stop_strings have 600 bytes together"):
        apply_settings(Strategy().options(), {"stop_strings": ["a" * 300, "b" * 300]}, MODEL)
