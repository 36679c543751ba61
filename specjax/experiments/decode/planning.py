"""`--dry_run`: what a decode experiment would need, worked out from shapes alone.

Nothing is downloaded but small configuration files, nothing is allocated: programs are traced with
`jax.eval_shape` at full size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from specjax.accelerators.chips import GIB
from specjax.checkpoints import heads
from specjax.checkpoints.beside import check_target
from specjax.checkpoints.huggingface import describe
from specjax.checkpoints.shared_encoder import borrowing_of
from specjax.checkpoints.spoken import told
from specjax.core.fields import CORPUS, HEADS
from specjax.data import corpus
from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder, ahead_of, check_resources
from specjax.decoding.strategy import DRAWN, Strategy
from specjax.errors import UserError
from specjax.experiments.config.choosing import selection_trees
from specjax.experiments.config.fields import (
    asked_generation,
    checkpoint_dtype,
    heads_file,
    model_names,
    model_source,
)
from specjax.experiments.config.footprint import ModelPlan, abstract_params, abstract_prompt
from specjax.experiments.config.generation import NOTHING, Planned, planned_settings
from specjax.experiments.config.memory import plan_models
from specjax.experiments.config.placement import copies_target, ways_of, weights_of, whole_words
from specjax.experiments.decode.checks import check_decode
from specjax.experiments.decode.strategies import (
    common_width,
    cut_words,
    load_strategies,
    specs_of,
)
from specjax.experiments.decode.unused import note_unused
from specjax.models.base import LanguageModel
from specjax.models.on_target import FeatureDrafter
from specjax.models.shared_vocabulary import with_shared_vocabulary
from specjax.parallel.mesh import AXES, axis_sizes
from specjax.parallel.padding import NO_SMALL, padded
from specjax.parallel.sharding import Layout
from specjax.training.ngram import shapes as table_shapes


def run(config: ConfigDict) -> dict[str, Any]:
    """Plans a decode experiment on the checkpoints of its config."""
    check_decode(config)
    note_unused(config, load_strategies(config))
    return plan(config, model_names(config), shapes(config), planned_settings(config))


def shapes(config: ConfigDict) -> dict[str, LanguageModel]:
    """Every model of the config by its name, without weights, its heads padded if asked for.

    Of an encoder that is like the target's the weights are taken to be the same.
    """
    dtype = checkpoint_dtype(config)
    asked = asked_generation(config)
    models = {
        name: describe(model_source(config, name)[0], dtype, **asked)
        for name in model_names(config)
    }
    check_target(config.target, models["target"])
    target = models["target"] = _told(models["target"], config)
    models = {name: _beside(name, model, target) for name, model in models.items()}
    models = {
        name: model if name == "target" else borrowing_of(target, model)
        for name, model in models.items()
    }
    if not config.pad_heads:
        return models
    return {name: _padded(config, name, model) for name, model in models.items()}


def _padded(config: ConfigDict, name: str, model: LanguageModel) -> LanguageModel:
    """A model with the heads of zeros that it needs; a copy of the target is made of its own."""
    wide = padded(model, ways_of(config, name))
    if wide is not model and weights_of(config, name) and not copies_target(config, name):
        raise UserError(f"config.{NO_SMALL}")
    return wide


def _told(target: LanguageModel, config: ConfigDict) -> LanguageModel:
    try:
        return told(target, **config.speech) if "speech" in config else target
    except ValueError as error:
        raise UserError(f"config.speech: {error}") from None


def _beside(name: str, model: LanguageModel, target: LanguageModel) -> LanguageModel:
    """A model with what its checkpoint leaves to the target."""
    try:
        return model.beside(target) if isinstance(model, FeatureDrafter) else model
    except ValueError as error:
        raise UserError(f"config.{name}: {error}") from None


def plan(
    config: ConfigDict,
    checkpoints: Mapping[str, str],
    models: Mapping[str, LanguageModel],
    planned: Planned = NOTHING,
) -> dict[str, Any]:
    """Prints and returns models, memory per device, strategies and settings."""
    mesh: dict[str, int] = dict(zip(AXES, axis_sizes(config.mesh.to_dict()), strict=True))
    models = planned.guided(models)
    width = min(model.vocab_size for model in models.values())
    strategies = load_strategies(config)
    capacity = config.max_new_tokens + max(s.drafter.spec.width for s in strategies.values()) + 2
    ahead = max(ahead_of(s.drafter, s.reader) for s in strategies.values())
    plans = plan_models(checkpoints, models, config, mesh, capacity, ahead)
    invariant = common_width(config, strategies)
    for strategy in strategies.values():
        trace(models, strategy, config, width, invariant, planned)
    show(config, mesh, plans, strategies)
    for line in (*planned.said, *filter(None, [planned.note])):
        print(line)
    for name in (name for name, model in models.items() if model.borrows_encoder):
        print(f"{name}: its encoder is counted as the target's; a run compares their weights")
    for name, model in models.items():
        if line := whole_words(name, model, ways_of(config, name), remedy=True):
            print(line)
    return {"models": plans, "strategies": strategies, "settings": planned}


def trace(
    whole: Mapping[str, LanguageModel],
    strategy: Strategy,
    config: ConfigDict,
    width: int,
    invariant: int = 0,
    planned: Planned = NOTHING,
) -> Any:
    """The shapes of a whole decode; raises where the strategy does not fit the models."""
    decoder, args = abstract_decode(whole, strategy, config, width, invariant, planned=planned)
    return jax.eval_shape(functools.partial(generate, decoder), *args)


def abstract_decode(
    whole: Mapping[str, LanguageModel],
    strategy: Strategy,
    config: ConfigDict,
    width: int,
    invariant: int = 0,
    layout: Layout | None = None,
    planned: Planned = NOTHING,
) -> tuple[Decoder, tuple[Any, ...]]:
    """The decoder of a strategy, and the shapes of all other arguments of `generate`.

    Raises:
      UserError: when the strategy does not fit the models.
    """
    whole = planned.guided(whole)
    models = tuple(with_shared_vocabulary(whole).items())
    try:
        decoder = strategy.decoder(
            models, config.max_new_tokens, layout=layout, invariant=invariant
        )
    except ValueError as error:
        raise UserError(f"strategy: {error}") from None
    dtype = checkpoint_dtype(config)
    params = {
        name: abstract_params(whole[name], dtype, weights_of(config, name)) for name in decoder.used
    }
    params |= dict.fromkeys(decoder.drafter.spec.resources, table_shapes(width))
    params |= selection_trees({"": strategy}, whole["target"])
    if HEADS in params:
        params[HEADS] = heads.shapes(heads_file(config), dtype)
    if CORPUS in params:
        params[CORPUS] = corpus.shapes(config.corpus_tokens)
    check_resources(decoder, params)
    rows = (config.batch_size,)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), config.batch_size))
    limit = jax.ShapeDtypeStruct(rows, jnp.int32)
    options = planned.obeyed(strategy.options(), whole["target"])
    options = options.replace(rows=dict.fromkeys(decoder.drafter.spec.rows, limit))
    return decoder, (params, *abstract_prompt(config, whole["target"]), keys, limit, options)


def show(
    config: ConfigDict,
    mesh: Mapping[str, int],
    plans: Mapping[str, ModelPlan],
    strategies: Mapping[str, Strategy],
) -> None:
    """Prints the plan."""
    count = math.prod(mesh.values())
    print(f"mesh: data {mesh['data']} x model {mesh['model']} = {count} device(s)")
    print(
        f"batch {config.batch_size}, prompts up to {config.max_prompt_tokens} tokens, up to"
        f" {config.max_new_tokens} new ones, {config.dtype}"
    )
    print(f"{'model':14}{'checkpoint':34}{'parameters':>16}{'weights GiB':>13}{'cache GiB':>11}")
    for name, plan in plans.items():
        weights, cache = plan.parameter_bytes / GIB, plan.cache_bytes / GIB
        print(f"{name:13} {plan.checkpoint:33} {plan.parameters:16,}{weights:13.3f}{cache:11.3f}")
    total = sum(plan.parameter_bytes + plan.cache_bytes for plan in plans.values())
    print(f"per device: {total / GIB:.2f} GiB of weights and caches ({total:,} bytes)")
    print("strategies:")
    specs = specs_of(config)
    for name, strategy in strategies.items():
        print(f"  {name}: {spelled(specs.get(name, {}))}; {sampling_words(strategy)}")


def spelled(spec: Mapping[str, Any]) -> str:
    """The fields of a strategy as its config has them, the drafter first, without the sampling."""
    given = {"drafter": "none", **spec}
    return ", ".join(f"{name}={value}" for name, value in given.items() if name not in DRAWN)


def sampling_words(strategy: Strategy) -> str:
    if strategy.greedy:
        return "greedy"
    temperature, top_k, top_p, *_ = strategy.settings
    words = f"temperature {temperature:g}", f"top-k {top_k or 'off'}", f"top-p {top_p:g}"
    return ", ".join([*words, *cut_words(strategy.settings)])
