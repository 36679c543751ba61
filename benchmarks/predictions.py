"""Predicted against measured speedup of a pair, over draft lengths and trees.

    python benchmarks/predictions.py --workdir=runs/predictions --config=configs/translate.py \\
      --config.target=TARGET --config.drafter=DRAFTER --config.source_file=test.en.gz \\
      --config.prefix='translate English to German: ' --config.examples=60 \\
      --chain='{"drafter": "neural", "model": "drafter"}' --lengths=1,2,3,4,5,6,7,8 \\
      --strategy='{"drafter": "neural", "model": "drafter", "widths": [2, 2, 1]}'

The flags of any decode config give models and data; its strategies are replaced. The first
`--priced_examples` prompts are decoded for the prices of rounds only, the others are measured, all
strategies in turn. Three predictions, each of tokens per round over what a round costs: rounds
priced in place; the same of lengths that were not priced, from acceptance with the longest drafts
and the prices of `--priced_lengths` (as tuning does); and calls timed alone. The table is printed
and written to `predictions.json` in the workdir.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from specjax.data.batching import Batch
from specjax.decoding.strategy import from_config
from specjax.decoding.summary import summarize
from specjax.experiments.config.command_line import parse as parse_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.checks import check_decode
from specjax.experiments.decode.model_costs import label
from specjax.experiments.decode.pricing import Pricing
from specjax.experiments.decode.records import Prices, StrategyMeasurement, loop_seconds_per_token
from specjax.experiments.decode.results import find_baseline, price_work
from specjax.experiments.decode.session import Session, open_session
from specjax.experiments.decode.strategies import BASELINE
from specjax.experiments.pairs import load_pair
from specjax.experiments.tune.predict import Probe, predicted_speedup, tokens_per_round
from specjax.experiments.tune.space import baseline_spec
from specjax.main import enable_compilation_cache
from specjax.measuring.environment import environment
from specjax.measuring.walltime import predict_speedups
from specjax.metrics.traces import collect_rounds
from specjax.reporting.table import align_columns, cell
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json

WAYS = {"in_place": "in place", "other_lengths": "other lengths", "calls_alone": "calls alone"}
"""Predictions by their field, and their headings."""

Family = dict[int, str]
"""Names of strategies that differ in draft length only, by their length."""


def parse() -> tuple[argparse.Namespace, list[str]]:
    """The benchmark's own flags, and those of the config."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument(
        "--chain",
        type=json.loads,
        action="append",
        default=[],
        help="fields of a strategy that is run with every length; may be repeated",
    )
    parser.add_argument(
        "--strategy",
        type=json.loads,
        action="append",
        default=[],
        help="fields of a strategy that is run as it is; may be repeated",
    )
    parser.add_argument("--lengths", type=integers, default=tuple(range(1, 9)))
    parser.add_argument(
        "--priced_lengths",
        type=integers,
        default=(),
        help="lengths whose prices predict the others; default: the shortest and the longest",
    )
    parser.add_argument("--priced_examples", type=int, default=16)
    return parser.parse_known_args()


def integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def strategies_of(
    args: argparse.Namespace,
) -> tuple[dict[str, dict[str, Any]], list[Family]]:
    """All strategies by name, those that draft nothing among them, and the families of chains."""
    made: dict[str, dict[str, Any]] = {}
    families = []
    for index, chain in enumerate(args.chain):
        family = {n: f"{chain['drafter']}{index or ''}_{n}" for n in sorted(args.lengths)}
        made |= {name: {**chain, "length": n} for n, name in family.items()}
        families.append(family)
    for index, spec in enumerate(args.strategy):
        made[f"given_{index}_{spec['drafter']}"] = spec
    baseline = {BASELINE: {"drafter": "none"}}
    for _, spec in map(baseline_spec, made.values()):
        if spec not in baseline.values():
            baseline[f"alone_{len(baseline)}"] = spec
    return {**baseline, **made}, families


def make_config(
    flags: Sequence[str], args: argparse.Namespace, specs: Mapping[str, Any]
) -> ConfigDict:
    """The decode config of the flags with these strategies."""
    config = parse_config(["predictions", *flags]).config
    with config.unlocked():
        config.strategies = ConfigDict(specs)
    return config


def run(
    job: Session, priced_batches: list[Batch], batches: list[Batch]
) -> tuple[dict[str, StrategyMeasurement], Prices]:
    """Decodes `batches` by all strategies, among short decodes of the others that price rounds."""
    shapes = {batch.shape: batch for batch in (*priced_batches, *batches)}
    decode.warm_up(job, list(shapes.values()))
    pricing = Pricing(job, priced_batches, decode.time_decode)
    following = itertools.cycle(priced_batches)
    measured = decode.measure(job, batches, lambda _: pricing.take(next(following)))
    return measured, pricing.prices()


def figures(
    job: Session, measured: Mapping[str, StrategyMeasurement], prices: Prices
) -> dict[str, Any]:
    """By strategy that drafts: measured and predicted speedups of the decode loop."""
    found = {}
    for name, strategy in job.strategies.items():
        if strategy.autoregressive:
            continue
        base = find_baseline(strategy, job.strategies)
        own = price_work(job, name, measured[name], prices)
        baseline = price_work(job, base, measured[base], prices)
        took = loop_seconds_per_token(measured[base]) / loop_seconds_per_token(measured[name])
        statistics = summarize(own.decoder, measured[name].traces)
        known = predict_speedups(statistics, own, baseline, took)
        found[name] = {
            "measured": took,
            "tokens_per_round": statistics.tokens / max(statistics.rounds, 1),
            "in_place": known["with_v"],
            "priced": known["priced"],
            "other_lengths": None,
            "calls_alone": known["calls_alone"],
            "round_ms": known["round_ms"],
            "calls_ms": known["calls_ms"],
        }
    return found


def probe_of(
    job: Session,
    name: str,
    measured: Mapping[str, StrategyMeasurement],
    prices: Prices,
    shorter: Probe | None,
) -> Probe:
    """Rounds of a strategy with the speedup that its priced rounds give."""
    strategy = job.strategies[name]
    base = find_baseline(strategy, job.strategies)
    baseline = price_work(job, base, measured[base], prices).milliseconds_per_token
    rounds = collect_rounds(measured[name].traces)
    tokens = tokens_per_round(rounds, strategy)
    speedup = tokens * baseline / prices.rounds[name].round_ms
    return Probe(strategy, rounds, speedup, shorter=shorter)


def add_other_lengths(
    job: Session,
    family: Family,
    priced: Sequence[int],
    measured: Mapping[str, StrategyMeasurement],
    prices: Prices,
    found: dict[str, Any],
) -> None:
    """Predicts the lengths between two priced ones, from acceptance with the longer."""
    short, long = (min(priced), max(priced)) if priced else (min(family), max(family))
    names = family[short], family[long]
    if short == long or not set(names) <= prices.rounds.keys():
        return
    shorter = probe_of(job, names[0], measured, prices, None)
    probe = probe_of(job, names[1], measured, prices, shorter)
    costs = prices.calls[probe.strategy.settings]
    target = job.generators[names[1]].decoder.target
    for length in (length for length in family if short < length < long):
        strategy = job.strategies[family[length]]
        expected = predicted_speedup(costs, probe, strategy, target)
        found[family[length]]["other_lengths"] = expected


def errors(found: Mapping[str, Any], way: str) -> dict[str, float]:
    """Percent by strategy that predictions of one way are above what was measured."""
    return {
        name: 100 * (entry[way] / entry["measured"] - 1)
        for name, entry in found.items()
        if entry[way] is not None
    }


def summary_of(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By way of pricing the median and the largest error in percent, either side."""
    known = {way: np.abs(list(errors(found, way).values())) for way in WAYS}
    return {
        way: {"median": float(np.median(values)), "largest": float(values.max())}
        for way, values in known.items()
        if len(values)
    }


def lines(found: Mapping[str, Any]) -> Iterator[list[str]]:
    off = {way: errors(found, way) for way in WAYS}
    for name, entry in found.items():
        cells = [cell(entry["tokens_per_round"], ".2f"), cell(entry["measured"], ".2f")]
        for way in WAYS:
            cells += [cell(entry[way], ".2f"), cell(off[way].get(name), "+.1f")]
        yield [name, *cells, cell(entry["round_ms"], ".2f"), cell(entry["calls_ms"], ".2f")]


def main() -> None:
    args, flags = parse()
    enable_compilation_cache()
    specs, families = strategies_of(args)
    config = make_config(flags, args, specs)
    for name, spec in specs.items():
        from_config(name, spec)  # refused before anything is loaded
    args.workdir.mkdir(parents=True, exist_ok=True)
    job = open_session(config, check_decode(config), load_pair(config), args.workdir)
    batches = job.batches()
    few = -(-args.priced_examples // config.batch_size)
    if few >= len(batches):
        raise SystemExit(
            f"--priced_examples is {args.priced_examples}; it must leave some of the"
            f" {len(job.prompts)} examples"
        )
    measured, prices = run(job, batches[:few], batches[few:])
    found = figures(job, measured, prices)
    for family in families:
        add_other_lengths(job, family, args.priced_lengths, measured, prices, found)
    head = ["strategy", "tok/round", "measured"]
    head += [title for way in WAYS.values() for title in (way, "error %")]
    print(align_columns([*head, "round ms", "calls ms"], list(lines(found))))
    overall = summary_of(found)
    for way, values in overall.items():
        print(f"{WAYS[way]}: median {values['median']:.1f}%, largest {values['largest']:.1f}%")
    write_json(
        args.workdir / "predictions.json",
        {
            "environment": environment(),
            "config": config.to_dict(),
            "priced_examples": args.priced_examples,
            "strategies": found,
            "errors": overall,
            "costs": {label(k): costs.step for k, costs in prices.calls.items()},
        },
    )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"predictions: {error}") from None
