"""The initial model of a training run: a checkpoint, some of its layers, or a shape."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from specjax.contracts.registry import FAMILIES
from specjax.experiments.config.fields import generation_arguments
from specjax.experiments.train.feature_drafter import take_from_target
from specjax.experiments.train.objective import make_objective
from specjax.hf import hub, huggingface
from specjax.hf.families.rotary import drop_unfit_factors
from specjax.hf.speech import in_language
from specjax.hf.tokenizer import load_tokenizer
from specjax.loading import LoadedModel, load
from specjax.models.base import LanguageModel
from specjax.models.on_target import FeatureDrafter
from specjax.parallel.sharding import parameter_shardings
from specjax.runtime.errors import UserError
from specjax.training.surgery import take


def load_start(config: ConfigDict, target: LoadedModel | None, mesh: Mesh | None) -> LoadedModel:
    """The model before the first step, with float32 parameters and its tokenizer.

    For heads on the target it is the unchanged target.

    Raises:
      UserError: when the config names none or both of a checkpoint and a shape, or no tokenizer.
    """
    settings = config.model
    check_start(config)
    if make_objective(config).on_target and target is not None:
        return dataclasses.replace(target, name=config.name)
    if settings.checkpoint:
        sharded, options = config.fully_sharded, generation_arguments(config)
        start = load(settings.checkpoint, jnp.float32, mesh=mesh, fully_sharded=sharded, **options)
        start = in_language(start, **config.speech)
        start = _complete(start, target)
        if settings.decoder_layers or settings.encoder_layers:
            start = _with_layers(start, settings)
        tokenizer = choose_tokenizer(settings, start.tokenizer, target)
    else:
        tokenizer = choose_tokenizer(settings, None, target)
        start = _fresh(config, tokenizer, target, mesh)
    model = to_training_form(config, start.model)
    return dataclasses.replace(start, model=model, tokenizer=tokenizer, name=config.name)


def check_start(config: ConfigDict) -> None:
    """Refuses none or two initial models, and any other than the target for heads."""
    settings, objective = config.model, make_objective(config)
    if objective.on_target:
        given = {f"model.{field}": value for field, value in settings.items()}
        for field, value in {**given, "dropout": config.dropout, "remat": config.remat}.items():
            if value:
                raise UserError(
                    f"config.{field} is {value!r}; it must not be set with objective"
                    f" {config.objective.name!r}, which trains heads on config.target"
                )
        return
    if bool(settings.checkpoint) == bool(settings.shape):
        raise UserError(
            f"config.model.checkpoint is {settings.checkpoint!r} and config.model.shape has"
            f" {len(settings.shape)} fields; exactly one of them must be set"
        )
    if settings.shape and (settings.decoder_layers or settings.encoder_layers):
        raise UserError(
            "config.model.decoder_layers and encoder_layers take layers of a checkpoint;"
            " config.model.checkpoint is empty"
        )


def to_training_form(config: ConfigDict, model: LanguageModel) -> LanguageModel:
    """The model with the dropout and the rematerialization of the config."""
    changes = {"dropout": config.dropout, "remat": config.remat}
    return dataclasses.replace(model, config=dataclasses.replace(model.config, **changes))


def make_model_shape(
    settings: ConfigDict,
    vocab_size: int,
    ends: dict[str, Any],
    target: LanguageModel | None = None,
) -> LanguageModel:
    """The model of `config.model.shape` with a given vocabulary size, for a target."""
    # With an encoder, the decoder starts with padding, as in T5.
    start = {"decoder_start_token_id": ends.get("pad_token_id", 0)}
    words = {"vocab_size": vocab_size, **start, **ends}
    words |= _get_target_fields(settings.shape, target)
    own = settings.shape.to_dict()
    words = drop_unfit_factors(words | own) | own
    family, shape = huggingface.parse_config("config.model.shape", words, None, jnp.float32)
    return family.model(shape)


def _get_target_fields(shape: ConfigDict, target: LanguageModel | None) -> dict[str, Any]:
    """Fields that a model of this shape takes from the target.

    Raises:
      UserError: when the model cannot be made for it.
    """
    name = shape.get("model_type")
    if target is None or name not in FAMILIES:
        return {}
    try:
        return FAMILIES[name].cls().get_target_fields(target)
    except ValueError as error:
        raise UserError(f"config.model.shape: {error}") from None


def _complete(start: LoadedModel, target: LoadedModel | None) -> LoadedModel:
    """The model, a feature drafter with what its checkpoint leaves to the target."""
    model = _adapt(start.model, target)
    if target is None or not isinstance(model, FeatureDrafter):
        return start
    params = take_from_target(model, start.params, target)
    return dataclasses.replace(start, model=model, params=params)


def _adapt(model: LanguageModel, target: LoadedModel | None) -> LanguageModel:
    """The model, a feature drafter in the shape that it has with the target.

    Raises:
      UserError: when it does not fit.
    """
    if target is None or not isinstance(model, FeatureDrafter):
        return model
    try:
        return model.adapt_to(target.model)
    except ValueError as error:
        raise UserError(f"config.model: {error}") from None


def _with_layers(start: LoadedModel, settings: ConfigDict) -> LoadedModel:
    layers = settings.decoder_layers, settings.encoder_layers
    model, params = take(start.model, start.params, *layers)
    return dataclasses.replace(start, model=model, params=params)


def choose_tokenizer(settings: ConfigDict, own: Any, target: LoadedModel | None) -> Any:
    """The tokenizer of the settings, else the checkpoint's `own`, else the target's.

    Raises:
      UserError: when there is none.
    """
    if settings.tokenizer:
        patterns = ["tokenizer*", "*.model", "special_tokens_map.json", "config.json"]
        own = load_tokenizer(hub.locate(settings.tokenizer, patterns))
    elif own is None and target is not None:
        own = target.tokenizer
    if own is None:
        raise UserError(
            "config.model.tokenizer is empty, and neither a checkpoint nor a target has one"
        )
    return own


def _fresh(
    config: ConfigDict, tokenizer: Any, target: LoadedModel | None, mesh: Mesh | None
) -> LoadedModel:
    """A model of the given shape with random parameters, as wide as the target."""
    width = target.model.info.vocab_size if target else len(tokenizer)
    named = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    ends = {name: token for name, token in named.items() if token is not None}
    model = make_model_shape(config.model, width, ends, target and target.model)
    model = _adapt(model, target)
    where = None if mesh is None else parameter_shardings(mesh, model, config.fully_sharded)
    params = jax.jit(model.init, out_shardings=where)(jax.random.key(config.seed))
    return LoadedModel(model, params, mesh=mesh)
