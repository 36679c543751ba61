"""The beams experiment: beam searches over the same examples, timed side by side.

See docs/methods/beam_search.md. Strategies are those of `specjax.beam_search`; the first one
without drafts is the baseline of the others. Greedy decoding runs as well.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.beams import BeamGenerator, BeamResult, check_settings
from specjax.data.batching import Prompt
from specjax.decoding.beams.outcome import BeamStatistics
from specjax.decoding.beams.state import BeamDecoder
from specjax.decoding.beams.strategy import NEURAL, BeamStrategy, from_config
from specjax.experiments.beams.results import SearchOutput, figures, output_rows, table
from specjax.experiments.config.fields import check_strategies, model_names
from specjax.experiments.config.generation import plan_settings
from specjax.experiments.config.memory import check_beam_memory
from specjax.experiments.config.schema import STATIC
from specjax.experiments.decode.data import Data, check_chat, load_data
from specjax.experiments.decode.prompts import make_prompts
from specjax.experiments.decode.tables import load_tables, reads_rest
from specjax.experiments.pairs import describe_models, load_models
from specjax.experiments.workdir import describe_run, file_stamps, read_finished, resume_rows
from specjax.loading import LoadedModel
from specjax.measuring.environment import environment
from specjax.result import Result
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json, write_jsonl, write_row
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress

RESULTS, OUTPUTS, KEPT = "results.json", "outputs.jsonl", "searched.jsonl"

GREEDY = "greedy"
"""The name of greedy decoding in the results."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A beams experiment ready to run."""

    config: ConfigDict
    data: Data
    prompts: list[Prompt]
    contestants: dict[str, BeamGenerator | Generator]


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Runs the experiment and writes its results; returns the content of results.json.

    An interrupted run resumes after the last batch that all strategies decoded. Results of the same
    config in the workdir are only shown.

    Raises:
      UserError: when the config cannot be used.
    """
    strategies = check(config)
    models = describe_models(config)
    check_beam_memory(config, models, decoders(config, models, strategies))
    done = read_finished(config, workdir)
    if done is not None:
        print(table(done["strategies"]))
        return done
    workdir.mkdir(parents=True, exist_ok=True)
    job = prepare(config, strategies, workdir)
    with resume_rows(workdir / KEPT, describe_run(config, job.prompts)) as (rows, out):
        results, seconds = measure(job, rows, out)
        content = {
            "environment": environment(),
            "config": config.to_dict(),
            "files": file_stamps(config),
            "metric": job.data.metric,
            "strategies": {name: figures(name, results, seconds, job.data) for name in results},
        }
        write_json(workdir / RESULTS, content)
        write_jsonl(workdir / OUTPUTS, output_rows(job.data, results))
    print(table(content["strategies"]))
    return content


def plan(config: ConfigDict) -> None:
    """Prints the models, the tokens of each search's calls, and the generation settings.

    Raises:
      UserError: when the config cannot be used.
    """
    strategies = check(config)
    models = describe_models(config)
    made = decoders(config, models, strategies)
    check_beam_memory(config, models, made)
    planned = plan_settings(config)
    check_settings(planned.settings)
    for strategy in strategies.values():
        planned.apply_settings(
            strategy.scoring(config.max_new_tokens).options, models["target"].model
        )
    for name, entry in models.items():
        print(f"{name}: {entry.name}, {entry.model.info.depth} decoder layers")
    for name, decoder in made.items():
        print(
            f"{name}: {len(decoder.depth)} tokens of a text in each target call, at most"
            f" {decoder.length + 1} beam steps; {decoder.slots} cache slots after the prompt"
        )
    for line in planned.lines:
        print(line)


def decoders(
    config: ConfigDict,
    models: Mapping[str, LoadedModel],
    strategies: Mapping[str, BeamStrategy],
) -> dict[str, BeamDecoder]:
    """The decoder of each strategy with these models.

    Raises:
      UserError: when one does not fit.
    """
    made, architectures = {}, tuple((name, entry.model) for name, entry in models.items())
    for name, strategy in strategies.items():
        try:
            made[name] = strategy.decoder(architectures, config.max_new_tokens)
        except ValueError as error:
            raise UserError(f"strategies.{name}: {error}") from None
    return made


def check(config: ConfigDict) -> dict[str, BeamStrategy]:
    """Validates the config; returns the strategies, those with drafts last.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_strategies(config)
    check_chat(config)
    if config.batching != STATIC:
        raise UserError(
            f"config.batching is {config.batching!r}; it must be {STATIC!r} for beams, which are"
            " decoded in batches that are not refilled"
        )
    models = model_names(config)
    strategies = {name: from_config(name, spec) for name, spec in config.strategies.items()}
    for name, strategy in strategies.items():
        if name == GREEDY:
            raise UserError(
                f"strategies.{name} needs another name: greedy decoding runs under this one"
            )
        if strategy.drafter == NEURAL and strategy.model not in models:
            raise UserError(
                f"strategies.{name} names the model {strategy.model!r}; the config has"
                f" {', '.join(models)}"
            )
    return dict(sorted(strategies.items(), key=lambda entry: entry[1].speculative))


def prepare(config: ConfigDict, strategies: Mapping[str, BeamStrategy], workdir: Path) -> Job:
    """Loads models and data; makes a generator for each strategy and for greedy decoding."""
    loaded = load_models(config)
    target = loaded.pop("target")
    if target.tokenizer is None:
        raise UserError(f"target {config.target!r} has no tokenizer files")
    names = {strategy.table for strategy in strategies.values() if strategy.counted}
    data = load_data(config, more=reads_rest(config, names))
    tables = load_tables(config, names, target, target.model.info.vocab_size, data.rest)
    sizes = {name: config[name] for name in ("max_new_tokens", "max_prompt_tokens", "bucket")}
    contestants: dict[str, BeamGenerator | Generator] = {
        name: BeamGenerator(target, loaded, strategy, tables=tables, **sizes)
        for name, strategy in strategies.items()
    }
    contestants[GREEDY] = greedy = Generator(target, **sizes)
    prompts = greedy.encode(make_prompts(config, target, data.examples, workdir))
    for generator in contestants.values():
        generator.prompts.encode(prompts)  # refuses bad prompts before any decode
    return Job(config, data, prompts, contestants)


def measure(
    job: Job, rows: Sequence[Mapping[str, Any]], out: TextIO | None
) -> tuple[dict[str, list[SearchOutput]], dict[str, float]]:
    """Outputs of each strategy by batch, and seconds of each batch in its best pass.

    Strategies alternate within every batch, shape by shape, after a first turn that compiles and is
    not timed. `rows` are those of an earlier run; new outputs are appended to `out`.
    """
    size, repeats = job.config.batch_size, job.config.repeats
    batches = [job.prompts[start : start + size] for start in range(0, len(job.prompts), size)]
    taken = {(row["repeat"], row["batch"]): row for row in rows}
    with progress(total=repeats * len(batches), initial=len(taken), unit="batch") as bar:
        for indices in by_shape(job, batches).values():
            turns = itertools.product(range(repeats), indices)
            todo = [turn for turn in turns if turn not in taken]
            if todo:
                _turn(job, batches[indices[0]])
            for repeat, index in todo:
                seconds, decoded = _turn(job, batches[index])
                # Later repeats decode the same.
                kept = {name: dataclasses.asdict(one) for name, one in decoded.items()}
                row = {"repeat": repeat, "batch": index, "seconds": seconds}
                row["decoded"] = {} if repeat else kept
                taken[repeat, index] = row
                write_row(out, row)
                bar.update()
            release_programs()
    results = {
        name: [_parse_entry(taken[0, index]["decoded"][name]) for index in range(len(batches))]
        for name in job.contestants
    }
    seconds: dict[str, float] = {
        name: sum(
            min(taken[repeat, index]["seconds"][name] for repeat in range(repeats))
            for index in range(len(batches))
        )
        for name in job.contestants
    }
    return results, seconds


def by_shape(job: Job, batches: Sequence[list[Prompt]]) -> dict[tuple[int, ...], list[int]]:
    """Indices of batches by their padded shape."""
    prompts, shapes = job.contestants[GREEDY].prompts, {}
    for index, ids in enumerate(batches):
        shape = prompts.batch(ids, job.config.batch_size).tokens.shape
        shapes.setdefault(shape, []).append(index)
    return shapes


def _turn(job: Job, ids: list[Prompt]) -> tuple[dict[str, float], dict[str, SearchOutput]]:
    """Seconds of a batch by strategy, from host tokens to texts, and the outputs."""
    seconds, decoded = {}, {}
    for name, generator in job.contestants.items():
        start = time.perf_counter()
        result = generator(ids, batch_size=job.config.batch_size)
        seconds[name] = time.perf_counter() - start
        found = _of_beams(result) if isinstance(result, BeamResult) else _of_greedy(result)
        decoded[name] = found
    return seconds, decoded


def _of_beams(result: BeamResult) -> SearchOutput:
    rows = [[dataclasses.asdict(one) for one in each] for each in result.hypotheses]
    return SearchOutput(rows, result.statistics)


def _of_greedy(result: Result) -> SearchOutput:
    """One hypothesis for each text; its score is not used."""
    pairs = zip(result.texts or [], result.tokens, strict=True)
    rows = [[{"text": text, "tokens": tokens, "score": None}] for text, tokens in pairs]
    calls, made = result.statistics.reviews, result.statistics.tokens
    return SearchOutput(rows, BeamStatistics(len(rows), made, calls, calls, calls, 0))


def _parse_entry(entry: Mapping[str, Any]) -> SearchOutput:
    return SearchOutput(entry["hypotheses"], BeamStatistics(**entry["statistics"]))
