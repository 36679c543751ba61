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

from specjax.checks import check_integer
from specjax.data import grammar
from specjax.data.pipeline import Arrays, Batches
from specjax.experiments import ahead
from specjax.experiments.config.defaults import make_config
from specjax.experiments.config.fields import check_fields
from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.first_look import show_first_example
from specjax.experiments.decode.planning import Plan, show_plan
from specjax.experiments.decode.session import open_session
from specjax.experiments.decode.show import show
from specjax.experiments.decode.strategies import check_models, load_strategies
from specjax.experiments.pairs import load_pair
from specjax.experiments.recipes.grammar import LAYERS, STEPS, make_training
from specjax.experiments.workdir import read_finished, to_json_settings
from specjax.hf import huggingface
from specjax.hf.tokenizer import train_tokenizer
from specjax.loading import LoadedModel, load
from specjax.models.base import LanguageModel
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config
from specjax.pair import Pair
from specjax.runtime.errors import UserError
from specjax.runtime.files import check_folder, replacing
from specjax.runtime.json_files import write_json
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup
from specjax.training.surgery import deepen, deepen_shape, take, take_layers_shape
from specjax.training.trainer import Run, fit

DONE = "trained.json"
"""Written last: the settings that the models in the workdir were trained with."""

MODELS = ("target", "drafter")

Later = Callable[[], list[ahead.Task]]
"""Programs to compile for the models while they are trained."""

GIVEN = ("target", "drafter", "task", "source_file", "reference_file", "ngram_file")
"""Fields that the quickstart fills with its own files."""

DEEP_RATE = 2e-3
"""Learning rate of the target's last steps."""


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains the missing models and runs the decode experiment.

    Results of the same config in the workdir are only shown.
    """
    planned = check(config)
    check_decode_memory(config, planned.pair, planned.strategies)
    done = read_finished(add_files(config, workdir), workdir)
    if done is not None:
        show(done, workdir)
        return done
    workdir.mkdir(parents=True, exist_ok=True)
    if make_pair(config.training, workdir, lambda: ahead.decodes(planned)):
        print(f"models in {workdir} are already trained; decoding")
    config = add_files(config, workdir)
    session = open_session(config, planned.strategies, load_pair(config), workdir)
    show_first_example(session)
    return decode.finish(session, workdir)


def grammar_pair(
    folder: str | Path, *, steps: int = STEPS, layers: int = LAYERS
) -> tuple[LoadedModel, LoadedModel]:
    """The quickstart's English-German target and drafter, trained into a folder without network.

    With the defaults this takes less than three minutes on two CPU cores; fewer `steps` or decoder
    `layers` of the target take less. A folder of the same settings is only loaded. Next to `target`
    and `drafter` it holds sentences that neither has seen, `test.en` and `test.de`, and the German
    training text, `train.de`.

    Raises:
      UserError: when an argument is invalid.
    """
    check_integer("steps", steps, 1)
    check_integer("layers", layers, 1)
    folder = Path(folder)
    check_folder("folder", folder)
    folder.mkdir(parents=True, exist_ok=True)
    make_pair(make_config("quickstart", training=make_training(steps, layers)).training, folder)
    target, drafter = (load(folder / name) for name in MODELS)
    return target, drafter


def make_pair(training: ConfigDict, workdir: Path, later: Later | None = None) -> bool:
    """Trains the pair and writes its corpus; returns True when both exist already.

    `later` is as in `train_pair`.
    """
    settings = to_json_settings(training)
    if read_trained_settings(workdir) == settings:
        return True
    (workdir / DONE).unlink(missing_ok=True)
    pairs = grammar.pairs("train", training.examples, most_words=training.most_words)
    train_pair(training, pairs, workdir, later)
    write_corpus(training, pairs, workdir)
    write_json(workdir / DONE, settings)
    return False


def plan(config: ConfigDict) -> None:
    """Prints the resources that decoding with the models would need."""
    show_plan(check(config))


def check(config: ConfigDict) -> Plan:
    """Validates the config; returns the plan of decoding with the trained models.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_given(config)
    check_fields(config)
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
    strategies = load_strategies(config)
    check_models(strategies, MODELS)
    shapes = [
        LoadedModel(model, get_parameter_shapes(model), name="trained in the workdir")
        for model in describe_trained_models(
            settings, make_model_shape(target, settings.vocab_size)
        )
    ]
    return Plan(config, strategies, Pair(shapes[0], {"drafter": shapes[1]}))


def check_given(config: ConfigDict) -> None:
    """Refuses models and texts of the user, which the quickstart would ignore.

    Raises:
      UserError: naming the field and the config that reads it.
    """
    for field in GIVEN:
        if config[field]:
            raise UserError(
                f"config.{field} is {config[field]!r}; the quickstart trains a pair of its own and"
                " decodes sentences of its own: for yours take configs/translate.py or"
                " configs/pair.py"
            )


def read_trained_settings(workdir: Path) -> dict[str, Any] | None:
    """Settings of the finished training in a workdir; None when there is none."""
    try:
        return json.loads((workdir / DONE).read_text("utf-8"))
    except (OSError, json.JSONDecodeError):
        return None


def train_pair(
    settings: ConfigDict, pairs: list[grammar.Pair], workdir: Path, later: Later | None = None
) -> None:
    """Trains the tokenizer, the target, and a drafter that begins as the target's first layers.

    Depth costs as much in every training step as in every decoding step, so the target gets most of
    its layers for the last steps only. `later` gives the programs to compile meanwhile.
    """
    tokenizer, batches = encode_pairs(settings, pairs)
    model = make_model_shape(settings.target, len(tokenizer))
    deeper, _ = describe_trained_models(settings, model)
    first, *deep, small = setups(settings, model)
    tasks = ahead.steps([*deep, small], batches[0])
    if later:
        tasks += later()
    with ahead.compile_ahead(tasks):
        init = functools.partial(model.init, jax.random.key(settings.seed))
        params = fit(Run("target", first, init, batches.since))
        rest = batches_since(batches, first.optimizer.steps)
        start = take(model, params, *layers_to_keep(settings.drafter))[1]
        grown = deepen(model, params, deeper.info.depth)[1]
        for setup in deep:
            grown = fit(Run("target, deeper", setup, lambda grown=grown: grown, rest))
        huggingface.save(workdir / "target", deeper, grown, tokenizer)
        start = fit(Run("drafter", small, lambda: start, rest))
        huggingface.save(workdir / "drafter", small.model, start, tokenizer)


def describe_trained_models(settings: ConfigDict, model: T5) -> tuple[T5, LanguageModel]:
    """The deeper target grown from `model`, and the drafter of its first layers."""
    kept = layers_to_keep(settings.drafter)
    return deepen_shape(model, settings.target.deep_layers), take_layers_shape(model, *kept)


def setups(settings: ConfigDict, model: T5) -> list[Setup]:
    """Training setups of the target, of the deeper target if it has steps, and of the drafter."""
    target, (deeper, small) = settings.target, describe_trained_models(settings, model)
    last = {"steps": target.deep_steps, "learning_rate": DEEP_RATE, "warmup": target.warmup}
    return [
        make_setup(model, target),
        *([make_setup(deeper, last)] if target.deep_steps else []),
        make_setup(small, settings.drafter),
    ]


def make_setup(model: LanguageModel, settings: Mapping[str, Any]) -> Setup:
    """Training setup of one stage."""
    numbers = settings["steps"], settings["learning_rate"]
    optimizer = Optimizer(*numbers, name="relative_adam", warmup=settings["warmup"])
    return Setup(model, CrossEntropy(), optimizer)


def encode_pairs(settings: ConfigDict, pairs: list[grammar.Pair]) -> tuple[Any, Batches]:
    """Trains a tokenizer and encodes the training text into batches.

    Longer sentences are left out, so that one shape is compiled.
    """
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    tokenizer = train_tokenizer([*sources, *targets], settings.vocab_size)
    ids = zip(tokenizer(sources).input_ids, tokenizer(targets).input_ids, strict=True)
    short = [pair for pair in ids if max(map(len, pair)) <= settings.most_tokens]
    if len(short) < settings.batch_size:
        raise UserError(
            f"config.training.most_tokens is {settings.most_tokens}, and {len(short)} of"
            f" {len(pairs)} sentences fit into it; it must leave config.training.batch_size,"
            f" {settings.batch_size}"
        )
    model = make_model_shape(settings.target, len(tokenizer))
    return tokenizer, Batches(
        short,
        batch_size=settings.batch_size,
        bucket=settings.most_tokens,
        seed=settings.seed,
        start_token=model.info.start_token,
        pad=model.info.pad,
    )


def batches_since(batches: Batches, first: int) -> Callable[[int], Iterator[Arrays]]:
    """Batches of a stage from step `first` on."""
    return lambda step: batches.since(first + step)


def layers_to_keep(drafter: ConfigDict) -> tuple[range, range]:
    """The target's decoder and encoder layers that initialize the drafter."""
    return range(drafter.num_decoder_layers), range(drafter.num_layers)


def make_model_shape(settings: ConfigDict, vocab_size: int) -> T5:
    """The untrained target model."""
    shape = {f.name: settings[f.name] for f in dataclasses.fields(T5Config) if f.name in settings}
    return T5(T5Config(vocab_size=vocab_size, tied=True, scale_outputs=True, **shape))


def write_corpus(settings: ConfigDict, pairs: list[grammar.Pair], workdir: Path) -> None:
    """Writes held-out sentences to decode and training text for n-grams."""
    held_out = grammar.pairs("test", settings.test_examples, most_words=settings.most_words)
    write_lines(workdir / "test.en", [pair.source for pair in held_out])
    write_lines(workdir / "test.de", [pair.target for pair in held_out])
    write_lines(workdir / "train.de", [pair.target for pair in pairs])


def write_lines(file: Path, lines: list[str]) -> None:
    with replacing(file) as partial:
        partial.write_text("".join(line + "\n" for line in lines), "utf-8")


def add_files(config: ConfigDict, workdir: Path) -> ConfigDict:
    """The decode config that reads the models and texts of the workdir."""
    made = config.copy_and_resolve_references()
    with made.unlocked():
        made.target, made.drafter = str(workdir / "target"), str(workdir / "drafter")
        made.source_file, made.reference_file = str(workdir / "test.en"), str(workdir / "test.de")
        made.ngram_file = str(workdir / "train.de")
    return made
