"""Figures of a strategy from the traces of its decodes.

Letters: N rows of a whole data set, R rounds, K drafted tokens, G generated tokens of a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.contracts.draft import STOP_REASONS
from specjax.decoding.state import Generation
from specjax.selection.arms import ARM
from specjax.verification.calm import LAYERS

NORMAL_95 = 1.959964
"""Standard deviations of the two-sided 95% interval of a normal distribution."""

BINS = 8
"""Parts of the longest text that the overlap is averaged over."""


@dataclasses.dataclass(frozen=True)
class Rounds:
    """Per-round and per-row records of all examples; 0 in rounds that a row did not have."""

    begin: np.ndarray  # [N] first generated position
    width: np.ndarray  # [N, R] width of the target call in drafted tokens
    drafted: np.ndarray  # [N, R]
    accepted: np.ndarray  # [N, R]
    committed: np.ndarray  # [N, R]
    reviewed: np.ndarray  # [N, R] bool: the target ran for the row
    overlap: np.ndarray  # [N, R] sum of min(p, q) over the tested positions
    calls: dict[str, np.ndarray]  # [N] runs by `Call.part`
    runs: dict[str, int]  # by `Call.part`, each once for its whole batch
    turns: int  # rounds, each once for its whole batch
    stops: dict[str, int]  # rounds by why their draft ended
    layers: np.ndarray | None = None  # [N, R] decoder layers that the token ran, under CALM
    arm: np.ndarray | None = None  # [N, R] which of several drafters had the round

    @property
    def tested(self) -> np.ndarray:
        """Tested positions [N, R]: the accepted ones and any first rejected one."""
        return np.minimum(self.accepted + 1, self.drafted) * self.reviewed

    @property
    def passed(self) -> np.ndarray:
        """Positions [N, R] that passed a test."""
        return self.accepted * self.reviewed

    @property
    def started(self) -> np.ndarray:
        """Tokens [N, R] that a row had generated before each round."""
        return np.cumsum(self.committed, axis=1) - self.committed

    @property
    def ran(self) -> np.ndarray:
        """Whether [N, R] a row had the round: each one commits a token."""
        return self.committed > 0

    @property
    def tokens(self) -> int:
        return int(self.committed.sum())

    @property
    def layers_per_token(self) -> float | None:
        """Mean decoder layers that a token ran; None when all ran all, or nothing was decoded."""
        if self.layers is None or not self.tokens:
            return None
        return float(self.layers[self.ran].mean())


def collect_rounds(generations: Sequence[tuple[Generation, int]]) -> Rounds:
    """The records of the first `rows` rows of every (generation with host arrays, rows)."""

    def join_field(field: str) -> np.ndarray:
        return np.concatenate([np.asarray(getattr(g.trace, field))[:n] for g, n in generations])

    def column(name: str) -> np.ndarray | None:
        if not generations[0][0].trace.has(name):
            return None
        return np.concatenate([np.asarray(g.trace.column(name))[:n] for g, n in generations])

    names = generations[0][0].trace.calls
    stops = join_field("stops").sum(axis=0)
    return Rounds(
        begin=np.concatenate([np.asarray(g.begin)[:n] for g, n in generations]),
        width=join_field("width"),
        drafted=join_field("drafted"),
        accepted=join_field("accepted"),
        committed=join_field("committed"),
        reviewed=join_field("reviewed"),
        overlap=join_field("overlap").astype(np.float64),
        calls={
            name: np.concatenate([np.asarray(g.trace.calls[name])[:n] for g, n in generations])
            for name in names
        },
        runs={name: sum(int(g.trace.runs[name]) for g, _ in generations) for name in names},
        turns=sum(int(g.trace.rounds) for g, _ in generations),
        stops={reason: int(n) for reason, n in zip(STOP_REASONS, stops, strict=True) if n},
        layers=column(LAYERS),
        arm=column(ARM),
    )


def wilson(successes: int, trials: int) -> tuple[float, float] | tuple[None, None]:
    """95% interval of a proportion (Wilson, 1927); None without trials.

    Unlike the normal approximation it never leaves [0, 1] and has a width at 0 and 1.
    """
    if not trials:
        return None, None
    rate, shrink = successes / trials, NORMAL_95**2 / trials
    middle = rate + shrink / 2
    half = np.sqrt(rate * (1 - rate) * shrink + shrink**2 / 4)
    low, high = (middle - half) / (1 + shrink), (middle + half) / (1 + shrink)
    # At 0 and 1 one bound is the rate itself; rounding could put it on the wrong side.
    return float(min(low, rate)), float(max(high, rate))


def proportion(successes: int, trials: int) -> dict[str, float | None]:
    """A rate with its 95% interval; None without trials."""
    low, high = wilson(successes, trials)
    return {"rate": successes / trials if trials else None, "low": low, "high": high}


def acceptance(rounds: Rounds) -> dict[str, Any]:
    """The acceptance rate, by position in the draft, and along the text.

    See docs/methods/speculative_sampling.md, "Measuring acceptance".
    """
    longest = int(rounds.committed.sum(axis=1).max(initial=1))
    part = part_of_text(longest)
    return describe_acceptance(count_acceptance(rounds, part), part)


def part_of_text(longest: int) -> int:
    """Positions of each of the `BINS` parts of a text of the longest length."""
    return -(-longest // BINS)


def count_acceptance(rounds: Rounds, part: int) -> dict[str, Any]:
    """Counts that `describe_acceptance` reads; those of several sets of rows add up.

    `tested` and `accepted` are those of every position in the draft; `overlap`, sums of min(p, q),
    and the tested `positions` are those of every `part` positions of the text.
    """
    places = range(1, int(rounds.tested.max(initial=0)) + 1)
    return {
        "tested": [int((rounds.tested >= place).sum()) for place in places],
        "accepted": [int((rounds.passed >= place).sum()) for place in places],
        "total_overlap": float(rounds.overlap.sum()),
        **_count_along_text(rounds, part),
    }


def _count_along_text(rounds: Rounds, part: int) -> dict[str, list[Any]]:
    """Sums of min(p, q) over the tested positions of each part of the text, and their number.

    A round only records the sum over its tested positions, so each of them gets their mean.
    """
    tested = rounds.tested[rounds.ran]
    mean = rounds.overlap[rounds.ran] / np.maximum(tested, 1)
    first = np.repeat(np.cumsum(tested) - tested, tested)
    place = np.repeat(rounds.started[rounds.ran], tested) + np.arange(tested.sum()) - first
    sums = np.bincount(place // part, weights=np.repeat(mean, tested), minlength=BINS)
    counts = np.bincount(place // part, minlength=BINS)
    return {"overlap": sums.tolist(), "positions": counts.tolist()}


def describe_acceptance(counts: Mapping[str, Any], part: int) -> dict[str, Any]:
    """The figures of `acceptance` from the counts of all rows.

    Parts of the text are half-open ranges of generated positions, counted from 0.
    """
    tested = sum(counts["tested"])
    pairs = zip(counts["tested"], counts["accepted"], strict=True)
    parts = zip(counts["overlap"], counts["positions"], strict=True)
    return {
        **proportion(sum(counts["accepted"]), tested),
        "tested": tested,
        "analytic": counts["total_overlap"] / tested if tested else None,
        "by_position": [
            {"position": place, "tested": tried, "accepted": passed, **proportion(passed, tried)}
            for place, (tried, passed) in enumerate(pairs, start=1)
        ],
        "along_text": [
            {
                "from": index * part,
                "to": (index + 1) * part,
                "overlap": overlap / positions,
                "positions": positions,
            }
            for index, (overlap, positions) in enumerate(parts)
            if positions
        ],
    }


def round_figures(rounds: Rounds) -> dict[str, Any]:
    """Number of rounds, their tokens, and the reasons why their drafts ended."""
    sizes, counts = np.unique(rounds.committed[rounds.ran], return_counts=True)
    return {
        "count": int(counts.sum()),
        "tokens_per_round": {
            str(size): count for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
        },
        "stop_reasons": rounds.stops,
    }


def arm_figures(rounds: Rounds, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By arm: texts that began with it, its rounds, and their tokens.

    `accept_rate` is accepted over drafted tokens, those after a rejection too
    (docs/methods/selection.md, "Accept rate"); None where nothing was drafted.
    """
    figures = {}
    for arm, name in enumerate(names):
        row_mask = rounds.ran & (rounds.arm == arm)
        drafted, accepted = (
            int(counts[row_mask].sum()) for counts in (rounds.drafted, rounds.accepted)
        )
        figures[name] = {
            "texts": int(row_mask[:, 0].sum()),
            "rounds": int(row_mask.sum()),
            "tokens": int(rounds.committed[row_mask].sum()),
            "drafted": drafted,
            "accepted": accepted,
            "accept_rate": accept_rate(accepted, drafted),
        }
    return figures


def accept_rate(accepted: int, drafted: int) -> float | None:
    """Accepted over drafted tokens; None where nothing was drafted."""
    return accepted / drafted if drafted else None


def count_text_arms(rounds: Rounds, names: Sequence[str]) -> list[dict[str, int]]:
    """Number of rounds by arm for every text, without arms that had none."""
    if rounds.arm is None:
        raise ValueError("the rounds do not record their drafter")
    pairs = zip(rounds.arm, rounds.ran, strict=True)
    counts = [np.bincount(arm[ran], minlength=len(names)) for arm, ran in pairs]
    return [{name: int(n) for name, n in zip(names, row, strict=True) if n} for row in counts]
