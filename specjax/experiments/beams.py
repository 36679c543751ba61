"""The beams experiment: beam searches over the same examples, timed side by side.

See docs/methods/beam_search.md. Strategies are those of `specjax.beam_search`; what the others are
compared with is the first one that drafts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.api import load
from specjax.beams import BeamGenerator, BeamResult
from specjax.checkpoints.huggingface import describe
from specjax.data.text import Example
from specjax.decoding.beams.strategy import BeamStrategy, from_config
from specjax.errors import UserError
from specjax.experiments.config.fields import check_strategies, checkpoint_dtype, model_names
from specjax.experiments.decode.data import Data, load_data
from specjax.measuring.environment import environment
from specjax.metrics.metric import metric_of
from specjax.progress import progress
from specjax.reporting.table import aligned, cell
from specjax.writing import write_json, write_jsonl

RESULTS, OUTPUTS = "results.json", "outputs.jsonl"

_AT_LEAST = {
    "batch_size": 1,
    "max_new_tokens": 1,
    "max_prompt_tokens": 1,
    "bucket": 1,
    "repeats": 1,
    "examples": 0,
}

_COLUMNS = (
    ("ms/token", "ms_per_token", ".3f"),
    ("speed over first", "speed_ratio", ".2f"),
    ("steps/call", "steps_per_round", ".2f"),
    ("nodes/call", "nodes_per_round", ".1f"),
    ("same text", "same_as_first", "d"),
    ("tokens", "tokens", "d"),
)
"""Heading, field of a strategy in results.json, format."""


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Runs the experiment and writes its results; returns the content of results.json.

    Raises:
      UserError: when the config cannot be used.
    """
    strategies = check(config)
    data = load_data(config, more=False)
    generators = prepare(config, strategies)
    prompts = [config.prefix + example.source for example in data.examples]
    results, seconds = measure(config, generators, prompts)
    content = {
        "environment": environment(),
        "config": config.to_dict(),
        "metric": data.metric,
        "strategies": {
            name: figures(name, results, seconds, data.metric, data.examples) for name in results
        },
    }
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / RESULTS, content)
    write_jsonl(workdir / OUTPUTS, output_rows(data, results))
    print(table(content["strategies"]))
    return content


def plan(config: ConfigDict) -> None:
    """Prints the models and what each search feeds in one call.

    Raises:
      UserError: when the config cannot be used.
    """
    strategies = check(config)
    dtype, ignored = checkpoint_dtype(config), config.ignore_generation_config
    models = {
        name: describe(at, dtype, ignore_generation_config=ignored)
        for name, at in model_names(config).items()
    }
    for name, model in models.items():
        print(f"{name}: {model_names(config)[name]}, {model.depth} decoder layers")
    for name, strategy in strategies.items():
        try:
            decoder = strategy.decoder(tuple(models.items()), config.max_new_tokens)
        except ValueError as error:
            raise UserError(f"strategies.{name}: {error}") from None
        print(
            f"{name}: {len(decoder.depth)} tokens of a text in each target call, at most"
            f" {decoder.length + 1} beam steps; {decoder.slots} cache slots behind the prompt"
        )


def check(config: ConfigDict) -> dict[str, BeamStrategy]:
    """The strategies, once all fields are found to be of use; those that draft come last.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_strategies(config, _AT_LEAST)
    models = model_names(config)
    strategies = {name: from_config(name, spec) for name, spec in config.strategies.items()}
    for name, strategy in strategies.items():
        if strategy.speculative and strategy.model not in models:
            raise UserError(
                f"strategies.{name} names the model {strategy.model!r}; the config has"
                f" {', '.join(models)}"
            )
    return dict(sorted(strategies.items(), key=lambda entry: entry[1].speculative))


def prepare(config: ConfigDict, strategies: Mapping[str, BeamStrategy]) -> dict[str, BeamGenerator]:
    """A generator for each strategy, on the same models."""
    dtype, ignored = checkpoint_dtype(config), config.ignore_generation_config
    loaded = {
        name: load(at, dtype, ignore_generation_config=ignored)
        for name, at in model_names(config).items()
    }
    target = loaded.pop("target")
    if target.tokenizer is None:
        raise UserError(f"target {config.target!r} has no tokenizer files")
    sizes = {name: config[name] for name in ("max_new_tokens", "max_prompt_tokens", "bucket")}
    return {
        name: BeamGenerator(target, loaded, strategy, **sizes)
        for name, strategy in strategies.items()
    }


def measure(
    config: ConfigDict, generators: Mapping[str, BeamGenerator], prompts: Sequence[str]
) -> tuple[dict[str, list[BeamResult]], dict[str, float]]:
    """Results of each batch by strategy, and seconds of all batches, each in its best pass.

    The strategies take turns at every batch. The first pass compiles and is not timed.
    """
    size = config.batch_size
    batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    best = {name: [float("inf")] * len(batches) for name in generators}
    results: dict[str, list[BeamResult]] = {name: [] for name in generators}
    with progress(total=(config.repeats + 1) * len(batches), unit="batch") as bar:
        for repeat in range(config.repeats + 1):
            for index, batch in enumerate(batches):
                for name, generator in generators.items():
                    start = time.perf_counter()
                    result = generator(batch, batch_size=size)
                    took = time.perf_counter() - start
                    if repeat:
                        best[name][index] = min(best[name][index], took)
                    else:
                        results[name].append(result)
                bar.update()
    return results, {name: sum(times) for name, times in best.items()}


def figures(
    name: str,
    results: Mapping[str, list[BeamResult]],
    seconds: Mapping[str, float],
    metric: str,
    examples: Sequence[Example],
) -> dict[str, Any]:
    """What results.json says of a strategy."""
    first = next(iter(results))
    made = [result.statistics for result in results[name]]
    tokens, rounds = sum(one.tokens for one in made), sum(one.rounds for one in made)
    texts = [text for result in results[name] for text in result.texts]
    pairs = zip(results[name], results[first], strict=True)
    return {
        "seconds": seconds[name],
        "tokens": tokens,
        "ms_per_token": 1e3 * seconds[name] / tokens,
        "speed_ratio": seconds[first] / seconds[name],
        "steps_per_round": sum(one.steps for one in made) / rounds,
        "nodes_per_round": sum(one.nodes for one in made) / rounds,
        "rounds": rounds,
        "drafts": sum(one.drafts for one in made),
        "same_as_first": sum(
            text == other
            for one, two in pairs
            for text, other in zip(one.tokens, two.tokens, strict=True)
        ),
        "quality": metric_of(metric)(texts, [example.reference for example in examples]),
    }


def output_rows(data: Data, results: Mapping[str, list[BeamResult]]) -> list[dict[str, Any]]:
    """One row per example and strategy, with all hypotheses, best first."""
    found = {
        name: [best for result in each for best in result.hypotheses]
        for name, each in results.items()
    }
    return [
        {
            "example": index,
            "strategy": name,
            "source": example.source,
            "reference": example.reference,
            "output": hypotheses[index][0].text,
            "hypotheses": [
                {"text": one.text, "score": one.score, "tokens": one.tokens}
                for one in hypotheses[index]
            ],
        }
        for index, example in enumerate(data.examples)
        for name, hypotheses in found.items()
    ]


def table(strategies: Mapping[str, Mapping[str, Any]]) -> str:
    """The strategies for the terminal."""
    scores = list(next(iter(strategies.values()))["quality"])
    head = ["strategy", *(title for title, _, _ in _COLUMNS), *scores]
    lines = [
        [
            name,
            *(cell(entry[field], form) for _, field, form in _COLUMNS),
            *(cell(entry["quality"][score], ".2f") for score in scores),
        ]
        for name, entry in strategies.items()
    ]
    return aligned(head, lines)
