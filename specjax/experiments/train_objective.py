"""The objective that a training config spells."""

from __future__ import annotations

from collections.abc import Mapping

from ml_collections import ConfigDict

from specjax.api import LoadedModel
from specjax.experiments.train_subject import heads_of
from specjax.models.base import Params
from specjax.training.loss import DIVERGENCES
from specjax.training.objective import (
    Blockwise,
    CrossEntropy,
    Distillation,
    Objective,
    exit_weights,
)

EXITS = {
    "last": lambda layers: (),
    "first_and_last": lambda layers: (1, layers),
    "all": lambda layers: tuple(range(1, layers + 1)),
}

CHOICES = {
    "objective.name": ("cross_entropy", "distillation", "blockwise"),
    "objective.exits": tuple(EXITS),
    "objective.exit_weights": ("equal", "linear"),
    "objective.divergence": tuple(DIVERGENCES),
    "heads.trunk": ("frozen", "trained"),
}

RANGES = {
    "objective.smoothing": (0.0, 0.99),
    "objective.label_weight": (0.0, 1.0),
    "objective.temperature": (1e-3, 1e3),
}

LEAST = {"heads.count": 1, "heads.width": 0}


def objective_of(
    config: ConfigDict, start: LoadedModel, target: LoadedModel | None
) -> tuple[Objective, Mapping[str, Params]]:
    """What is minimised, and the parameters that it reads and nobody changes."""
    settings = config.objective
    if settings.name == "distillation":
        made = Distillation(
            target.model, settings.divergence, settings.temperature, settings.label_weight
        )
        return made, {"teacher": target.params}
    if settings.name == "blockwise":
        return Blockwise(heads_of(config, start.model), config.heads.trunk == "trained"), {}
    exits = EXITS[settings.exits](start.model.depth)
    weights = exit_weights(exits, settings.exit_weights)
    return CrossEntropy(settings.smoothing, exits, weights), {}
