"""The embedded default: trains a tiny pair on the built-in grammar, then decodes with it.

Trained models stay in the workdir; a second run with the same settings skips the training.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
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
from specjax.data.pipeline import Arrays, Batches
from specjax.errors import UserError
from specjax.experiments.config.fields import check_fields, check_integers, check_numbers
from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.decode import job as decode
from specjax.experiments.decode import planning
from specjax.experiments.decode.look import first_look
from specjax.experiments.decode.strategies import check_models, load_strategies
from specjax.experiments.recipes.grammar import LAYERS, STEPS, training
from specjax.models.base import Params
from specjax.models.t5 import T5, T5Config
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup
from specjax.training.surgery import deepen, layers_taken, take
from specjax.training.trainer import Run, fit
from specjax.writing import check_folder, replacing, write_json

DONE = "trained.json"
"""Written last: the settings that the models in the workdir were trained with."""

MODELS = ("target", "drafter")

DEEP_RATE = 2e-3
"""Learning rate of the target's last steps."""

_SHAPE = ("d_model", "d_kv", "num_heads", "d_ff", "num_layers", "num_decoder_layers")
_LEAST = {
    **{f"training.{field}": 1 for field in ("examples", "test_examples", "most_tokens")},
    **{"training.batch_size": 1, "training.vocab_size": 16, "training.seed": 0},
    **{f"training.target.{field}": 1 for field in _SHAPE},
    **{f"training.target.{field}": 0 for field in ("deep_steps", "deep_layers")},
    **{f"training.drafter.{field}": 1 for field in ("num_layers", "num_decoder_layers")},
    **{f"training.{name}.steps": 1 for name in MODELS},
    **{f"training.{name}.warmup": 0 for name in MODELS},
}


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains what is not there yet and runs the decode experiment."""
    check_decode_memory(config, check(config), load_strategies(config))
    workdir.mkdir(parents=True, exist_ok=True)
    if make_pair(config.training, workdir):
        print(f"models in {workdir} are already trained; decoding")
    config = with_files(config, workdir)
    job = decode.prepare(config, decode.load_models(config))
    first_look(job)
    return decode.finish(job, workdir)


def grammar_pair(
    folder: str | Path, *, steps: int = STEPS, layers: int = LAYERS
) -> tuple[LoadedModel, LoadedModel]:
    """The quickstart's English-German target and drafter, trained into a folder without network.

    As it stands this takes less than three minutes on two CPU cores; fewer `steps` of training or
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
    settings, target = config.training, config.training.target
    if target.deep_layers < target.num_decoder_layers:
        raise UserError(
            f"config.training.target.deep_layers is {target.deep_layers}; it must be at least"
            f" config.training.target.num_decoder_layers, {target.num_decoder_layers}"
        )
    for field in ("num_layers", "num_decoder_layers"):
        if settings.drafter[field] > target[field]:
            raise UserError(
                f"config.training.drafter.{field} is {settings.drafter[field]}; it must be at most"
                f" config.training.target.{field}, {target[field]}: the drafter begins as the"
                " target's first layers"
            )
    for field in ("examples", "test_examples"):
        if settings[field] > MOST_PAIRS:
            raise UserError(
                f"config.training.{field} is {settings[field]:,}; it must be at most"
                f" {MOST_PAIRS:,}, as sentences are made one by one"
            )
    check_models(load_strategies(config), MODELS)
    model = shape_of(target, settings.vocab_size)
    deep = dataclasses.replace(model.config, num_decoder_layers=target.deep_layers)
    return {"target": T5(deep), "drafter": layers_taken(model, *kept_layers(settings.drafter))}


def trained_with(workdir: Path) -> dict[str, Any] | None:
    """Settings of the finished training in a workdir, None when there is none."""
    try:
        return json.loads((workdir / DONE).read_text("utf-8"))
    except (OSError, json.JSONDecodeError):
        return None


def train_pair(settings: ConfigDict, workdir: Path) -> None:
    """Trains the tokenizer, the target, and a drafter that begins as the target's first layers.

    Depth costs as much in every training step as in every decoding step, so the target gets most
    of its layers for the last steps only.
    """
    target, drafter = settings.target, settings.drafter
    tokenizer, batches = encoded(settings)
    model = shape_of(target, len(tokenizer))
    init = functools.partial(model.init, jax.random.key(settings.seed))
    params = trained("target", model, init, target, batches.since)
    small, start = take(model, params, *kept_layers(drafter))
    deep, grown = deepen(model, params, target.deep_layers)
    if target.deep_steps:
        last = {"steps": target.deep_steps, "learning_rate": DEEP_RATE, "warmup": target.warmup}
        later = since(batches, target.steps)
        grown = trained("target, deeper", deep, lambda: grown, last, later)
    huggingface.save(workdir / "target", deep, grown, tokenizer)
    start = trained("drafter", small, lambda: start, drafter, since(batches, target.steps))
    huggingface.save(workdir / "drafter", small, start, tokenizer)


def encoded(settings: ConfigDict) -> tuple[Any, Batches]:
    """A tokenizer of the training text, and the batches of it.

    Longer sentences are left out: one shape is compiled.
    """
    pairs = grammar.pairs("train", settings.examples)
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    tokenizer = train_tokenizer([*sources, *targets], settings.vocab_size)
    ids = zip(tokenizer(sources).input_ids, tokenizer(targets).input_ids, strict=True)
    short = [pair for pair in ids if max(map(len, pair)) <= settings.most_tokens]
    if len(short) < settings.batch_size:
        raise UserError(
            f"config.training.most_tokens is {settings.most_tokens}, which {len(short)} of"
            f" {len(pairs)} sentences keep to; it must leave config.training.batch_size,"
            f" {settings.batch_size}"
        )
    model = shape_of(settings.target, len(tokenizer))
    return tokenizer, Batches(
        short,
        batch_size=settings.batch_size,
        bucket=settings.most_tokens,
        seed=settings.seed,
        start_token=model.start_token,
        pad=model.pad,
    )


def since(batches: Batches, first: int) -> Callable[[int], Iterator[Arrays]]:
    """Batches of a stage that begins with those of step `first`."""
    return lambda step: batches.since(first + step)


def trained(
    name: str,
    model: T5,
    init: Callable[[], Params],
    settings: Mapping[str, Any],
    batches: Callable[[int], Iterator[Arrays]],
) -> Params:
    """The parameters after one stage; those that `init` gives are consumed."""
    numbers = settings["steps"], settings["learning_rate"]
    optimizer = Optimizer(*numbers, name="relative_adam", warmup=settings["warmup"])
    return fit(Run(name, Setup(model, CrossEntropy(), optimizer), init, batches))


def kept_layers(drafter: ConfigDict) -> tuple[range, range]:
    """The target's decoder and encoder layers that the drafter begins with."""
    return range(drafter.num_decoder_layers), range(drafter.num_layers)


def shape_of(settings: ConfigDict, vocab_size: int) -> T5:
    """The target that training starts with."""
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
