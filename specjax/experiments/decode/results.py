"""Writes the results of a decode experiment into its workdir."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from specjax.decoding.strategy import Strategy
from specjax.decoding.summary import summarize
from specjax.experiments.config.fields import checkpoint_dtype
from specjax.experiments.decode.data import collect_references
from specjax.experiments.decode.evaluation import evaluate_strategies
from specjax.experiments.decode.model_costs import (
    cost_entries,
    models,
    one_token_steps,
    part_prices,
    prompt_lengths,
    rooflines,
)
from specjax.experiments.decode.records import (
    Prices,
    StrategyMeasurement,
    fetch_trace,
    fixed_seconds,
    loop_seconds_per_token,
    median_ms_per_token,
    seconds_per_token,
    total_seconds,
)
from specjax.experiments.decode.session import Session
from specjax.experiments.decode.show import show
from specjax.experiments.decode.strategies import BASELINE
from specjax.experiments.workdir import file_stamps
from specjax.measuring.cost import standardized_walltime_improvement
from specjax.measuring.environment import environment
from specjax.measuring.in_place import sum_work
from specjax.measuring.walltime import PricedStrategy, predict_speedups, time_spent
from specjax.metrics.bild_counters import handovers, replaced_tokens
from specjax.metrics.groups import add_speedups, by_group
from specjax.metrics.metric import get_metric
from specjax.metrics.operations import operations
from specjax.metrics.statistics import draws, interval
from specjax.metrics.statistics import seconds_per_token as drawn_times
from specjax.metrics.text import rounds_of_text
from specjax.metrics.ties import divergence, near_ties
from specjax.metrics.traces import (
    acceptance,
    arm_figures,
    collect_rounds,
    count_text_arms,
    round_figures,
)
from specjax.metrics.trees import by_rank
from specjax.reporting.exports import write_tables
from specjax.reporting.report import write_report
from specjax.runtime.files import replacing
from specjax.runtime.json_files import write_json, write_jsonl
from specjax.selection.arms import Arms

TEXTS = 5
"""Number of texts that the report shows round by round."""


def write(
    session: Session, measured: dict[str, StrategyMeasurement], prices: Prices, workdir: Path
) -> dict[str, Any]:
    """Writes results.json, outputs.jsonl, trace.npz, the report and tables; prints a table."""
    target = session.generators[BASELINE].decoder.target
    steps = one_token_steps(prices.calls)
    outputs = {
        name: session.generators[name].prompts.texts(entry.tokens)
        for name, entry in measured.items()
    }
    content = {
        **describe_experiment(session.config, session.metric, len(session.examples)),
        "models": models(session, steps),
        "strategies": {
            name: strategy_entry(session, name, measured, prices, outputs[name])
            for name in measured
        },
        "costs": cost_entries(prices.calls, target),
        "roofline": rooflines(session, collect_rounds(measured[BASELINE].traces), steps),
        "texts": texts(session, measured),
        "groups": groups(session, measured),
        "evaluation": evaluate_strategies(
            session,
            measured,
            {
                name: find_baseline(session.strategies[name], session.strategies)
                for name in measured
            },
        ),
    }
    write_jsonl(workdir / "outputs.jsonl", output_rows(session, measured, outputs))
    write_trace(workdir / "trace.npz", measured)
    write_report(content, workdir)
    write_tables(content, workdir)
    write_json(workdir / "results.json", content)
    show(content, workdir)
    return content


def describe_experiment(config: ConfigDict, metric: str, examples: int) -> dict[str, Any]:
    """The parts of results.json that say what was decoded where."""
    return {
        "environment": {**environment(), "metric": get_metric(metric).signature or metric},
        "config": config.to_dict(),
        "files": file_stamps(config),
        "data": {"name": config.name or config.task, "examples": examples, "metric": metric},
    }


def find_baseline(strategy: Strategy, strategies: Mapping[str, Strategy]) -> str:
    """The strategy without drafts under the same sampling, else the greedy one."""
    for name, other in strategies.items():
        if other.autoregressive and other.settings == strategy.settings:
            return name
    return next(iter(strategies))


def strategy_entry(
    session: Session,
    name: str,
    measured: dict[str, StrategyMeasurement],
    prices: Prices,
    outputs: list[str],
) -> dict[str, Any]:
    """One entry of `strategies` in results.json (architecture.md)."""
    strategy, entry = session.strategies[name], measured[name]
    baseline = find_baseline(strategy, session.strategies)
    base = measured[baseline]
    own = price_work(session, name, entry, prices)
    costs, decoder = own.costs, own.decoder
    stats = summarize(decoder, entry.traces)
    rounds, parents = collect_rounds(entry.traces), strategy.drafter.spec.parents
    loop_speedup = loop_seconds_per_token(base) / loop_seconds_per_token(entry)
    prediction = predict_speedups(
        stats, own, price_work(session, baseline, base, prices), loop_speedup
    )
    counters = handovers(rounds, replaced_tokens(entry.traces), decoder.target)
    return {
        **speeds(entry, base, stats.tokens, loop_speedup, prediction["with_v"]),
        **speedup_bounds(entry, base, session.config.seed),
        "acceptance_rate": stats.acceptance_rate,
        "tokens_per_target_call": stats.tokens_per_target_call,
        "calls": stats.calls,
        "layers_per_token": rounds.layers_per_token,
        "fallback_percent": counters["fallback_percent"],
        "rollback_percent": counters["rollback_percent"],
        "handovers": counters,
        "standardized_walltime_improvement": standardized_walltime_improvement(
            stats.tokens, stats.calls, part_prices(session, strategy.drafter), decoder.target
        ),
        "standardized_walltime_improvement_measured": standardized_walltime_improvement(
            stats.tokens, stats.calls, costs.one_token, decoder.target
        ),
        "identical_to_target": identical(entry, base) if strategy.greedy else None,
        **differences(session, strategy, entry, base),
        "lossless": strategy.lossless,
        "baseline": baseline,
        "quality": quality(session, outputs),
        "acceptance": acceptance(rounds),
        "acceptance_by_rank": by_rank(entry.traces, parents) if parents else None,
        "arms": None if rounds.arm is None else arm_figures(rounds, arm_names(strategy)),
        "rounds": round_figures(rounds),
        "time": time_spent(own, total_seconds(entry), fixed_seconds(entry)),
        "predicted": prediction,
        "operations": operations(
            rounds,
            prompt_lengths(session),
            strategy.drafter,
            {key: session.pair.members[key].model for key in decoder.used},
            session.generators[name].params,
            decoder.target,
            decoder.reader,
        ),
    }


def price_work(
    session: Session, name: str, entry: StrategyMeasurement, prices: Prices
) -> PricedStrategy:
    """Calls and rounds of a strategy, and their prices."""
    decoder = session.generators[name].decoder
    costs = prices.calls[session.strategies[name].settings]
    return PricedStrategy(costs, decoder, sum_work(decoder, entry.traces), prices.rounds.get(name))


def speeds(
    entry: StrategyMeasurement,
    base: StrategyMeasurement,
    tokens: int,
    loop_speedup: float,
    expected: float | None,
) -> dict[str, float | None]:
    """Times of a strategy, alone and relative to its baseline; `expected`: predicted speedup."""
    return {
        "tokens": tokens,
        "seconds": total_seconds(entry),
        "ms_per_token": total_seconds(entry) / max(tokens, 1) * 1e3,
        "ms_per_token_median": median_ms_per_token(entry),
        "speedup": seconds_per_token(base) / seconds_per_token(entry),
        "speedup_predicted": expected,
        "engine_efficiency": loop_speedup / expected if expected else None,
        "fixed_ms": float(np.median(entry.fixed) * 1e3),
        "compile_seconds": entry.compile_seconds,
    }


def speedup_bounds(
    entry: StrategyMeasurement, base: StrategyMeasurement, seed: int
) -> dict[str, float | None]:
    """The 95% interval of the speedup over batches; None if there are too few."""
    drawn = draws(len(entry.rows), seed)
    if drawn is None or entry is base:
        return {"speedup_low": None, "speedup_high": None}
    times = (
        drawn_times(drawn, measured.batch_seconds, measured.batch_tokens)
        for measured in (base, entry)
    )
    low, high = interval(next(times) / next(times))
    return {"speedup_low": low, "speedup_high": high}


def texts(session: Session, measured: dict[str, StrategyMeasurement]) -> list[dict[str, Any]]:
    """A few texts round by round: the first example under every strategy, the second, ..."""
    drafting = [
        name for name, strategy in session.strategies.items() if not strategy.autoregressive
    ]
    entries = []
    pairs = itertools.product(range(len(session.examples)), drafting)
    for index, name in itertools.islice(pairs, TEXTS):
        batch, row = divmod(index, session.config.batch_size)
        generation, _ = measured[name].traces[batch]
        decoder, tokenizer = session.generators[name].decoder, session.pair.target.tokenizer
        entries.append(
            {
                "source": session.examples[index].source,
                "strategy": name,
                "rounds": rounds_of_text(generation, row, decoder, tokenizer),
            }
        )
    return entries


def groups(session: Session, measured: dict[str, StrategyMeasurement]) -> dict[str, Any]:
    """Figures of every strategy by group of examples; empty without groups."""
    names = [example.group for example in session.examples if example.group is not None]
    if len(names) < len(session.examples):
        return {}
    baseline = session.config.batch_size == 1  # else groups share the seconds of a batch
    figures = {
        name: by_group(
            names, collect_rounds(entry.traces), entry.batch_seconds if baseline else None
        )
        for name, entry in measured.items()
    }
    strategies = session.strategies
    bases = {name: figures[find_baseline(strategies[name], strategies)] for name in measured}
    return add_speedups(figures, bases)


def identical(entry: StrategyMeasurement, base: StrategyMeasurement) -> float:
    """Fraction of examples with the same tokens as autoregressive decoding."""
    same = [a == b for a, b in zip(entry.tokens, base.tokens, strict=True)]
    return float(np.mean(same))


def differences(
    session: Session, strategy: Strategy, entry: StrategyMeasurement, base: StrategyMeasurement
) -> dict[str, int | None]:
    """Examples with other tokens than autoregressive decoding, and those at a near tie.

    None where outputs need not be the same.
    """
    if not (strategy.greedy and strategy.lossless):
        return {"differing": None, "near_ties": None}
    model = session.generators[BASELINE].decoder.target_model
    heads = base.heads if model.info.open_prefix else [()] * len(session.prompts)
    rows = zip(session.prompts, entry.tokens, base.tokens, heads, strict=True)
    parted = list(filter(None, itertools.starmap(divergence, rows)))
    given = model, session.pair.target.params, parted, checkpoint_dtype(session.config)
    return {"differing": len(parted), "near_ties": near_ties(*given)}


def quality(session: Session, outputs: list[str]) -> dict[str, float]:
    """The scores of the session's metric over all examples."""
    return get_metric(session.metric)(outputs, collect_references(session.examples))


def output_rows(
    session: Session, measured: dict[str, StrategyMeasurement], outputs: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """One row per example and strategy."""
    arms = {name: count_arms(session, name, entry) for name, entry in measured.items()}
    return [
        {
            "example": index,
            "strategy": name,
            "source": example.source,
            "reference": example.reference,
            "output": outputs[name][index],
            "tokens": entry.tokens[index],
            **({"arms": own[index]} if (own := arms[name]) else {}),
        }
        for index, example in enumerate(session.examples)
        for name, entry in measured.items()
    ]


def count_arms(
    session: Session, name: str, entry: StrategyMeasurement
) -> list[dict[str, int]] | None:
    """Rounds of each arm by example; None for a strategy without arms."""
    rounds = collect_rounds(entry.traces)
    if rounds.arm is None:
        return None
    return count_text_arms(rounds, arm_names(session.strategies[name]))


def arm_names(strategy: Strategy) -> tuple[str, ...]:
    """Names of a strategy's arms; empty if it has none."""
    return strategy.drafter.names if isinstance(strategy.drafter, Arms) else ()


def write_trace(file: Path, measured: dict[str, StrategyMeasurement]) -> None:
    """Per-round and per-token records, arrays named `<strategy>/<field>`, one row per example.

    `<strategy>/seconds` has a row for each batch and a column for each repeat.
    """
    arrays = {}
    for name, entry in measured.items():
        arrays[f"{name}/seconds"] = entry.seconds.T
        for field in ("drafted", "accepted", "committed", "written_by"):
            rows = [np.asarray(getattr(fetch_trace(g), field))[:n] for g, n in entry.traces]
            width = max(row.shape[1] for row in rows)
            arrays[f"{name}/{field}"] = np.concatenate(
                [np.pad(row, ((0, 0), (0, width - row.shape[1]))) for row in rows]
            )
    with replacing(file) as partial:
        np.savez_compressed(partial, **arrays)
