"""Strategies that choose an arm for each text, or for each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specjax.contracts.fields import Number
from specjax.decoding.strategy import DRAWN, Strategy, drawing_fields
from specjax.selection import switching
from specjax.selection.arms import Arm, Arms
from specjax.selection.choosing import POLICY, Chooser, Logits
from specjax.selection.selected import SelectedArms
from specjax.selection.switched import SwitchedArms
from specjax.verification.fitted import FittedReader, list_doubling_widths
from specjax.verification.whole import WholeReader


def make_selected(arms: Mapping[str, Strategy], chooser: Chooser) -> Strategy:
    """The strategy that decodes each text with the arm that `chooser` selects.

    Sampling settings are those of the arms.

    Raises:
      ValueError: when the arms cannot be combined.
    """
    made = SelectedArms(_arms(arms), chooser)
    widths = {width for arm in arms.values() for width in arm.target_widths}
    return _of(made, arms, _numbers(arms), widths)


def make_switched(
    arms: Mapping[str, Strategy],
    costs: Sequence[float],
    *,
    lengths: Sequence[int] = (),
    bandit: str = switching.UCB,
    logits: Logits | None = None,
    table: str = POLICY,
    **numbers: float,
) -> Strategy:
    """The strategy that chooses an arm and a draft length at every round (`switching`).

    Args:
      arms: by name, the strategies that an arm may draft as.
      costs: time of each arm's drafter step in target steps, 0 for drafters without a model.
      lengths: of drafts; by default 1, 3, 7, ... up to the longest of the arms.
      bandit: form of optimism, one of `switching.KINDS`.
      logits: scores of a policy on the parameter tree `table`, to start from.
      numbers: others than the defaults of `switching.DEFAULTS`.

    Raises:
      ValueError: when the arms cannot be combined, or costs do not match them.
    """
    if len(costs) != len(arms):
        raise ValueError(f"costs is {tuple(costs)}; it must have one number for each arm")
    if bandit not in switching.KINDS:
        known = ", ".join(switching.KINDS)
        raise ValueError(f"bandit is {bandit!r}; it must be one of {known}")
    members = _arms(arms)
    longest = max(arm.drafter.spec.width for arm in members)
    lengths = tuple(sorted(lengths or list_doubling_widths(longest)))
    made = SwitchedArms(members, lengths, bandit == switching.THOMPSON, logits, table)
    widths = {length for _, length in made.choices}
    widths |= {0 for drafter in made.drafters if not drafter.spec.always}
    own = {switching.COSTS: tuple(map(float, costs)), **switching.DEFAULTS, **numbers}
    return _of(made, arms, _numbers(arms) | own, widths | {made.spec.width})


def _arms(strategies: Mapping[str, Strategy]) -> tuple[Arm, ...]:
    """The arms of strategies, if they can be combined."""
    every = tuple(strategies.values())
    for name, strategy in strategies.items():
        if not strategy.lossless:
            raise ValueError(f"arm {name!r} is not lossless; arms must be")
        if isinstance(strategy.drafter, Arms):
            raise ValueError(f"arm {name!r} chooses among arms itself; arms must be plain drafters")
        if strategy.drafter.spec.tree:
            raise ValueError(f"arm {name!r} drafts trees; arms must draft one text each")
        if strategy.settings != every[0].settings:
            raise ValueError(
                f"arm {name!r} samples with {', '.join(DRAWN)} of {strategy.settings},"
                f" the first with {every[0].settings}; they must be equal"
            )
    return tuple(Arm(name, arm.drafter, arm.reader) for name, arm in strategies.items())


def _numbers(arms: Mapping[str, Strategy]) -> dict[str, Number]:
    """The numbers of all arms; they share options, so one name has one value."""
    shared: dict[str, Number] = {}
    for name, strategy in arms.items():
        for option, value in strategy.numbers:
            if shared.setdefault(option, value) != value:
                raise ValueError(
                    f"{option} of arm {name!r} is {value}, of another arm {shared[option]};"
                    " arms must share it"
                )
    return shared


def _of(
    drafter: Arms, arms: Mapping[str, Strategy], numbers: Mapping[str, Number], widths: set[int]
) -> Strategy:
    # The rule of an arm with drafts: the target alone needs none.
    first = max(arms.values(), key=lambda arm: arm.drafter.spec.width > 0)
    reader = (
        FittedReader(tuple(sorted(widths))) if len(widths) > 1 else drafter.reader or WholeReader()
    )
    drawn = drawing_fields(first.settings)
    return Strategy(drafter, first.rule, numbers=tuple(numbers.items()), reader=reader, **drawn)
