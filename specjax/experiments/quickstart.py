"""The embedded default: trains a tiny pair on the built-in grammar, then decodes with it.

Trained models stay in the workdir; a second run with the same settings skips the training.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from specjax.api import LoadedModel, load
from specjax.checkpoints import huggingface
from specjax.checkpoints.tokenizer import train_tokenizer
from specjax.checks import check_integer
from specjax.data import grammar
from specjax.data.grammar import MOST_PAIRS
from specjax.data.pipeline import Arrays, Batches, TokenPair
from specjax.errors import UserError
from specjax.experiments.config.fields import check_fields, check_integers, check_numbers
from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.decode import job as decode
from specjax.experiments.decode import planning
from specjax.experiments.decode.strategies import check_models, load_strategies
from specjax.experiments.recipes.grammar import LAYERS, STEPS, training
from specjax.models.base import Params
from specjax.models.t5 import T5, T5Config
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup
from specjax.training.surgery import deepen
from specjax.training.trainer import Run, fit
from specjax.writing import check_folder, replacing, write_json

DONE = "trained.json"
"""Written last: the settings that the models in the workdir were trained with."""

MODELS = ("target", "drafter")

_SIZES = {
    **dict.fromkeys(("batch_size", "bucket", "steps"), 1),
    **dict.fromkeys(
        ("d_model", "d_kv", "num_heads", "d_ff", "num_layers", "num_decoder_layers"), 1
    ),
    **dict.fromkeys(("warmup", "deep_steps", "deep_layers", "seed"), 0),
}
_LEAST = {
    **{f"training.{name}.{field}": least for name in MODELS for field, least in _SIZES.items()},
    **{"training.examples": 1, "training.test_examples": 1, "training.vocab_size": 16},
}


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains what is not there yet and runs the decode experiment."""
    check_decode_memory(config, check(config), load_strategies(config))
    workdir.mkdir(parents=True, exist_ok=True)
    if make_pair(config.training, workdir):
        print(f"models in {workdir} are already trained; decoding")
    return decode.run(with_files(config, workdir), workdir)


def grammar_pair(
    folder: str | Path, *, steps: int = STEPS, layers: int = LAYERS
) -> tuple[LoadedModel, LoadedModel]:
    """The quickstart's English-German target and drafter, trained into a folder without network.

    As it stands this takes about three minutes on two CPU cores; fewer `steps` of training or
    decoder `layers` of the target take less. What the folder has by the same settings is only
    loaded. Beside `target` and `drafter` it holds sentences that neither has seen, `test.en` and
    `test.de`, and the German training text, `train.de`.

    Raises:
      UserError: when an argument is of no use.
    """
    check_integer("steps", steps, 1)
    check_integer("layers", layers, 1)
    folder = Path(folder)
    check_folder("folder", folder)
    folder.mkdir(parents=True, exist_ok=True)
    make_pair(training(steps, layers), folder)
    target, drafter = (load(folder / name) for name in MODELS)
    return target, drafter


def make_pair(training: ConfigDict, workdir: Path) -> bool:
    """Trains the pair and writes its corpus; True when the workdir has both already."""
    settings = json.loads(json.dumps(training.to_dict()))
    if trained_with(workdir) == settings:
        return True
    (workdir / DONE).unlink(missing_ok=True)
    train_pair(training, workdir)
    write_corpus(training, workdir)
    write_json(workdir / DONE, settings)
    return False


def plan(config: ConfigDict) -> None:
    """Prints what decoding with the models would need."""
    models = check(config)
    planning.plan(config, dict.fromkeys(models, "trained in the workdir"), models)


def check(config: ConfigDict) -> dict[str, T5]:
    """Refuses fields that no run could use; returns the models as they will be decoded with.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_fields(config)
    check_integers(config, _LEAST)
    check_numbers(config, {f"training.{name}.learning_rate": (1e-9, 1e3) for name in MODELS})
    settings = config.training
    for name in MODELS:
        own = settings[name]
        if own.deep_layers < own.num_decoder_layers:
            raise UserError(
                f"config.training.{name}.deep_layers is {own.deep_layers}; it must be at least"
                f" config.training.{name}.num_decoder_layers, {own.num_decoder_layers}"
            )
    for field in ("examples", "test_examples"):
        if settings[field] > MOST_PAIRS:
            raise UserError(
                f"config.training.{field} is {settings[field]:,}; it must be at most"
                f" {MOST_PAIRS:,}, as sentences are made one by one"
            )
    check_models(load_strategies(config), MODELS)
    shapes = {name: shape_of(settings[name], settings.vocab_size) for name in MODELS}
    return {
        name: T5(dataclasses.replace(model.config, num_decoder_layers=settings[name].deep_layers))
        for name, model in shapes.items()
    }


def trained_with(workdir: Path) -> dict[str, Any] | None:
    """Settings of the finished training in a workdir, None when there is none."""
    try:
        return json.loads((workdir / DONE).read_text("utf-8"))
    except (OSError, json.JSONDecodeError):
        return None


def train_pair(settings: ConfigDict, workdir: Path) -> None:
    """Trains the tokenizer, the target and the drafter."""
    pairs = grammar.pairs("train", settings.examples)
    sides = [side for pair in pairs for side in (pair.source, pair.target)]
    tokenizer = train_tokenizer(sides, settings.vocab_size)
    ids = list(
        zip(
            tokenizer([pair.source for pair in pairs]).input_ids,
            tokenizer([pair.target for pair in pairs]).input_ids,
            strict=True,
        )
    )
    for name in MODELS:
        model, params = train_model(settings[name], len(tokenizer), ids, name)
        huggingface.save(workdir / name, model, params, tokenizer)


def train_model(
    settings: ConfigDict, vocab_size: int, ids: list[TokenPair], name: str
) -> tuple[T5, Params]:
    """Trains one model; a target may be made deeper for the last steps.

    Depth costs as much in every training step as in every decoding step, so most of the training
    is done before it.
    """
    model = shape_of(settings, vocab_size)
    batches = Batches(
        ids,
        batch_size=settings.batch_size,
        bucket=settings.bucket,
        seed=settings.seed,
        start_token=model.start_token,
        pad=model.pad,
    )
    adam = {"name": "relative_adam", "warmup": settings.warmup}
    first = Optimizer(settings.steps, settings.learning_rate, **adam)
    init = functools.partial(model.init, jax.random.key(settings.seed))
    params = fit(Run(name, Setup(model, CrossEntropy(), first), init, batches.since))
    if not settings.deep_steps:
        return model, params
    model, params = deepen(model, params, settings.deep_layers)
    last = Optimizer(settings.deep_steps, 2e-3, **adam)
    setup = Setup(model, CrossEntropy(), last)

    def rest(step: int) -> Iterator[Arrays]:
        return batches.since(settings.steps + step)

    return model, fit(Run(f"{name}, deeper", setup, lambda: params, rest))


def shape_of(settings: ConfigDict, vocab_size: int) -> T5:
    """The model that training starts with."""
    shape = {f.name: settings[f.name] for f in dataclasses.fields(T5Config) if f.name in settings}
    return T5(T5Config(vocab_size=vocab_size, tied=True, scale_outputs=True, **shape))


def write_corpus(settings: ConfigDict, workdir: Path) -> None:
    """Held-out sentences to decode, and training text for n-grams."""
    pairs = grammar.pairs("test", settings.test_examples)
    write_lines(workdir / "test.en", [pair.source for pair in pairs])
    write_lines(workdir / "test.de", [pair.target for pair in pairs])
    text = grammar.pairs("train", settings.examples)
    write_lines(workdir / "train.de", [pair.target for pair in text])


def write_lines(file: Path, lines: list[str]) -> None:
    with replacing(file) as partial:
        partial.write_text("".join(line + "\n" for line in lines), "utf-8")


def with_files(config: ConfigDict, workdir: Path) -> ConfigDict:
    """The decode config that reads what the workdir holds."""
    made = config.copy_and_resolve_references()
    with made.unlocked():
        made.target, made.drafter = str(workdir / "target"), str(workdir / "drafter")
        made.source_file, made.reference_file = str(workdir / "test.en"), str(workdir / "test.de")
        made.ngram_file = str(workdir / "train.de")
    return made
