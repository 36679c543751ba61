"""The trained part of a model: all of it, or parallel heads on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol

import jax

from specjax.hf import heads as heads_file
from specjax.loading import LoadedModel
from specjax.models.base import Params
from specjax.models.heads import Heads, LoadedHeads
from specjax.training.objective import Objective

MODEL = "model"
"""Folder in the workdir: the best parameters in Hugging Face format."""

HEADS = "heads.safetensors"
"""File in the workdir: the best parallel heads."""


class Subject(Protocol):
    """The trained tree, and its conversion to a model."""

    @property
    def start(self) -> LoadedModel: ...

    @property
    def params(self) -> Params: ...

    @property
    def changes_model(self) -> bool:
        """Whether decoded outputs change in training."""
        ...

    def model_params(self, params: Params) -> Params:
        """The parameters of the model itself."""

    def save(self, params: Params, workdir: Path) -> list[Path]:
        """Saves the trained parameters; returns their paths."""
        ...


@dataclasses.dataclass(frozen=True)
class WholeModel:
    """All parameters of a model."""

    start: LoadedModel
    changes_model: bool = True

    @property
    def params(self) -> Params:
        return self.start.params

    def model_params(self, params: Params) -> Params:
        return params

    def save(self, params: Params, workdir: Path) -> list[Path]:
        return [_save_model(self.start, params, workdir)]


@dataclasses.dataclass(frozen=True)
class HeadsAlone:
    """Parallel heads on a frozen trunk (docs/methods/medusa.md, "Training")."""

    start: LoadedModel
    heads: Heads
    seed: int
    changes_model: bool = False

    @property
    def params(self) -> Params:
        return self.heads.init(jax.random.key(self.seed))

    def model_params(self, params: Params) -> Params:
        return self.start.params

    def save(self, params: Params, workdir: Path) -> list[Path]:
        heads_file.save(LoadedHeads(self.heads, params), workdir / HEADS)
        return [workdir / HEADS]


@dataclasses.dataclass(frozen=True)
class HeadsAndTrunk:
    """Parallel heads and the trunk below them, trained together."""

    start: LoadedModel
    heads: Heads
    seed: int
    changes_model: bool = True

    @property
    def params(self) -> Params:
        return {
            "trunk": self.start.params,
            "heads": self.heads.init(jax.random.key(self.seed)),
        }

    def model_params(self, params: Params) -> Params:
        return params["trunk"]

    def save(self, params: Params, workdir: Path) -> list[Path]:
        place = _save_model(self.start, self.model_params(params), workdir)
        return [*self.save_heads(params, workdir), place]

    def save_heads(self, params: Params, workdir: Path) -> list[Path]:
        """Saves the heads alone; returns their path."""
        heads_file.save(LoadedHeads(self.heads, params["heads"]), workdir / HEADS)
        return [workdir / HEADS]


@dataclasses.dataclass(frozen=True)
class PartOfModel:
    """A model without its frozen parameters."""

    start: LoadedModel
    fixed: tuple[str, ...]
    changes_model: bool = False

    @property
    def params(self) -> Params:
        return {name: tree for name, tree in self.start.params.items() if name not in self.fixed}

    def model_params(self, params: Params) -> Params:
        return {**self.start.params, **params}

    def save(self, params: Params, workdir: Path) -> list[Path]:
        return [_save_model(self.start, self.model_params(params), workdir)]


def make_subject(
    objective: Objective, start: LoadedModel, seed: int, fixed: tuple[str, ...] = ()
) -> Subject:
    """The subject of an objective; `seed` initializes new parameters, `fixed` are frozen."""
    if fixed:
        return PartOfModel(start, fixed, changes_model=True)
    if fixed := objective.frozen_parameters(start.model):
        return PartOfModel(start, fixed)
    heads = objective.heads_on(start.model)
    if heads is None:
        return WholeModel(start)
    return (HeadsAndTrunk if objective.trains_model else HeadsAlone)(start, heads, seed)


def _save_model(start: LoadedModel, params: Params, workdir: Path) -> Path:
    dataclasses.replace(start, params=params).save(workdir / MODEL)
    return workdir / MODEL
