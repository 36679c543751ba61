"""The transcribe experiment: times all strategies of a config on audio of any length.

Windows follow each other as in `specjax.transcribe`. The first strategy is the baseline. Times are
of whole transcripts, including the encoder's.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.fields import check_strategies, model_names
from specjax.experiments.config.placement import check_ways
from specjax.experiments.decode.data import Data, check_one_source, load_data
from specjax.experiments.decode.strategies import check_models, load_strategies
from specjax.experiments.decode.tables import check_corpus, load_tables, reads_rest
from specjax.experiments.pairs import describe_pair, load_pair
from specjax.experiments.transcribe.results import TimedTranscript, figures, output_rows, table
from specjax.experiments.workdir import file_stamps, read_finished
from specjax.measuring.environment import environment
from specjax.models.info import Frames, Samples
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json, write_jsonl
from specjax.runtime.progress import progress
from specjax.transcription.fallback import Fallback
from specjax.transcription.transcript import NO_TIMES, check_settings, transcribe

RESULTS, OUTPUTS = "results.json", "outputs.jsonl"


@dataclasses.dataclass(frozen=True)
class Job:
    """A transcribe experiment ready to run."""

    config: ConfigDict
    data: Data
    audio: list[Any]  # features [M, N] of each example
    generators: dict[str, Generator]


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Runs the experiment and writes its results; returns the content of results.json.

    Raises:
      UserError: when the config cannot be used.
    """
    strategies = check(config)
    done = read_finished(config, workdir)
    if done is not None:
        print(table(done["strategies"]))
        return done
    job = prepare(config, strategies)
    workdir.mkdir(parents=True, exist_ok=True)
    made = measure(job)
    content = {
        "environment": environment(),
        "config": config.to_dict(),
        "files": file_stamps(config),
        "metric": job.data.metric,
        "strategies": {name: figures(name, made, job.data) for name in made},
    }
    write_json(workdir / RESULTS, content)
    write_jsonl(workdir / OUTPUTS, output_rows(job.data, made))
    print(table(content["strategies"]))
    return content


def plan(config: ConfigDict) -> None:
    """Prints the models and the strategies; no weights are read.

    Raises:
      UserError: when the config cannot be used.
    """
    check(config)
    for name, entry in describe_pair(config).members.items():
        _check_speech_model(name, entry.model)
        print(f"{name}: {entry.name}, {entry.model.info.depth} decoder layers")
    print("strategies:", ", ".join(config.strategies))


def check(config: ConfigDict) -> dict[str, Strategy]:
    """Validates the config; returns its strategies.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_strategies(config)
    check_one_source(config)
    check_ways(config)
    check_corpus(config)
    strategies = load_strategies(config)
    check_models(strategies, tuple(model_names(config)))
    if config.prefix:
        raise UserError(f"config.prefix is {config.prefix!r}; it must be empty for a speech model")
    make_fallback(config)
    return strategies


def make_fallback(config: ConfigDict) -> Fallback:
    """The temperatures and thresholds of a config.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    windows = config.windows
    names = "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"
    given = {name: windows[name] or None for name in names}
    try:
        return Fallback(tuple(windows.temperature) or (None,), **given)
    except UserError as error:
        raise UserError(f"config.windows.{error}") from None


def prepare(config: ConfigDict, strategies: Mapping[str, Strategy]) -> Job:
    """Loads models and data; builds one generator per strategy."""
    pair = load_pair(config)
    target = pair.target
    _check_speech_model("target", target.model)
    tables = {name for one in strategies.values() for name in one.drafter.spec.resources}
    data = load_data(config, more=reads_rest(config, tables))
    trees = load_tables(config, tables, target, pair.vocab_size, data.rest)
    generators = {
        name: Generator(
            target, pair.drafters, one, tables=trees, max_new_tokens=config.max_new_tokens
        )
        for name, one in strategies.items()
    }
    for generator in generators.values():
        check_settings(generator, make_fallback(config), config.windows.condition_on_prev_tokens)
    sources = [example.source for example in data.examples]
    audio = [target.extractor.whole(f"audio {source!r}", source).T for source in sources]
    return Job(config, data, audio, generators)


def measure(job: Job) -> dict[str, list[list[TimedTranscript]]]:
    """Transcripts of every strategy by repeat and batch; strategies alternate in a batch."""
    config, size = job.config, job.config.batch_size
    batches = [job.audio[first : first + size] for first in range(0, len(job.audio), size)]
    made = {name: [[] for _ in range(config.repeats)] for name in job.generators}
    total = len(job.generators) * (1 + config.repeats * len(batches))
    with progress(total=total, desc="transcribe", unit="batch") as bar:
        for generator in job.generators.values():
            time_transcript(job, generator, batches[0])  # compiles
            bar.update()
        for repeat in range(config.repeats):
            for batch in batches:
                for name, generator in job.generators.items():
                    made[name][repeat].append(time_transcript(job, generator, batch))
                    bar.update()
    return made


def time_transcript(job: Job, generator: Generator, audio: list[Any]) -> TimedTranscript:
    """One transcript of a batch, and its seconds."""
    config, fallback = job.config, make_fallback(job.config)
    start = time.perf_counter()
    transcript = transcribe(
        generator,
        audio,
        seed=config.seed,
        batch_size=config.batch_size,
        condition_on_prev_tokens=config.windows.condition_on_prev_tokens,
        temperature=tuple(config.windows.temperature) or None,
        compression_ratio_threshold=fallback.compression_ratio_threshold,
        logprob_threshold=fallback.logprob_threshold,
        no_speech_threshold=fallback.no_speech_threshold,
    )
    return TimedTranscript(time.perf_counter() - start, transcript)


def _check_speech_model(name: str, model: Any) -> None:
    if isinstance(model.info.input, Samples):
        raise UserError(f"config.{name} is a checkpoint {NO_TIMES}, and config.task 'transcribe'")
    if not isinstance(model.info.input, Frames) and not model.info.reads_states:
        raise UserError(f"config.{name} reads texts; this experiment needs a speech model")
