"""Accepted lengths as papers report them: tokens per round, pooled or per request.

See docs/reference/accepted_lengths.md. A request is a prompt or a whole conversation. Letters: N
examples, R rounds of an example, U requests, K tokens of the longest round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.metrics.statistics import draws, interval
from specjax.metrics.traces import Rounds

WITHOUT_PREFILL, WITH_PREFILL = "without_prefill", "with_prefill"
"""Whether the prefill counts as a step that gives one token."""

POOLED, PER_REQUEST = "pooled", "per_request"
"""Total tokens over total steps, or the mean over requests of tokens over steps."""

Figure = dict[str, float | None]
"""A `value` with its 95% interval, `low` and `high`; None where it is not known."""


@dataclasses.dataclass(frozen=True)
class Requests:
    """Totals of every request."""

    turns: np.ndarray  # [U]: each has a prefill
    rounds: np.ndarray  # [U]
    tokens: np.ndarray  # [U] generated
    drafted: np.ndarray  # [U] put before the target
    at_least: np.ndarray  # [U, K] rounds of at least 1, 2, ... tokens
    seconds: np.ndarray | None = None  # [U] of decoding it alone

    def part(self, mask: np.ndarray) -> Requests:
        """Those that `mask` [U] selects."""
        return Requests(
            self.turns[mask],
            self.rounds[mask],
            self.tokens[mask],
            self.drafted[mask],
            self.at_least[mask],
            None if self.seconds is None else self.seconds[mask],
        )

    @property
    def tokens_per_second(self) -> np.ndarray | None:
        """Of every request [U], over all of its turns; 0 for those without seconds."""
        if self.seconds is None:
            return None
        return _divide(self.tokens.astype(np.float64), self.seconds)


def collect_requests(
    rounds: Rounds, requests: np.ndarray, seconds: np.ndarray | None = None
) -> Requests:
    """Totals of the requests, from the rounds of all N examples.

    Args:
      rounds: of all examples.
      requests: [N] which request, from 0, each example is a turn of.
      seconds: [N] of decoding each example alone; None where they are not known.
    """
    count = int(requests.max(initial=-1)) + 1

    def total(values: np.ndarray) -> np.ndarray:
        summed = np.zeros((count, *values.shape[1:]), values.dtype)
        np.add.at(summed, requests, values)
        return summed

    longest = int(rounds.committed.max(initial=1))
    at_least = [(rounds.committed >= length).sum(axis=1) for length in range(1, longest + 1)]
    return Requests(
        turns=total(np.ones(len(requests), np.int64)),
        rounds=total(rounds.ran.sum(axis=1)),
        tokens=total(rounds.committed.sum(axis=1)),
        drafted=total(rounds.drafted.sum(axis=1)),
        at_least=total(np.stack(at_least, axis=1)),
        seconds=None if seconds is None else total(np.asarray(seconds, np.float64)),
    )


def evaluate(
    strategies: Mapping[str, Requests],
    baselines: Mapping[str, str],
    categories: Sequence[str] | None,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """The figures of every strategy over all requests, and by category.

    Strategies share the samples of requests that the intervals come from.

    Args:
      strategies: the same requests under each.
      baselines: of every strategy the one that its speedup is over.
      categories: of the U requests, in whose first order categories are listed; None without any.
      seed: of the samples.
    """
    count = len(next(iter(strategies.values())).turns)
    parts: dict[str | None, np.ndarray] = {None: np.ones(count, bool)}
    if categories is not None:
        names = np.array(categories)
        parts |= {name: names == name for name in dict.fromkeys(categories)}
    found: dict[str, dict[str | None, Any]] = {name: {} for name in strategies}
    for part, mask in parts.items():
        sample = draws(int(mask.sum()), seed)
        drawn = None if sample is None else sample.astype(np.float64)
        chosen = {name: requests.part(mask) for name, requests in strategies.items()}
        for name, requests in chosen.items():
            found[name][part] = request_figures(requests, chosen[baselines[name]], drawn)
    return {
        name: {"overall": figures.pop(None), "categories": figures}
        for name, figures in found.items()
    }


def request_figures(
    requests: Requests, baseline: Requests, drawn: np.ndarray | None
) -> dict[str, Any]:
    """Counts, accepted lengths, the verify rate and the speedup of some requests.

    `drawn` [samples, U] is how often each request is in each sample; None for no intervals.
    """
    turns, rounds, tokens = requests.turns, requests.rounds, requests.tokens
    first = np.arange(requests.at_least.shape[1]) == 0  # the prefill's step has one token
    own, other = requests.tokens_per_second, baseline.tokens_per_second
    drafted = requests.drafted.sum() > 0
    return {
        "requests": len(turns),
        "turns": int(turns.sum()),
        "rounds": int(rounds.sum()),
        "tokens": int(tokens.sum()),
        "drafted": int(requests.drafted.sum()),
        WITHOUT_PREFILL: _lengths(tokens, rounds, requests.at_least, drawn),
        WITH_PREFILL: _lengths(
            tokens + turns, rounds + turns, requests.at_least + turns[:, None] * first, drawn
        ),
        "verify_rate": _ratio(tokens, (requests.drafted + rounds) * drafted, drawn),
        "tokens_per_second": float(own.mean()) if own is not None and len(own) else None,
        "speedup": _make_unknown_figure()
        if own is None or other is None
        else _ratio(own, other, drawn),
    }


def _lengths(
    tokens: np.ndarray, steps: np.ndarray, at_least: np.ndarray, drawn: np.ndarray | None
) -> dict[str, Any]:
    """Accepted lengths [U] both ways, and the share of steps that reach each length."""
    return {
        POOLED: _ratio(tokens, steps, drawn),
        PER_REQUEST: _ratio(_divide(tokens, steps), (steps > 0).astype(np.int64), drawn),
        "by_length": [
            {
                "length": length + 1,
                "steps": int(at_least[:, length].sum()),
                "joint": _ratio(at_least[:, length], at_least[:, 0], drawn),
                "conditional": _ratio(
                    at_least[:, length], at_least[:, max(length - 1, 0)], drawn
                ),
            }
            for length in range(at_least.shape[1])
            if at_least[:, length].any()
        ],
    }  # fmt: skip


def _ratio(above: np.ndarray, below: np.ndarray, drawn: np.ndarray | None) -> Figure:
    """Σ above / Σ below [U], its interval over the samples in which Σ below is not 0."""
    if not below.sum():
        return _make_unknown_figure()
    value = float(above.sum() / below.sum())
    if drawn is None:
        return _make_unknown_figure() | {"value": value}
    totals = drawn @ below
    low, high = interval((drawn @ above)[totals > 0] / totals[totals > 0])
    return {"value": value, "low": low, "high": high}


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Element by element; 0 where `below` is 0."""
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)


def _make_unknown_figure() -> Figure:
    return {"value": None, "low": None, "high": None}
