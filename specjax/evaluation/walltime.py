"""Predicted against measured speedups, and where the time of a strategy went."""

from __future__ import annotations

from specjax.decoding.state import Decoder
from specjax.decoding.summary import Statistics
from specjax.drafting.selected import Arms
from specjax.evaluation.cost import Costs
from specjax.evaluation.traces import Rounds


def predicted(
    costs: Costs, statistics: Statistics, decoder: Decoder, measured: float
) -> dict[str, float | None]:
    """Two predictions beside the measured speedup of the decode loop.

    The formulas know rounds only, so `measured` must leave out what every text costs once, prompt
    reading and dispatch. What a token costs under CALM is known only when it has left the decoder,
    and what a round costs with one of several arms only when it is chosen; where all calls of the
    target feed alike (`Decoder.invariant`) none has the formulas' width: nothing is predicted.
    """
    if decoder.calm or decoder.invariant or isinstance(decoder.drafter, Arms):
        return dict.fromkeys(("theorem_3_8", "with_v", "error_percent")) | {"measured": measured}
    with_v = costs.predicted_speedup(statistics, decoder.drafter, decoder.target)
    return {
        "theorem_3_8": costs.theoretical_speedup(statistics, decoder.drafter, decoder.target),
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
    if decoder.calm or decoder.invariant or isinstance(decoder.drafter, Arms):
        parts = {"target": None, "drafter": 0.0 if decoder.calm else None}
        return {"total": total, **parts, "rest": total - fixed, "fixed": fixed}
    review = costs.verification_ms(statistics.widths, decoder.drafter, decoder.target)
    target = rounds.runs[decoder.target] * review / 1e3
    drafter = costs.drafting_ms(decoder.drafter, rounds.turns, rounds.runs) / 1e3
    return {
        "total": total,
        "target": target,
        "drafter": drafter,
        "rest": total - fixed - target - drafter,
        "fixed": fixed,
    }
