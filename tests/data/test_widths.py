"""The widths that prompts are padded to: as few as the bound on padding allows, and no fewer."""

from __future__ import annotations

import bisect
import itertools

import numpy as np
import pytest

from specjax.data import batching as module
from specjax.data.batching import PADDING, Batch, choose_widths, pad_to_few_shapes


def compute_padding(lengths: list[int], widths: tuple[int, ...]) -> int:
    return sum(widths[bisect.bisect_left(widths, length)] - length for length in lengths)


def fits(lengths: list[int], widths: tuple[int, ...], new: int) -> bool:
    return compute_padding(lengths, widths) <= PADDING * sum(length + new for length in lengths)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("new", [1, 8, 64])
def test_no_fewer_widths_would_do_and_so_many_pad_no_less(seed, new):
    lengths = np.random.default_rng(seed).integers(3, 40, size=12).tolist()
    found = choose_widths(lengths, new)
    assert found[-1] == max(lengths) and list(found) == sorted(set(found))
    assert fits(lengths, found, new)
    rest = sorted(set(lengths) - {max(lengths)})
    for count in range(len(found)):
        choices = [(*c, max(lengths)) for c in itertools.combinations(rest, count)]
        if count < len(found) - 1:
            assert not any(fits(lengths, choice, new) for choice in choices)
        else:
            assert compute_padding(lengths, found) == min(
                compute_padding(lengths, c) for c in choices
            )


def test_equal_lengths_and_long_outputs_need_one_width():
    assert choose_widths([7, 7, 7], 1) == (7,)
    assert choose_widths([5, 30, 45], 1000) == (45,)


def test_very_many_lengths_are_thinned_out(monkeypatch):
    monkeypatch.setattr(module, "MOST_CANDIDATES", 10)
    lengths = list(range(1, 101))
    found = choose_widths(lengths, 16)
    assert found[-1] == 100 and 1 < len(found) <= 10 and fits(lengths, found, 16)


def batch(length: int, own: int) -> Batch:
    one = np.ones(1, np.int32)
    tokens = np.full((1, length), 5, np.int32)
    drafter = np.full((1, own), 6, np.int32), one * own
    return Batch(tokens, one * length, one * 4, one * 0, 1, {"drafter": drafter})


def test_batches_are_widened_with_padding_and_share_the_widest_own_prompts():
    made = pad_to_few_shapes([batch(9, 4), batch(10, 7), batch(30, 2)], 4, pad=3)
    assert [one.shape for one in made] == [(1, 10, 7), (1, 10, 7), (1, 30, 2)]
    assert made[0].tokens.tolist() == [[5] * 9 + [3]] and made[0].length.tolist() == [9]
    tokens, length = made[0].own["drafter"]
    assert tokens.tolist() == [[6] * 4 + [0] * 3] and length.tolist() == [4]


def test_what_is_heard_has_one_shape():
    frames = np.zeros((1, 6, 2), np.float32)
    heard = Batch(frames, *[np.ones(1, np.int32)] * 3, 1)
    assert [one.shape for one in pad_to_few_shapes([heard, heard], 4, pad=0)] == [(1, 6, 2)] * 2
