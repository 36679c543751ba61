"""The parts of offline data: queries, outputs of each model, embeddings, rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.data.batching import make_batch
from specjax.data.text import Reference
from specjax.decoding.strategy import Strategy, autoregressive, drawing_fields
from specjax.experiments.config.fields import check_reads
from specjax.experiments.decode.data import stream
from specjax.experiments.pairs import load_pair
from specjax.experiments.selection.arms import StrategyArm, Writer, list_writers, load_arms
from specjax.experiments.train.target_outputs import write_outputs
from specjax.hf.trees import load_tree, save_tree
from specjax.loading import LoadedModel
from specjax.pair import TARGET, Pair
from specjax.runtime.errors import UserError
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress
from specjax.selection import policy
from specjax.selection.data import ALONE, SECONDS, TOKENS
from specjax.selection.reward import ROUGE_L, TOKEN_LCS, rouge_l, token_lcs

OUTPUTS, EMBEDDED = "outputs", "embedded"
"""Folders in the workdir: outputs of each model, embeddings in parts."""

PART = 1024
"""Queries whose embeddings are written at a time."""


@dataclasses.dataclass(frozen=True)
class Query:
    """One prompt."""

    id: str  # its task and its place there
    task: str
    text: str
    reference: Reference | None
    ids: list[int]


@dataclasses.dataclass(frozen=True)
class Job:
    """Loaded models, arms and queries."""

    config: ConfigDict
    pair: Pair
    arms: dict[str, StrategyArm]
    queries: list[Query]

    @property
    def target(self) -> LoadedModel:
        return self.pair.target

    def generator(
        self, target: LoadedModel, drafters: Mapping[str, LoadedModel], strategy: Strategy
    ) -> Generator:
        """A generator under the limits of the config, which all queries fit."""
        fields = ("max_new_tokens", "max_prompt_tokens", "bucket")
        limits = {field: self.config[field] for field in fields}
        made = Generator(target, drafters, strategy, **limits)
        made.encode([query.ids for query in self.queries])
        return made


def prepare(config: ConfigDict) -> Job:
    """Loads models and queries; leaves out and counts prompts that are too long.

    Raises:
      UserError: when a model or the data cannot be used.
    """
    pair = load_pair(config)
    if pair.target.tokenizer is None:
        raise UserError(f"target {config.target!r} has no tokenizer files")
    check_reads("target", pair.target.model)
    arms = load_arms(config, pair)
    queries: list[Query] = []
    for name, task in config.tasks.items():
        offered = _queries(name, task, pair.target.tokenizer)
        kept = [query for query in offered if len(query.ids) <= config.max_prompt_tokens]
        if not kept:
            raise UserError(
                f"config.tasks.{name} has no prompt of at most config.max_prompt_tokens,"
                f" {config.max_prompt_tokens}"
            )
        print(
            f"task {name}: {len(kept)} queries, {len(offered) - len(kept)} too long ones left out"
        )
        queries += kept
    return Job(config, pair, arms, queries)


def _queries(name: str, task: ConfigDict, tokenizer: Any) -> list[Query]:
    examples = list(stream(task))
    rows = tokenizer([example.source for example in examples]).input_ids if examples else []
    return [
        Query(f"{name}/{place}", name, example.source, example.reference, list(ids))
        for place, (example, ids) in enumerate(zip(examples, rows, strict=True))
    ]


def arm_generators(job: Job) -> dict[str, Generator]:
    """The target alone, then every arm that drafts, as a decode runs them."""
    settings = next(iter(job.arms.values())).strategy.settings
    baseline = autoregressive(**drawing_fields(settings))
    generators = {ALONE: job.generator(job.target, {}, baseline)}
    for name, arm in job.arms.items():
        if not arm.strategy.autoregressive:
            generators[name] = job.generator(job.target, job.pair.drafters, arm.strategy)
    return generators


def writer_generators(job: Job) -> dict[Writer, Generator]:
    """Generators of every model that generates by itself."""
    generators = {}
    for writer in list_writers(job.arms, job.target.model):
        # The first layers of a model run on its own parameters; the others are ignored.
        model = dataclasses.replace(
            job.pair.members[writer.weights], model=writer.model, tokenizer=job.target.tokenizer
        )
        strategy = autoregressive(temperature=writer.temperature)
        generators[writer] = job.generator(model, {}, strategy)
    return generators


def generate_outputs(
    job: Job, writer: Writer, generator: Generator, workdir: Path
) -> list[list[int]]:
    """Generated ids of every query, from the workdir or newly generated."""
    (workdir / OUTPUTS).mkdir(exist_ok=True)
    return write_outputs(
        generator,
        [query.text for query in job.queries],
        [query.ids for query in job.queries],
        workdir / OUTPUTS / f"{writer.name}.jsonl",
        batch_size=job.config.batch_size,
        seed=job.config.seed,
        title=writer.name,
    )


def embed_queries(job: Job, workdir: Path) -> np.ndarray:
    """Embeddings [N, D] float32 of every query, from the workdir or newly computed."""
    (workdir / EMBEDDED).mkdir(exist_ok=True)
    order = sorted(range(len(job.queries)), key=lambda i: -len(job.queries[i].ids))
    width = policy.embedding_source(job.target.model)[1]
    embeddings = np.zeros((len(order), width), np.float32)
    with progress(total=len(order), desc="embeddings", unit="query") as bar:
        for start in range(0, len(order), PART):
            part = order[start : start + PART]
            file = workdir / EMBEDDED / f"{start // PART:05d}.safetensors"
            if not file.exists():
                save_tree({"embeddings": _embeddings(job, part)}, file)
            like = jax.ShapeDtypeStruct((len(part), width), np.float32)
            embeddings[part] = load_tree(file, {"embeddings": like}, "embeddings", "the config")[
                "embeddings"
            ]
            bar.update(len(part))
    return embeddings


def _embeddings(job: Job, part: list[int]) -> np.ndarray:
    size, bucket, model = job.config.batch_size, job.config.bucket, job.target.model
    blocks = []
    for start in range(0, len(part), size):
        ids = [job.queries[index].ids for index in part[start : start + size]]
        batch = make_batch(ids, size, first=0, pad=model.info.pad, bucket=bucket, limit=0)
        made = policy.embeddings(model, job.target.params, batch)
        blocks.append(np.asarray(made)[: batch.rows])
        release_programs()
    return np.concatenate(blocks)


def rows(
    job: Job, outputs: dict[Writer, list[list[int]]], times: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row for each query: outputs, agreement with the target, and times if there are any."""
    plain = {writer.name: _plain(job, made) for writer, made in outputs.items()}
    tokenizer = job.target.tokenizer
    texts = {
        name: tokenizer.batch_decode(made, skip_special_tokens=True) for name, made in plain.items()
    }
    lines = []
    for index, query in enumerate(progress(job.queries, desc="agreement", unit="query")):
        row = {"id": query.id, "task": query.task, "text": query.text}
        row["reference"] = query.reference
        row["outputs"] = {name: texts[name][index] for name in plain}
        row[ROUGE_L], row[TOKEN_LCS] = {}, {}
        for name, arm in job.arms.items():
            if arm.writer is None:
                row[ROUGE_L][name] = row[TOKEN_LCS][name] = None
                continue
            writer = arm.writer.name
            row[ROUGE_L][name] = rouge_l(texts[TARGET][index], texts[writer][index])
            row[TOKEN_LCS][name] = token_lcs(plain[TARGET][index], plain[writer][index])
        lines.append(row | _times(job, times[index]) if times else row)
    return lines


def _plain(job: Job, made: list[list[int]]) -> list[list[int]]:
    """Ids without the end of the text, on which all would agree."""
    ends = set(job.target.model.info.eos)
    return [[token for token in row if token not in ends] for row in made]


def _times(job: Job, measured: dict[str, Any]) -> dict[str, Any]:
    """Measured fields by arm; an arm without drafts is the target alone."""
    return {
        field: {arm: measured[field].get(arm, measured[field][ALONE]) for arm in (*job.arms, ALONE)}
        for field in (SECONDS, TOKENS)
    }
