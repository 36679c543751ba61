"""Loads the models of a config, or describes them by shapes for a plan."""

from __future__ import annotations

import dataclasses

from ml_collections import ConfigDict

from specjax.experiments.config.fields import (
    checkpoint_dtype,
    generation_arguments,
    language_arguments,
    model_names,
    model_source,
)
from specjax.experiments.config.footprint import abstract_params
from specjax.experiments.config.placement import copies_target, decode_mesh, get_ways, get_weights
from specjax.hf.descriptions import describe
from specjax.hf.speech import in_language, limit_draft_ids
from specjax.loading import LoadedModel, load, quantize
from specjax.pair import TARGET, Pair, fit
from specjax.parallel.padding import NO_SMALL, pad_model
from specjax.runtime.errors import UserError


def load_models(config: ConfigDict) -> dict[str, LoadedModel]:
    """The loaded models of the config by name, the target first.

    A quantized drafter of the target's own checkpoint shares the target's other parameters.

    Raises:
      UserError: when a checkpoint is missing or cannot be loaded.
    """
    mesh, dtype, models = decode_mesh(config), checkpoint_dtype(config), {}
    for name in model_names(config):
        place, weights = model_source(config, name)
        if copies_target(config, name):
            models[name] = quantize(models[TARGET], str(weights))
            continue
        models[name] = load(
            place,
            dtype,
            weights=str(weights or ""),
            mesh=mesh,
            ways=get_ways(config, name),
            pad_heads=config.get("pad_heads", False),
            **generation_arguments(config),
            **language_arguments(config, name),
        )
    return models


def load_pair(config: ConfigDict) -> Pair:
    """The pair of the config: the target and its drafters, with shared ids aligned.

    Raises:
      UserError: when a model is missing or has too little in common with the target.
    """
    models = load_models(config)
    target = models.pop(TARGET)
    target = in_language(target, **config.speech) if "speech" in config else target
    pair = fit(target, models, least_shared=config.least_shared).with_guidance(target.settings)
    count = config.get("draft_tokens", 0)
    if not count:
        return pair
    drafters = {name: limit_draft_ids(one, count) for name, one in pair.drafters.items()}
    return Pair(pair.target, drafters)


def describe_models(config: ConfigDict) -> dict[str, LoadedModel]:
    """The models of the config by name with shapes for parameters, the target first.

    Reads configuration files only.
    """
    models = _describe(config)
    return {name: _add_shapes(config, name, entry) for name, entry in models.items()}


def describe_pair(config: ConfigDict) -> Pair:
    """The config's pair with shapes for parameters; pads heads if configured.

    Reads configuration files only.

    Raises:
      UserError: when a model cannot be used in its role.
    """
    models = _describe(config)
    target = models.pop(TARGET)
    if "speech" in config:
        try:
            target = in_language(target, **config.speech)
        except UserError as error:
            raise UserError(f"config.speech: {error}") from None
    fitted = fit(target, models).members
    if config.pad_heads:
        fitted = {name: _pad_heads(config, name, entry) for name, entry in fitted.items()}
    shaped = {name: _add_shapes(config, name, entry) for name, entry in fitted.items()}
    return Pair(shaped.pop(TARGET), shaped)


def _describe(config: ConfigDict) -> dict[str, LoadedModel]:
    dtype, changes = checkpoint_dtype(config), generation_arguments(config)
    return {
        name: LoadedModel(
            describe(model_source(config, name)[0], dtype, **changes), None, name=checkpoint
        )
        for name, checkpoint in model_names(config).items()
    }


def _pad_heads(config: ConfigDict, name: str, entry: LoadedModel) -> LoadedModel:
    """The model with zero heads added; a copy of the target is made of the padded target."""
    wide = pad_model(entry.model, get_ways(config, name))
    if wide is entry.model:
        return entry
    if get_weights(config, name) and not copies_target(config, name):
        raise UserError(f"config.{NO_SMALL}")
    return dataclasses.replace(entry, model=wide)


def _add_shapes(config: ConfigDict, name: str, entry: LoadedModel) -> LoadedModel:
    weights = get_weights(config, name)
    params = abstract_params(entry.model, checkpoint_dtype(config), weights)
    return dataclasses.replace(entry, params=params)
