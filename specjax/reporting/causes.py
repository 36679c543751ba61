"""Explains a strategy's speed, and estimates the gain of removing each of its costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specjax.reporting.summary import Strategies

BASELINE = "autoregressive"
"""Baseline of older results, which do not name one."""


IN_PLACE = "in place"
"""`predicted.priced` of rounds priced by decodes instead of by separately timed calls."""


def baseline(entry: Mapping[str, Any]) -> str:
    """Name of the strategy that `entry` is compared with."""
    return entry.get("baseline") or BASELINE


def group_by_baseline(strategies: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Strategies by their baseline, the fastest first; unused baselines are left out."""
    groups: dict[str, list[str]] = {}
    for name in sorted(strategies, key=lambda name: strategies[name]["ms_per_token"]):
        if baseline(strategies[name]) != name:
            groups.setdefault(baseline(strategies[name]), []).append(name)
    order = [name for name in (*strategies, *groups) if name in groups]
    return {name: groups[name] for name in order}


def is_sampled(entry: Mapping[str, Any]) -> bool:
    """Whether a strategy samples, so that runs need not agree."""
    return entry.get("identical_to_target") is None


def interval(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """The 95% interval of the speedup; None if there were too few batches."""
    low, high = entry.get("speedup_low"), entry.get("speedup_high")
    return None if low is None or high is None else (low, high)


def faster(entry: Mapping[str, Any]) -> bool | None:
    """Whether a strategy is faster than its baseline; None if the interval contains 1."""
    low, high = interval(entry) or (entry["speedup"], entry["speedup"])
    return None if low <= 1 <= high and low != high else entry["speedup"] > 1


def format_speedup(entry: Mapping[str, Any]) -> str:
    """The speedup with its interval."""
    bounds = interval(entry)
    spread = f" (95% interval {bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else ""
    return f"{entry['speedup']:.2f} times as fast as the target alone{spread}"


def milliseconds(entry: Mapping[str, Any]) -> str:
    """Time per token."""
    return f"{digits(entry['ms_per_token'])} ms per token"


def digits(value: float) -> str:
    """A number with three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{3 if value < 1 else 2}f}"


def names(all_names: Sequence[str], most: int = 4) -> str:
    """A list of names in backticks; after `most` of them only a count."""
    shown = [f"`{name}`" for name in all_names[:most]]
    if len(all_names) > most:
        shown.append(f"{len(all_names) - most} more")
    *first, last = shown
    return f"{', '.join(first)} and {last}" if first else last


AS_PREDICTED = 15
"""Largest error of a good prediction, in percent."""

LITTLE = 1.03
"""Smallest speedup that is worth a sentence."""

LEVERS = {
    "drafts": (
        "Rejected drafts",
        "if every drafted token had been accepted",
        "a drafter closer to the target, as one trained on its texts, or shorter drafts where it is"
        " unsure",
    ),
    "checks": (
        "Checking the drafts",
        "if checking a draft cost no more than one step of the target",
        "shorter drafts, or a device on which a call of several tokens costs little more than one"
        " of a single token, as accelerators do in small batches",
    ),
    "drafter": (
        "The drafter",
        "if drafting were free",
        "a smaller drafter, or shorter drafts",
    ),
    "fixed": (
        "Fixed cost of every text",
        "without reading prompts and starting programs, on both sides",
        "longer texts, or fewer and larger batches",
    ),
    "rest": (
        "Work between the model calls",
        "without the work between model calls",
        "larger models or larger batches, where it matters less",
    ),
}
"""Costs, the condition without each, and advice."""


def why_not_faster(strategies: Strategies) -> tuple[str, list[str]]:
    """The costs of the fastest strategy that keeps the target's output, or of the fastest."""
    groups = group_by_baseline(strategies)
    if not groups:
        return "Nothing was drafted", ["Add a strategy with a drafter to see what it gains."]
    others = next(iter(groups.values()))
    name = next((name for name in others if strategies[name]["lossless"]), others[0])
    entry = strategies[name]
    gains = what_if(entry, strategies.get(baseline(entry)))
    said = [
        _describe_acceptance(name, entry),
        *_round(entry),
        *_shares(entry),
        *_describe_prediction(entry),
    ]
    return _short(entry, gains), [*said, *_help(gains, entry["speedup"])]


def _describe_acceptance(name: str, entry: Mapping[str, Any]) -> str:
    if not entry["tokens_per_target_call"]:
        return f"`{name}`, the strategy explained here, never called the target."
    given = f"a call of the target gives {entry['tokens_per_target_call']:.2f} tokens instead of 1"
    tested = (entry.get("acceptance") or {}).get("tested", entry.get("acceptance_rate"))
    if not tested:
        return f"With `{name}`, the strategy explained here, {given}."
    return f"`{name}` had {entry['acceptance_rate']:.1%} of its tested drafts accepted: {given}."


def _round(entry: Mapping[str, Any]) -> list[str]:
    """The cost of a round: tokens over cost are the measured speedup."""
    loop = (entry.get("predicted") or {}).get("measured")
    tokens = entry["tokens_per_target_call"]
    if not loop or not tokens:
        return []
    cost = tokens / loop
    return [
        f"But a round, which drafts and checks, takes as long as {cost:.2f} single steps of the"
        f" target: {tokens:.2f} / {cost:.2f} makes {loop:.2f} times as fast, and"
        f" {entry['speedup']:.2f} with the fixed cost of every text."
    ]


def _parts(entry: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by field of `time`, none below zero; empty where calls have no price.

    Calls that took longer when timed alone are scaled to the time of the run.
    """
    time = entry.get("time") or {}
    if not time.get("total") or time.get("target") is None:
        return {}
    calls = time["target"] + time["drafter"]
    scale = min(1.0, (time["total"] - time["fixed"]) / calls) if calls else 1.0
    return {
        "target": time["target"] * scale,
        "drafter": time["drafter"] * scale,
        "fixed": time["fixed"],
        "rest": max(time["rest"], 0.0),
    }


def _shares(entry: Mapping[str, Any]) -> list[str]:
    places = {
        "target": "in the target",
        "drafter": "in the drafter",
        "fixed": "for reading prompts and starting programs",
        "rest": "between the model calls",
    }
    parts = _parts(entry)
    total = sum(parts.values())
    shares = [f"{100 * s / total:.0f}% {places[part]}" for part, s in parts.items() if s > 0]
    return [f"Its time goes by {', '.join(shares)}."] if shares else []


def _describe_prediction(entry: Mapping[str, Any]) -> list[str]:
    """Compares prediction and measurement, and says how rounds were priced."""
    predicted = entry.get("predicted") or {}
    error, expected = predicted.get("error_percent"), predicted.get("with_v")
    if error is None or expected is None:
        return []
    in_place = predicted.get("priced") == IN_PLACE
    way = "Rounds priced in place, by other decodes," if in_place else "Calls timed one by one"
    said = (
        f"{way} predict {expected:.2f} for its rounds, {abs(error):.0f}%"
        f" {'above' if error > 0 else 'below'} the measured {predicted['measured']:.2f}"
    )
    doubt = "" if abs(error) <= AS_PREDICTED else ", so that what follows is less sure"
    return [f"{said}{doubt}.", *_calls_alone(predicted)]


def _calls_alone(predicted: Mapping[str, Any]) -> list[str]:
    """Compares separately timed calls with a round in the loop; empty if not measured."""
    if predicted.get("priced") != IN_PLACE:
        return []
    return [
        f"A round takes {predicted['round_ms']:.2f} ms in place, its calls timed one by one"
        f" {predicted['calls_ms']:.2f} ms: they predict {predicted['calls_alone']:.2f}."
    ]


def what_if(entry: Mapping[str, Any], base: Mapping[str, Any] | None) -> dict[str, float]:
    """Speedups if one cost vanished and all others stayed, by `LEVERS`, the largest first."""
    parts = _parts(entry)
    total = sum(parts.values())
    saved = {
        "drafts": _compute_dropped_share(entry) * (total - parts.get("fixed", 0.0)),
        "checks": _widths(entry, base) * parts.get("target", 0.0),
        "drafter": parts.get("drafter", 0.0),
        "rest": parts.get("rest", 0.0),
    }
    gains = {
        lever: entry["speedup"] * total / (total - seconds)
        for lever, seconds in saved.items()
        if 0 < seconds < total
    }
    loop = (entry.get("predicted") or {}).get("measured")
    if loop:
        gains["fixed"] = loop  # the baseline loses its fixed cost too
    return dict(sorted(gains.items(), key=lambda gain: -gain[1]))


def _compute_dropped_share(entry: Mapping[str, Any]) -> float:
    """Share of the rounds that only exist because drafted tokens were rejected."""
    dropped = (entry.get("handovers") or {}).get("dropped") or 0
    return dropped / (entry["tokens"] + dropped)


def _widths(entry: Mapping[str, Any], base: Mapping[str, Any] | None) -> float:
    """Share of the target's time in excess of a baseline round.

    Baselines feed one token a round.
    """
    own, baseline = _target_round(entry), _target_round(base or {})
    return max(1 - baseline / own, 0.0) if own and baseline else 0.0


def _target_round(entry: Mapping[str, Any]) -> float | None:
    """Seconds in the target for each round."""
    seconds = (entry.get("time") or {}).get("target")
    count = (entry.get("rounds") or {}).get("count")
    return seconds / count if seconds and count else None


def _short(entry: Mapping[str, Any], gains: Mapping[str, float]) -> str:
    best = next(iter(gains), None)
    if best is None or gains[best] < LITTLE * entry["speedup"]:
        return f"{entry['tokens_per_target_call']:.2f} tokens for each call of the target"
    return f"{LEVERS[best][0]}: most of what is left to gain"


def _help(gains: Mapping[str, float], speedup: float) -> list[str]:
    """Estimates of the two largest costs, with advice about each."""
    said = []
    for lever in [lever for lever in gains if gains[lever] > LITTLE * speedup][:2]:
        _, condition, advice = LEVERS[lever]
        said.append(
            f"It would be about {gains[lever]:.2f} times as fast {condition}. What helps: {advice}."
        )
    return said
