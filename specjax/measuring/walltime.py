"""Compares predicted and measured speedups, and splits the time of a strategy."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.decoding.state import Decoder
from specjax.decoding.summary import Statistics
from specjax.measuring.cost import Costs
from specjax.measuring.in_place import RoundPrice, Work, calls_ms, milliseconds_per_token

IN_PLACE, ALONE = "in place", "alone"
"""Ways of pricing a round: by decodes, or by its calls timed in loops of their own."""


def can_be_priced(decoder: Decoder) -> bool:
    """Whether the cost of a round is known in advance and follows the formulas."""
    reader = decoder.reader
    return reader.exact and not reader.overrides and not decoder.drafter.choice


@dataclasses.dataclass(frozen=True)
class PricedStrategy:
    """A strategy's decodes, the cost of its calls, and the price of its rounds if they have one."""

    costs: Costs
    decoder: Decoder
    work: Work
    price: RoundPrice | None = None

    @property
    def milliseconds_per_token(self) -> float | None:
        """Milliseconds per token without fixed costs of a text; None without a price."""
        if self.price is None:
            return None
        given = self.costs, self.work, self.decoder, self.decoder.target
        return milliseconds_per_token(self.price, *given)


def predict_speedups(
    statistics: Statistics, own: PricedStrategy, base: PricedStrategy, measured: float
) -> dict[str, Any]:
    """Predicted speedups, the measured speedup of the decode loop, and how rounds were priced.

    The formulas only cover rounds, so `measured` must leave out the fixed costs of a text, prefill
    and dispatch. Nothing is predicted under CALM, where the cost of a token is known only after it
    left the decoder; with several arms, where the cost of a round depends on the chosen arm; and if
    all target calls feed equally many tokens (`InvariantReader`), which is not the width of
    the formulas. Theorem 3.8 does not apply to trees.
    """
    costs, decoder = own.costs, own.decoder
    if not can_be_priced(decoder):
        return dict.fromkeys(UNPRICED) | {"measured": measured}
    baseline = costs.predicted_speedup(statistics, decoder, decoder.target)
    in_place = _in_place(own, base)
    with_v = baseline if in_place is None else in_place
    paper = None
    if not decoder.drafter.spec.tree:
        paper = costs.theoretical_speedup(statistics, decoder, decoder.target)
    return {
        "theorem_3_8": paper,
        "with_v": with_v,
        "calls_alone": baseline,
        "priced": ALONE if in_place is None else IN_PLACE,
        "round_ms": own.price.round_ms if own.price else None,
        "calls_ms": own.price.calls_ms if own.price else None,
        "measured": measured,
        "error_percent": 100 * (with_v / measured - 1),
    }


UNPRICED = (
    "theorem_3_8",
    "with_v",
    "calls_alone",
    "priced",
    "round_ms",
    "calls_ms",
    "error_percent",
)
"""Unknown figures of strategies that are not `can_be_priced`."""


def _in_place(own: PricedStrategy, base: PricedStrategy) -> float | None:
    """The speedup by rounds priced in place; None if either side has no price."""
    took, baseline = own.milliseconds_per_token, base.milliseconds_per_token
    return baseline / took if took and baseline and took > 0 else None


def time_spent(own: PricedStrategy, total: float, fixed: float) -> dict[str, float | None]:
    """Seconds of `total` in calls of the target and of the drafter, and the remainder.

    Calls of each width times their cost when timed alone; `fixed` is what the texts cost once. The
    rest is the drafter's own work, the rule, the bookkeeping, and what calls cost more or less
    between others than alone: it can be negative. Where nothing is `predict_speedups` calls have
    no price
    (None), and the rest is all of the loop.
    """
    costs, work, decoder = own.costs, own.work, own.decoder
    if not can_be_priced(decoder):
        parts = {"target": None, "drafter": None if decoder.drafter.choice else 0.0}
        return {"total": total, **parts, "rest": total - fixed, "fixed": fixed}
    drafter = costs.drafting_ms(decoder.drafter, work.rounds, work.runs) / 1e3
    target = calls_ms(costs, work, decoder, decoder.target) / 1e3 - drafter
    return {
        "total": total,
        "target": target,
        "drafter": drafter,
        "rest": total - fixed - target - drafter,
        "fixed": fixed,
    }
