"""Figures of a strategy from sums over rows, for decodes whose traces are not kept.

Sums are nested dictionaries and lists of numbers, as JSON has them: those of some rows and those of
others add up to those of all (`add_sums`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from specjax.decoding.state import Decoder, Generation
from specjax.decoding.summary import Statistics, summarize
from specjax.metrics.bild_counters import count_handovers, handover_rates, replaced_tokens
from specjax.metrics.traces import (
    Rounds,
    accept_rate,
    arm_figures,
    collect_rounds,
    count_acceptance,
    describe_acceptance,
    part_of_text,
    round_figures,
)
from specjax.metrics.trees import add_rates, by_rank

Sums = dict[str, Any]


def add_sums(one: Any, other: Any) -> Any:
    """The sums of two sets of rows; a number that only one of them has counts as 0 in the other."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Mapping):
        return {name: add_sums(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(one, list):
        return list(itertools.starmap(add_sums, itertools.zip_longest(one, other)))
    return one + other


def sum_rows(
    decoder: Decoder, traces: Sequence[tuple[Generation, int]], arms: Sequence[str]
) -> Sums:
    """The sums of the first `rows` rows of every (generation with host arrays, rows).

    `arms` names the arms of a strategy that has them.
    """
    rounds, parents = collect_rounds(traces), decoder.drafter.spec.parents
    handovers = count_handovers(rounds, replaced_tokens(traces), decoder.target)
    part = part_of_text(decoder.max_new_tokens)
    return {
        "statistics": _statistics_as_sums(summarize(decoder, traces)),
        "acceptance": count_acceptance(rounds, part),
        "rounds": round_figures(rounds),
        "handovers": handovers,
        **({"layers": int(rounds.layers[rounds.ran].sum())} if rounds.layers is not None else {}),
        **({"ranks": _count_ranks(traces, parents)} if parents else {}),
        **({"arms": _count_arms(rounds, arms)} if rounds.arm is not None else {}),
    }


def _statistics_as_sums(statistics: Statistics) -> Sums:
    """The fields of statistics; keys of JSON are texts."""
    fields = dataclasses.asdict(statistics)
    return fields | {"widths": {str(width): n for width, n in statistics.widths.items()}}


def _count_ranks(traces: Sequence[tuple[Generation, int]], parents: Sequence[int]) -> Sums:
    tables = by_rank(traces, parents)
    return {name: tables[name] for name in ("tried", "stood")}


def _count_arms(rounds: Rounds, names: Sequence[str]) -> Sums:
    figures = arm_figures(rounds, names)
    return {
        name: {field: n for field, n in entry.items() if field != "accept_rate"}
        for name, entry in figures.items()
    }


def find_statistics(sums: Mapping[str, Any]) -> Statistics:
    """The statistics of all rows."""
    fields = sums["statistics"]
    widths = {int(width): n for width, n in fields["widths"].items()}
    return Statistics(**fields | {"widths": dict(sorted(widths.items()))})


def describe_sums(decoder: Decoder, sums: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of all rows, by their names in results.json."""
    stats, counts = find_statistics(sums), sums["handovers"]
    handovers = counts | handover_rates(counts, stats.tokens)
    layers, ranks, arms = (sums.get(name) for name in ("layers", "ranks", "arms"))
    sizes = sums["rounds"]["tokens_per_round"]
    by_size = {size: sizes[size] for size in sorted(sizes, key=int)}
    return {
        "tokens": stats.tokens,
        "acceptance_rate": stats.acceptance_rate,
        "tokens_per_target_call": stats.tokens_per_target_call,
        "calls": stats.calls,
        "layers_per_token": layers / stats.rounds if layers else None,
        "fallback_percent": handovers["fallback_percent"],
        "rollback_percent": handovers["rollback_percent"],
        "handovers": handovers,
        "acceptance": describe_acceptance(sums["acceptance"], part_of_text(decoder.max_new_tokens)),
        "acceptance_by_rank": add_rates(**ranks) if ranks else None,
        "arms": arms and {name: _add_accept_rate(entry) for name, entry in arms.items()},
        "rounds": sums["rounds"] | {"tokens_per_round": by_size},
    }


def _add_accept_rate(arm: Mapping[str, int]) -> dict[str, Any]:
    return {**arm, "accept_rate": accept_rate(arm["accepted"], arm["drafted"])}
