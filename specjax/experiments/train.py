"""Training a model: fine-tuning, alignment, distillation, early exits, from scratch.

The config (`defaults.train_config`) says it all: a model (a checkpoint, layers of one, or a shape),
sequences (of the data, of the target, of the model itself) and an objective.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from specjax.api import LoadedModel, load
from specjax.checkpoints import huggingface
from specjax.checkpoints.tokenizer import check_same_vocabulary
from specjax.data.encoding import Encoder
from specjax.data.pipeline import Mixture, pad_batch
from specjax.data.text import Example
from specjax.errors import UserError
from specjax.evaluation.environment import environment
from specjax.evaluation.files import write_json
from specjax.experiments import train_data
from specjax.experiments.fields import (
    DTYPES,
    check_choices,
    check_integers,
    check_numbers,
    check_rows_per_device,
)
from specjax.experiments.train_model import check_start, load_start
from specjax.experiments.train_plan import show_plan
from specjax.experiments.train_scores import Heldout, Scores
from specjax.models.base import Params
from specjax.parallel.mesh import mesh_of
from specjax.parallel.sharding import Layout
from specjax.training.log import evaluations
from specjax.training.loss import DIVERGENCES
from specjax.training.objective import CrossEntropy, Distillation, Objective, exit_weights
from specjax.training.on_policy import OwnSequences
from specjax.training.optimizer import Optimizer
from specjax.training.step import Task
from specjax.training.surgery import decoder_layers
from specjax.training.trainer import Run, fit

SETTINGS = "settings.json"
"""In the workdir: the config of the run that it holds."""

MODEL = "model"
"""In the workdir: the best parameters in Hugging Face format."""

EXITS = {
    "last": lambda layers: (),
    "first_and_last": lambda layers: (1, layers),
    "all": lambda layers: tuple(range(1, layers + 1)),
}

_LEAST = {
    "optimizer.steps": 1,
    "optimizer.warmup": 0,
    "batch_size": 1,
    "accumulate": 1,
    "bucket": 1,
    "max_prompt_tokens": 1,
    "max_output_tokens": 1,
    "seed": 0,
    "target_outputs.batch_size": 1,
    "evaluation.every": 1,
    "evaluation.batch_size": 1,
}
_CHOICES = {
    "dtype": tuple(DTYPES),
    "objective.name": ("cross_entropy", "distillation"),
    "objective.exits": tuple(EXITS),
    "objective.exit_weights": ("equal", "linear"),
    "objective.divergence": tuple(DIVERGENCES),
}
_RANGES = {
    "objective.smoothing": (0.0, 0.99),
    "objective.label_weight": (0.0, 1.0),
    "objective.temperature": (1e-3, 1e3),
    "dropout": (0.0, 0.99),
    "target_outputs.temperature": (0.0, 1e3),
    "sequences.data": (0.0, 1e6),
    "sequences.target": (0.0, 1e6),
    "sequences.drafter": (0.0, 1e6),
    "optimizer.learning_rate": (1e-9, 1e3),
    "optimizer.clip": (0.0, 1e6),
}


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains to the end, or goes on where the workdir's run stopped; returns results.json."""
    check_train_fields(config)
    workdir.mkdir(parents=True, exist_ok=True)
    same_settings(config, workdir)
    mesh = mesh_of(config.mesh.to_dict())
    target = load(config.target, DTYPES[config.dtype], mesh=mesh) if config.target else None
    start = load_start(config, target, mesh)
    if target is not None:
        check_same_vocabulary("in training", start, target)
    texts = train_data.load_texts(config)
    encoder = train_data.encoder_of(config, start.model, start.tokenizer)
    task, frozen = task_of(config, start, target), frozen_of(config, target)
    scores = scores_of(config, task, frozen, start, target, texts, encoder)
    scores.check(config.evaluation.keep)
    batches = train_data.mixture(config, start.model, encoder, texts.train, target, workdir)
    params = fit(run_of(config, start, task, frozen, batches, scores), workdir)
    huggingface.save(workdir / MODEL, start.model, params, start.tokenizer)
    return write_results(config, start, texts, workdir)


def plan(config: ConfigDict) -> None:
    """Prints what the run would need."""
    check_train_fields(config)
    show_plan(config)


def check_train_fields(config: ConfigDict) -> None:
    """Refuses values that no run could use.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_integers(config, _LEAST)
    check_choices(config, _CHOICES)
    check_numbers(config, _RANGES)
    check_rows_per_device(config)
    check_start(config.model)
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
        ("objective.name", config.objective.name == "distillation"),
    ):
        if needed and not config.target:
            raise UserError(f"config.target is empty; config.{field} needs a directory or hub id")
    if config.sequences.drafter and config.objective.name != "distillation":
        raise UserError(
            "config.sequences.drafter is on-policy, which teaches nothing without a target's laws;"
            " config.objective.name must be distillation"
        )
    optimizer_of(config)


def same_settings(config: ConfigDict, workdir: Path) -> None:
    """Refuses a workdir that holds a run of another config; notes the config of a new one."""
    settings = json.loads(json.dumps(config.to_dict()))
    file = workdir / SETTINGS
    if not file.exists():
        write_json(file, settings)
        return
    for field, (before, now) in differences(json.loads(file.read_text("utf-8")), settings):
        raise UserError(
            f"{str(workdir)!r} holds a run with {field} {before!r}, this config has {now!r}; give"
            " another --workdir, or remove that one"
        )


def differences(first: Any, second: Any, where: str = "config") -> Any:
    """Dotted paths at which two trees differ, with both values."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            yield from differences(first.get(key), second.get(key), f"{where}.{key}")
    elif first != second:
        yield where, (first, second)


def optimizer_of(config: ConfigDict) -> Optimizer:
    """The optimiser of a config."""
    return Optimizer(**config.optimizer.to_dict())


def task_of(config: ConfigDict, start: LoadedModel, target: LoadedModel | None) -> Task:
    """Everything static of the training step."""
    return Task(
        start.model,
        objective_of(config, decoder_layers(start.model), target),
        optimizer_of(config),
        config.accumulate,
        config.dropout > 0,
        config.seed,
    )


def objective_of(config: ConfigDict, layers: int, target: LoadedModel | None) -> Objective:
    """What is minimised."""
    settings = config.objective
    if settings.name == "distillation":
        return Distillation(
            target.model, settings.divergence, settings.temperature, settings.label_weight
        )
    exits = EXITS[settings.exits](layers)
    return CrossEntropy(settings.smoothing, exits, exit_weights(exits, settings.exit_weights))


def frozen_of(config: ConfigDict, target: LoadedModel | None) -> dict[str, Params]:
    """Parameters that the objective reads and nobody changes."""
    return {"teacher": target.params} if config.objective.name == "distillation" else {}


def scores_of(
    config: ConfigDict,
    task: Task,
    frozen: Mapping[str, Params],
    start: LoadedModel,
    target: LoadedModel | None,
    texts: train_data.Texts,
    encoder: Encoder,
) -> Scores:
    """What evaluations measure."""
    settings = config.evaluation
    return Scores(
        task,
        frozen,
        start,
        heldout(config, start, encoder, texts.validation),
        texts.metric if settings.decode else "none",
        config.max_output_tokens,
        config.max_prompt_tokens,
        config.bucket,
        settings.batch_size,
        target,
        tuple(settings.acceptance) if target else (),
    )


def heldout(
    config: ConfigDict, start: LoadedModel, encoder: Encoder, examples: list[Example]
) -> Heldout:
    """Validation rows in batches of similar length; the last one is filled up with masked rows."""
    pairs = train_data.encode(encoder, examples, "validation")
    order = sorted(range(len(pairs)), key=lambda i: sum(map(len, pairs[i])))
    size = config.evaluation.batch_size
    batches = []
    for first in range(0, len(order), size):
        rows = [pairs[i] for i in order[first : first + size]]
        filled = rows + rows[-1:] * (size - len(rows))
        ends = start.model.start_token, start.model.pad
        batch = pad_batch(filled, config.bucket, *ends, config.learn_prompt)
        batch["mask"][len(rows) :] = False
        batches.append(batch)
    prompts = [prompt.tolist() for prompt in pairs.prompts]
    return Heldout(prompts, [example.reference for example in examples], batches)


def run_of(
    config: ConfigDict,
    start: LoadedModel,
    task: Task,
    frozen: Mapping[str, Params],
    batches: Mixture,
    scores: Scores,
) -> Run:
    """The run of a config."""
    layout = None if start.mesh is None else Layout(start.mesh, ("target",))
    own = OwnSequences(
        start.model, config.max_output_tokens, config.objective.temperature, config.seed,
        config.bucket, layout,
    )  # fmt: skip

    def prepare(params: Params, step: int, batch: Any) -> Any:
        return own(params, step, batch) if batches.kinds[step] == "drafter" else batch

    keep = config.evaluation.keep
    return Run(
        config.name or config.objective.name,
        task,
        lambda: start.params,
        batches.since,
        prepare,
        scores,
        config.evaluation.every,
        frozen,
        keep,
        keep != "loss",
        start.mesh,
    )


def write_results(
    config: ConfigDict, start: LoadedModel, texts: train_data.Texts, workdir: Path
) -> dict[str, Any]:
    """results.json: where, what, and every evaluation; prints the first and the best one."""
    found = evaluations(workdir)
    keep = config.evaluation.keep
    best = (min if keep == "loss" else max)(found[1:], key=lambda row: row[keep])
    results = {
        "environment": environment(),
        "config": config.to_dict(),
        "data": {"train": len(texts.train), "validation": len(texts.validation)},
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(start.params)),
        "evaluations": found,
        "best": best,
    }
    write_json(workdir / "results.json", results)
    for label, row in (("before", found[0]), (f"step {int(best['step'])}", best)):
        scores = ", ".join(f"{name} {value:.4f}" for name, value in row.items() if name != "step")
        print(f"{label:>12}: {scores}")
    print(f"{workdir / MODEL} holds the parameters with the best {keep}")
    return results
