"""Training a model: fine-tuning, alignment, distillation, early exits, from scratch.

The config (`training.train_config`) has a model (a checkpoint, some of its layers, or a shape),
sequences (of the data, of the target, of the model itself) and an objective.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from specjax.data.pipeline import (
    Mixture,
    Pairs,
    count_lengths,
    count_states,
    fit_widths,
    pad_batch,
)
from specjax.data.text import Example
from specjax.experiments.config.fields import (
    DTYPES,
    check_rows_per_device,
    generation_arguments,
)
from specjax.experiments.decode.data import NO_METRIC, check_chat, check_one_source
from specjax.experiments.train import data as train_data
from specjax.experiments.train.calibration import calibrate, check_calibration, show_calibration
from specjax.experiments.train.feature_drafter import adopt_target, check_fits
from specjax.experiments.train.model import check_start, load_start
from specjax.experiments.train.objective import (
    list_fixed,
    list_teacher_objectives,
    make_frozen,
    make_objective,
)
from specjax.experiments.train.on_topology import plan_on_topology
from specjax.experiments.train.planning import check_memory, show_plan
from specjax.experiments.train.scores import Heldout, Scores, decodable
from specjax.experiments.train.subject import Subject, make_subject
from specjax.experiments.train.target_outputs import make_prompt
from specjax.experiments.train.with_input import make_input_parts
from specjax.experiments.workdir import check_settings, write_settings
from specjax.hf.speech import in_language
from specjax.hf.tokenizer import check_same_vocabulary
from specjax.loading import LoadedModel, load
from specjax.measuring.environment import environment
from specjax.models.base import Params
from specjax.models.info import ModelInfo
from specjax.models.on_target import FeatureDrafter
from specjax.parallel.fully_sharded import FullySharded, gather_params
from specjax.parallel.mesh import make_mesh_of_shape
from specjax.parallel.sharding import Layout, own_rows
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json
from specjax.training import log
from specjax.training.log import evaluations
from specjax.training.objective import Frozen, Objective
from specjax.training.on_policy import OwnSequences
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup
from specjax.training.trainer import Run, fit

FREE = ("mesh", "fully_sharded", "log")
"""Fields that a resumed run may change: placement of arrays, and logging."""


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains to the end, or resumes the workdir's run; returns results.json."""
    check_train_fields(config)
    check_settings(config, workdir, FREE)
    check_memory(config)
    mesh = make_mesh_of_shape(config.mesh.to_dict())
    target = load_target(config, mesh)
    start = load_start(config, target, mesh)
    if target is not None:
        check_same_vocabulary("in training", start, target)
    texts = train_data.load_texts(config)
    encoder = train_data.make_encoder(config, start)
    objective = make_objective(config)
    check_fits(config, objective, start.model)
    check_calibration(objective, start.model, len(texts.validation))
    given = make_input_parts(config, encoder, start, target, workdir)
    if given:
        start, target, encoder = given.start, given.target, given.encoder
    parts = make_parts(config, start, objective, target, texts, encoder)
    parts.scores.check(config.evaluation.keep)
    # After all checks: a refused config must not claim the workdir.
    write_settings(config, workdir)
    missing = train_data.rows_without_output(texts.validation)
    generator_model = target if config.sequences.target or missing else None
    writer = decodable(parts.setup.sharded, generator_model) if generator_model else None
    streams = train_data.streams_of(config, encoder, texts.train, writer, workdir)
    validation = train_data.validation_pairs(config, encoder, texts.validation, writer, workdir)
    del writer  # may be replicated where the target is sharded
    if not config.model.checkpoint and target and isinstance(start.model, FeatureDrafter):
        start = adopt_target(
            start, target, (row for rows in streams.values() for row in rows.outputs)
        )
        parts = make_parts(config, start, objective, target, texts, encoder)
    if missing:
        info = train_data.get_decoder_info(start, target)
        parts.scores.heldout = make_heldout(config, info, texts.validation, validation)
    batches = train_data.mixture(config, train_data.get_decoder_info(start, target), streams)
    params = fit(run_of(config, parts, batches), workdir)
    heldout = parts.scores.heldout.batches
    subject, figures = calibrate(parts.subject, parts.setup, parts.frozen, heldout, params)
    subject = given.with_encoder(subject) if given else subject
    places = subject.save(params, workdir)
    return write_results(config, subject, texts, places, workdir, figures)


@dataclasses.dataclass(frozen=True)
class Parts:
    """Trained model, objective, frozen models and scores of a run."""

    subject: Subject
    setup: Setup
    frozen: Frozen
    scores: Scores


def make_parts(
    config: ConfigDict,
    start: LoadedModel,
    objective: Objective,
    target: LoadedModel | None,
    texts: train_data.Texts,
    encoder: train_data.AnyEncoder,
) -> Parts:
    """The parts of a run that begins with a model."""
    fixed = list_fixed(config, objective, start)
    subject = make_subject(objective, start, config.seed, fixed)
    setup = make_setup(config, start, objective)
    frozen = make_frozen(objective, start, target, fixed)
    scores = make_scores(config, setup, frozen, subject, target, texts, encoder)
    return Parts(subject, setup, frozen, scores)


def load_target(config: ConfigDict, mesh: Mesh | None) -> LoadedModel | None:
    """The target of a config, if it has one."""
    if not config.target:
        return None
    target = load(
        config.target,
        DTYPES[config.dtype],
        mesh=mesh,
        fully_sharded=config.fully_sharded,
        **generation_arguments(config),
    )
    return in_language(target, **config.speech)


def plan(config: ConfigDict) -> dict[str, Any] | None:
    """Prints the required resources; on a topology returns the compiler's report."""
    check_train_fields(config)
    show_plan(config)
    return plan_on_topology(config, make_setup) if config.topology else None


def check_train_fields(config: ConfigDict) -> None:
    """Refuses values that no run could use.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    for side in ("train", "validation"):
        check_one_source(config[side], f"config.{side}")
    check_chat(config)
    objective = make_objective(config)
    check_schedule(config)
    check_rows_per_device(
        config, "batch_size", "evaluation.batch_size", "target_outputs.batch_size"
    )
    check_start(config)
    log.check_installed("config.log.wandb_project", config.log.wandb_project)
    if config.batch_size % config.accumulate:
        raise UserError(
            f"config.batch_size is {config.batch_size}; it must be a multiple of config.accumulate,"
            f" {config.accumulate}"
        )
    if not any(config.sequences.values()):
        raise UserError(
            "config.sequences is all zero; one of data, target, drafter must have a share"
        )
    for field, needed in (
        ("sequences.target", config.sequences.target > 0),
        ("objective.name", objective.needs_teacher or objective.on_target),
    ):
        if needed and not config.target:
            raise UserError(f"config.target is empty; config.{field} needs a directory or hub id")
    if config.sequences.drafter and not objective.needs_teacher:
        raise UserError(
            "config.sequences.drafter is on-policy, which teaches nothing without a target's"
            f" distributions; config.objective.name must be {list_teacher_objectives()}"
        )
    make_optimizer(config)


def check_schedule(config: ConfigDict) -> None:
    """Refuses a learning rate that is still growing when the run ends."""
    steps, warmup = config.optimizer.steps, config.optimizer.warmup
    if warmup > steps:
        raise UserError(
            f"config.optimizer.warmup is {warmup:,}; it must be at most config.optimizer.steps,"
            f" {steps:,}"
        )


def make_optimizer(config: ConfigDict) -> Optimizer:
    """The optimizer of a config."""
    return Optimizer(**config.optimizer.to_dict())


def make_setup(config: ConfigDict, start: LoadedModel, objective: Objective) -> Setup:
    """The static settings of the training step."""
    return Setup(
        start.model,
        objective,
        make_optimizer(config),
        config.accumulate,
        config.dropout > 0,
        config.seed,
        None if config.dtype == "float32" else DTYPES[config.dtype],
        FullySharded(start.mesh) if start.mesh and config.fully_sharded else None,
    )


def make_scores(
    config: ConfigDict,
    setup: Setup,
    frozen: Frozen,
    subject: Subject,
    target: LoadedModel | None,
    texts: train_data.Texts,
    encoder: train_data.AnyEncoder,
) -> Scores:
    """The scores of evaluations; with a frozen trunk only the loss changes."""
    settings = config.evaluation
    rows = train_data.encode(encoder, texts.validation, "validation")
    info = train_data.get_decoder_info(subject.start, target)
    return Scores(
        setup,
        frozen,
        subject,
        make_heldout(config, info, texts.validation, rows),
        texts.metric if settings.decode and subject.changes_model else NO_METRIC,
        config.max_output_tokens,
        config.max_prompt_tokens,
        config.bucket,
        settings.batch_size,
        target,
        tuple(settings.acceptance) if target and subject.changes_model else (),
    )


def make_heldout(
    config: ConfigDict, info: ModelInfo, examples: list[Example], pairs: Pairs
) -> Heldout:
    """Validation rows in batches of similar length; the last one is filled up with masked rows."""
    order = sorted(range(len(pairs)), key=lambda i: sum(map(len, pairs[i])))
    size, batches = config.evaluation.batch_size, []
    states = count_states(pairs)
    for first in range(0, len(order), size):
        rows = [pairs[i] for i in order[first : first + size]]
        filled = rows + rows[-1:] * (size - len(rows))
        given = config.bucket, info.start_token
        batch = pad_batch(
            filled, *given, info.pad, config.learn_prompt, forced=len(info.forced),
            widths=fit_widths(count_lengths(filled), *given, states),
        )  # fmt: skip
        batch["mask"][len(rows) :] = False
        batches.append(batch)
    return Heldout(list(map(make_prompt, pairs.prompts)), [e.reference for e in examples], batches)


def run_of(config: ConfigDict, parts: Parts, batches: Mixture) -> Run:
    """The run of a config."""
    subject, setup = parts.subject, parts.setup
    start = subject.start
    layout = None if start.mesh is None else Layout(start.mesh, (("target", 0),))
    own = OwnSequences(
        start.model, config.max_output_tokens, setup.objective.sample_temperature, config.seed,
        config.bucket, layout,
    )  # fmt: skip
    share = own_rows(start.mesh, config.batch_size) if processes.has_several() else None

    def prepare(params: Params, step: int, batch: Any) -> Any:
        if batches.kinds[step] != "drafter":
            return batch
        params = subject.model_params(gather_params(setup.sharded, start.model, params))
        if share is None:
            return own(params, step, batch)
        # All processes decode the whole batch together.
        return {name: rows[share] for name, rows in own(params, step, batches[step]).items()}

    keep = config.evaluation.keep
    return Run(
        config.name or config.objective.name,
        setup,
        lambda: subject.params,
        functools.partial(batches.since, share=share),
        prepare,
        parts.scores,
        config.evaluation.every,
        parts.frozen,
        keep,
        keep != "loss",
        start.mesh,
        more_logs(config),
    )


def more_logs(config: ConfigDict) -> Callable[[Path], Any] | None:
    """Opener of a log in addition to TensorBoard; None if none is configured."""
    project = config.log.wandb_project
    name = config.name or config.objective.name
    return functools.partial(log.start, project, name, config.to_dict()) if project else None


def write_results(
    config: ConfigDict,
    subject: Subject,
    texts: train_data.Texts,
    places: list[Path],
    workdir: Path,
    calibration: dict[str, Any],
) -> dict[str, Any]:
    """Writes results.json with every evaluation; prints the first and the best one."""
    evaluated = processes.from_first(evaluations(workdir))
    keep = config.evaluation.keep
    best = (min if keep == "loss" else max)(evaluated[1:], key=lambda row: row[keep])
    results = {
        "environment": environment(),
        "config": config.to_dict(),
        "data": {"train": len(texts.train), "validation": len(texts.validation)},
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(subject.start.params)),
        "evaluations": evaluated,
        "best": best,
    }
    if calibration:
        results["calibration"] = calibration
    write_json(workdir / "results.json", results)
    for label, row in (("before", evaluated[0]), (f"step {int(best['step'])}", best)):
        scores = ", ".join(f"{name} {value:.4f}" for name, value in row.items() if name != "step")
        print(f"{label:>12}: {scores}")
    show_calibration(calibration)
    print(f"{' and '.join(map(str, places))}: the parameters with the best {keep}")
    return results
