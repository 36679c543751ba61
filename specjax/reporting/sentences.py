"""Words for figures of results.json that several sentences need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BASELINE = "autoregressive"
"""What older results, which do not name baselines, are compared with."""


IN_PLACE = "in place"
"""`predicted.priced` of rounds priced by decodes instead of by their calls, timed alone."""


def baseline(entry: Mapping[str, Any]) -> str:
    """Name of the strategy that `entry` is compared with."""
    return entry.get("baseline") or BASELINE


def compared(strategies: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Strategies by their baseline, the fastest first; baselines that nobody has are left out."""
    groups: dict[str, list[str]] = {}
    for name in sorted(strategies, key=lambda name: strategies[name]["ms_per_token"]):
        if baseline(strategies[name]) != name:
            groups.setdefault(baseline(strategies[name]), []).append(name)
    order = [name for name in (*strategies, *groups) if name in groups]
    return {name: groups[name] for name in order}


def sampled(entry: Mapping[str, Any]) -> bool:
    """Whether its tokens are drawn at random, so that no two runs need agree."""
    return entry.get("identical_to_target") is None


def interval(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """The 95% interval of the speedup; None where there were too few batches."""
    low, high = entry.get("speedup_low"), entry.get("speedup_high")
    return None if low is None or high is None else (low, high)


def faster(entry: Mapping[str, Any]) -> bool | None:
    """Whether it is faster than its baseline; None when the interval holds both."""
    low, high = interval(entry) or (entry["speedup"], entry["speedup"])
    return None if low <= 1 <= high and low != high else entry["speedup"] > 1


def rated(entry: Mapping[str, Any]) -> str:
    """The speedup with its interval."""
    bounds = interval(entry)
    spread = f" (95% interval {bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else ""
    return f"{entry['speedup']:.2f} times as fast as the target alone{spread}"


def milliseconds(entry: Mapping[str, Any]) -> str:
    """Time per token."""
    return f"{digits(entry['ms_per_token'])} ms per token"


def digits(value: float) -> str:
    """A number to three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{3 if value < 1 else 2}f}"


def names(all_names: Sequence[str], most: int = 4) -> str:
    """Names in backticks as a list; behind `most` of them the others are counted."""
    shown = [f"`{name}`" for name in all_names[:most]]
    if len(all_names) > most:
        shown.append(f"{len(all_names) - most} more")
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last
