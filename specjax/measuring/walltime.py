"""Predicted against measured speedups, and where the time of a strategy went."""

from __future__ import annotations

from specjax.decoding.state import Decoder
from specjax.decoding.summary import Statistics
from specjax.measuring.cost import Costs
from specjax.metrics.traces import Rounds


def priced(decoder: Decoder) -> bool:
    """Whether what a round costs is known before it, and is what the formulas say."""
    reader = decoder.reader
    return reader.exact and not reader.overrides and not decoder.drafter.members


def predicted(
    costs: Costs, statistics: Statistics, decoder: Decoder, measured: float
) -> dict[str, float | None]:
    """Two predictions beside the measured speedup of the decode loop.

    The formulas know rounds only, so `measured` must leave out what every text costs once, prompt
    reading and dispatch. What a token costs under CALM is known only when it has left the decoder,
    and what a round costs with one of several arms only when it is chosen; where all calls of the
    target feed alike (`readers.Invariant`) none has the formulas' width: nothing is predicted.
    Theorem 3.8 is of chains: of a tree it says nothing.
    """
    if not priced(decoder):
        return dict.fromkeys(("theorem_3_8", "with_v", "error_percent")) | {"measured": measured}
    with_v = costs.predicted_speedup(statistics, decoder, decoder.target)
    paper = None
    if not decoder.drafter.spec.trees:
        paper = costs.theoretical_speedup(statistics, decoder, decoder.target)
    return {
        "theorem_3_8": paper,
        "with_v": with_v,
        "measured": measured,
        "error_percent": 100 * (with_v / measured - 1),
    }


def time_spent(
    costs: Costs,
    rounds: Rounds,
    statistics: Statistics,
    decoder: Decoder,
    total: float,
    fixed: float,
) -> dict[str, float | None]:
    """Seconds of `total` in calls of the target and of the drafter, and the remainder.

    Calls of each width times their measured cost; `fixed` is what the texts cost once. The rest is
    the drafter's own work, the rule, the bookkeeping, and the error of the costs: it can be
    negative. Where nothing is `predicted` calls have no price (None), and the rest is all of the
    loop.
    """
    if not priced(decoder):
        parts = {"target": None, "drafter": None if decoder.drafter.members else 0.0}
        return {"total": total, **parts, "rest": total - fixed, "fixed": fixed}
    review = costs.verification_ms(statistics.widths, decoder.reader, decoder.target)
    target = rounds.runs[decoder.target] * review / 1e3
    drafter = costs.drafting_ms(decoder.drafter, rounds.turns, rounds.runs) / 1e3
    return {
        "total": total,
        "target": target,
        "drafter": drafter,
        "rest": total - fixed - target - drafter,
        "fixed": fixed,
    }
