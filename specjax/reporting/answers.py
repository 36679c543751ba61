"""Answers to three questions about a run: which is fastest, is it exact, why not faster.

Sentences from results.json; names are in backticks, which the page renders as code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specjax.reporting.causes import (
    baseline,
    digits,
    faster,
    format_speedup,
    group_by_baseline,
    interval,
    is_sampled,
    milliseconds,
    names,
    why_not_faster,
)
from specjax.reporting.summary import Strategies, main_metric

MOST = 4
"""Most strategies with their own sentence; the tables list all."""


class Answer(NamedTuple):
    """A question, its answer in a few words, and the sentences that explain it."""

    question: str
    short: str
    sentences: Sequence[str]


def answers(results: Mapping[str, Any]) -> list[Answer]:
    """The three questions and answers, in order."""
    strategies = results["strategies"]
    return [
        Answer("Which is fastest?", *fastest(strategies)),
        Answer("Is it exact?", *exact(strategies, results["data"]["examples"])),
        Answer("Why not faster?", *why_not_faster(strategies)),
    ]


def fastest(strategies: Strategies) -> tuple[str, list[str]]:
    """The fastest strategies over each baseline, lossless ones first."""
    groups = group_by_baseline(strategies)
    if not groups:
        times = [f"{milliseconds(one)} with `{name}`" for name, one in strategies.items()]
        return "Nothing was compared", [f"Only the target alone was measured: {', '.join(times)}."]
    said = [sentence for base in groups for sentence in _against(strategies, base, groups)]
    return _winner(strategies, *next(iter(groups.items()))), said


def _winner(strategies: Strategies, base: str, others: Sequence[str]) -> str:
    """The headline: the best lossless strategy if there is one."""
    kept = [name for name in others if strategies[name]["lossless"]]
    best = (kept or others)[0]
    pace = f"{strategies[best]['speedup']:.2f} times as fast as the target alone"
    return {
        True: f"`{best}`: {pace}{'' if kept else ', but lossy'}",
        None: f"No clear winner: `{best}` is {pace}, within the noise",
        False: f"The target alone, `{base}`",
    }[faster(strategies[best])]


def _against(strategies: Strategies, base: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Sentences about the strategies of one baseline."""
    others = groups[base]
    scope = f"Against `{base}`{_choice(strategies, base)}: " if len(groups) > 1 else ""
    kept = [name for name in others if strategies[name]["lossless"]]
    lossy = [name for name in others if not strategies[name]["lossless"]]
    if not kept:
        own = f"the fastest is {_pace(strategies, lossy[0], base)}"
        return [_capitalize(f"{scope}all strategies may change the text; {own}.")]
    said = [_capitalize(scope + _best(strategies, kept[0], base)), *_rivals(strategies, kept)]
    if lossy and strategies[lossy[0]]["ms_per_token"] < strategies[kept[0]]["ms_per_token"]:
        pace = f"`{lossy[0]}`, {format_speedup(strategies[lossy[0]])}"
        said.append(f"Fastest of all is {pace}, but it may change the text.")
    return said


def _capitalize(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _choice(strategies: Strategies, base: str) -> str:
    drawn = base in strategies and is_sampled(strategies[base])
    return ", which draws tokens at random" if drawn else ""


def _best(strategies: Strategies, name: str, base: str) -> str:
    """The fastest lossless strategy, and whether it is faster than its baseline."""
    entry = strategies[name]
    if faster(entry) is False:
        baseline = f" ({milliseconds(strategies[base])})" if base in strategies else ""
        return (
            f"no strategy that keeps the target's output is faster than the target alone{baseline};"
            f" the best of them, `{name}`, is {format_speedup(entry)}."
        )
    unsure = "; the interval holds 1, so it may be no faster" * (faster(entry) is None)
    pace = _pace(strategies, name, base)
    return f"the fastest strategy that keeps the target's output is {pace}{unsure}."


def _pace(strategies: Strategies, name: str, base: str) -> str:
    entry, baseline = strategies[name], strategies.get(base)
    instead = f" instead of {digits(baseline['ms_per_token'])}" if baseline else ""
    return f"`{name}`: {format_speedup(entry)}, {milliseconds(entry)}{instead}"


def _rivals(strategies: Strategies, kept: Sequence[str]) -> list[str]:
    """Lossless strategies whose intervals overlap that of the best one."""
    best = interval(strategies[kept[0]])
    if best is None:
        return []
    near = [name for name in kept[1:] if (interval(strategies[name]) or (0, 0))[1] > best[0]]
    if not near:
        return []
    return [
        f"Its interval overlaps {'that' if len(near) == 1 else 'those'} of {names(near)}:"
        " a longer run would tell them apart."
    ]


def exact(strategies: Strategies, examples: int) -> tuple[str, list[str]]:
    """Token differences of lossless strategies, and quality loss of lossy ones."""
    drafting = [name for others in group_by_baseline(strategies).values() for name in others]
    if not drafting:
        return "Yes, nothing was drafted", ["Every token is the target's own."]
    kept = [name for name in drafting if strategies[name]["lossless"]]
    lossy = [name for name in drafting if not strategies[name]["lossless"]]
    greedy = {n: strategies[n] for n in kept if not is_sampled(strategies[n])}
    drawn = [n for n in kept if is_sampled(strategies[n])]
    said = [
        *_same(greedy, examples),
        *_describe_differences(greedy, examples),
        *_describe_sampled(drawn),
    ]
    said += [_lossy(strategies, name) for name in lossy[:MOST]]
    if len(lossy) > MOST:
        said.append(f"The table has {len(lossy) - MOST} more lossy strategies.")
    return _verdict(greedy, drawn, lossy, examples), said


def _verdict(greedy: Strategies, drawn: Sequence[str], lossy: Sequence[str], examples: int) -> str:
    if not greedy and not drawn:
        return "No, all strategies are lossy"
    differing = [_count_different(entry, examples) for entry in greedy.values()]
    elsewhere = [count - (ties or 0) for count, ties in differing]
    if any(elsewhere):
        kept = "Not in every example"
    elif any(count for count, _ in differing):
        kept = "Yes, up to rounding"
    else:
        kept = "Yes, token for token" if greedy else "Yes, by its distribution"
    return kept + (f"; {names(lossy, 1)} may differ" if lossy else "")


def _count_different(entry: Mapping[str, Any], examples: int) -> tuple[int, int | None]:
    """Examples with other tokens than the target's, and those at near ties (None: not counted)."""
    if entry.get("differing") is None:
        return round((1 - entry["identical_to_target"]) * examples), None
    return entry["differing"], entry.get("near_ties")


def _same(greedy: Strategies, examples: int) -> list[str]:
    same = [name for name, entry in greedy.items() if not _count_different(entry, examples)[0]]
    if not same:
        return []
    return [f"{names(same, MOST)} gave the target's own tokens in all {examples} examples."]


def _describe_differences(greedy: Strategies, examples: int) -> list[str]:
    said = []
    for name, entry in greedy.items():
        count, ties = _count_different(entry, examples)
        if count:
            where = "" if ties is None else _ties(count, ties)
            said.append(f"`{name}` has other tokens in {count} of {examples} examples{where}.")
    return said


def _ties(count: int, ties: int) -> str:
    at = "at near ties, where rounding alone decides between two tokens of the target"
    if ties == count:
        return f", all {at}"
    return (
        f", {ties} {at}, and {count - ties} elsewhere: in half precision a few are usual,"
        " many would mean a mistake"
    )


def _describe_sampled(drawn: Sequence[str]) -> list[str]:
    if not drawn:
        return []
    verb, whose = ("draws", "its") if len(drawn) == 1 else ("draw", "their")
    return [
        f"{names(drawn, MOST)} {verb} tokens at random, so no two runs need agree; {whose} rule"
        " keeps the target's distribution by construction."
    ]


def _lossy(strategies: Strategies, name: str) -> str:
    """Changed texts of a lossy strategy, and its score by the first metric."""
    entry = strategies[name]
    same = entry.get("identical_to_target")
    texts = "" if same is None else f" {same:.1%} of its texts are the target's own;"
    metric = main_metric(strategies)
    base = strategies.get(baseline(entry))
    if metric is None or base is None or metric not in entry["quality"]:
        return f"`{name}` may change the text:{texts} its quality was not measured."
    own, target_only = entry["quality"][metric], base["quality"][metric]
    score = f"{metric} is {own:.2f} against {target_only:.2f} ({own - target_only:+.2f})"
    return f"`{name}` may change the text:{texts} {score}."
