"""The objective of a training config, by the registry's names and fields."""

from __future__ import annotations

from ml_collections import ConfigDict

from specjax.checks import check_value
from specjax.contracts.fields import build, get_config_fields, merge_fields
from specjax.contracts.registry import OBJECTIVES, Entry
from specjax.loading import LoadedModel
from specjax.runtime.errors import UserError
from specjax.training.objective import FIXED, TEACHER, TRUNK, Frozen, FrozenModel, Objective


def make_objective(config: ConfigDict) -> Objective:
    """The objective that a training config minimizes.

    Raises:
      UserError: when its name or a field cannot be used, or a field of another objective is set.
    """
    settings, chosen = config.objective, OBJECTIVES[config.objective.name]
    check_others_unset(settings, chosen)
    values = {
        name: check_value(field, f"config.objective.{name}", settings[name])
        for name, field in get_config_fields(chosen.cls).items()
    }
    try:
        return build(chosen.cls, values)[0]
    except ValueError as error:
        raise UserError(f"config.objective.{error}") from None


def check_others_unset(settings: ConfigDict, chosen: Entry) -> None:
    """Refuses fields that the chosen objective does not read."""
    own = get_config_fields(chosen.cls)
    for field, other in merge_fields(entry.cls for entry in OBJECTIVES.values()).items():
        if field not in own and settings[field] != other.stand_in:
            raise UserError(
                f"config.objective.{field} is {settings[field]!r}; objective {chosen.name!r} does"
                f" not read it, its fields are {', '.join(own) or 'none'}"
            )


def list_teacher_objectives() -> str:
    """Names of the objectives that learn a teacher's distributions."""
    return " or ".join(name for name, entry in OBJECTIVES.items() if entry.cls.needs_teacher)


def make_frozen(
    objective: Objective,
    start: LoadedModel,
    target: LoadedModel | None,
    fixed: tuple[str, ...] = (),
) -> Frozen:
    """The frozen models that an objective reads; `fixed` are names of parameters."""
    frozen = {}
    if fixed:
        params = {name: start.params[name] for name in fixed}
        frozen[FIXED] = FrozenModel(params, start.model)
    if objective.needs_teacher and target is not None:
        frozen[TEACHER] = FrozenModel(target.params, target.model)
    if not objective.trains_model:
        frozen[TRUNK] = FrozenModel(start.params, start.model)
    elif own := objective.frozen_parameters(start.model):
        params = {name: start.params[name] for name in own}
        frozen[TRUNK] = FrozenModel(params, start.model)
    return frozen


def list_fixed(config: ConfigDict, objective: Objective, start: LoadedModel) -> tuple[str, ...]:
    """The frozen parameters of a model, by name.

    Raises:
      UserError: when it has none of that name, or the objective trains something else.
    """
    fixed = tuple(config.model.frozen)
    for name in fixed:
        if name not in start.params:
            known = ", ".join(sorted(start.params))
            raise UserError(
                f"config.model.frozen has {name!r}; the parameters of the model are {known}"
            )
    part = objective.heads_on(start.model) or objective.frozen_parameters(start.model)
    if fixed and (part or not objective.trains_model):
        raise UserError(
            f"config.model.frozen is {fixed!r}; objective {config.objective.name!r} selects itself"
            " what it trains"
        )
    return fixed
