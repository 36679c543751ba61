"""A target and its fitted drafters, with weights or as shapes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from specjax.checks import check_dictionary
from specjax.hf.shared_encoder import with_encoder_of
from specjax.hf.shared_tokens import LEAST_SHARED, in_vocabulary_of
from specjax.loading import LoadedModel
from specjax.logits.guidance import apply_guidance
from specjax.models.base import LanguageModel, Params
from specjax.models.on_target import FeatureDrafter
from specjax.models.target_shapes import complete_params
from specjax.models.vocabularies import share_vocabulary
from specjax.parallel.replacement import replace_params
from specjax.parallel.sharding import Layout
from specjax.runtime.errors import UserError

TARGET = "target"
"""The target's name among the models of a pair."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A target and drafters in its ids, completed by the target's parameters.

    Created by `fit`. Parameters are arrays, or shapes for a plan.
    """

    target: LoadedModel
    drafters: Mapping[str, LoadedModel]

    @property
    def members(self) -> dict[str, LoadedModel]:
        """Every model by its name, the target first."""
        return {TARGET: self.target, **self.drafters}

    @functools.cached_property
    def models(self) -> dict[str, LanguageModel]:
        """The models by name; logits are as wide as the narrowest of them."""
        return share_vocabulary({name: entry.model for name, entry in self.members.items()})

    @property
    def vocab_size(self) -> int:
        """Number of ids that all models have."""
        return min(entry.model.info.vocab_size for entry in self.members.values())

    @property
    def layout(self) -> Layout | None:
        """How the models lie on the target's mesh; None on one device.

        Raises:
          UserError: when a drafter is on another mesh.
        """
        mesh = self.target.mesh
        for name, entry in self.drafters.items():
            if entry.mesh != mesh:
                raise UserError(f"drafter {name!r} is on another mesh than the target")
        ways = tuple((name, entry.ways) for name, entry in self.members.items())
        return None if mesh is None else Layout(mesh, ways)

    def with_guidance(self, settings: Mapping[str, Any]) -> Pair:
        """The pair with its target under the guidance of checked settings, if they have any."""
        model = apply_guidance(self.target.model, settings)
        return dataclasses.replace(self, target=dataclasses.replace(self.target, model=model))

    def params(self, names: Iterable[str], tables: Mapping[str, Params]) -> dict[str, Params]:
        """The parameter trees of these names, of models or tables.

        Raises:
          UserError: when one was not given.
        """
        trees = {name: entry.params for name, entry in self.members.items()} | dict(tables)
        missing = [name for name in names if name not in trees]
        if missing:
            raise UserError(f"strategy: {missing[0]!r} was not given; pass it in tables")
        return {name: trees[name] for name in names}

    def with_params(self, target: Params, drafters: Mapping[str, Params] | None = None) -> Pair:
        """The pair with other parameters of the target, and of the drafters that are named.

        They have the structure, shapes and dtypes of those before, and are moved to their devices.
        What a feature drafter has from the target is the new target's.

        Raises:
          UserError: naming the first leaf that differs.
        """
        check_dictionary("drafters", drafters)
        replaced = dict(self.drafters)
        for name, own in (drafters or {}).items():
            if name not in replaced:
                known = ", ".join(map(repr, replaced)) or "none"
                raise UserError(f"drafters has {name!r}; of drafters there are {known}")
            params = replace_params(f"drafters[{name!r}]", replaced[name].params, own)
            replaced[name] = dataclasses.replace(replaced[name], params=params)
        params = replace_params(TARGET, self.target.params, target)
        fitted = {name: _complete(name, one, params) for name, one in replaced.items()}
        return Pair(dataclasses.replace(self.target, params=params), fitted)


def fit(
    target: LoadedModel,
    drafters: Mapping[str, LoadedModel],
    *,
    least_shared: float = LEAST_SHARED,
) -> Pair:
    """The pair of a target and drafters, each in the target's ids.

    A drafter of another tokenizer drafts the tokens that both have, one with an encoder equal to
    the target's shares that encoder, and a feature drafter is completed by the target's embedding
    and output layer. A fitted drafter is unchanged. Models without parameters (`params` None) are
    fitted by their shapes: vocabularies are taken to agree, and encoders of one shape to be equal.

    Raises:
      UserError: when a drafter does not fit the target, naming it.
    """
    check_target(target)
    return Pair(
        target,
        {name: _fit_drafter(name, target, one, least_shared) for name, one in drafters.items()},
    )


def _fit_drafter(
    name: str, target: LoadedModel, drafter: LoadedModel, least_shared: float
) -> LoadedModel:
    if drafter.params is not None:
        drafter = in_vocabulary_of(target, drafter, name=name, least_shared=least_shared)
    drafter = with_encoder_of(target, drafter)
    if not isinstance(drafter.model, FeatureDrafter):
        return drafter
    try:
        model = drafter.model.adapt_to(target.model)
    except ValueError as error:
        raise UserError(f"drafters[{name!r}]: {error}") from None
    return _complete(name, dataclasses.replace(drafter, model=model), target.params)


def _complete(name: str, drafter: LoadedModel, target: Params) -> LoadedModel:
    """The drafter with what a feature drafter has from the target's parameters.

    Raises:
      UserError: when it drafts ids that the target does not have.
    """
    if not isinstance(drafter.model, FeatureDrafter) or drafter.params is None:
        return drafter
    try:
        params = complete_params(drafter.model.config, drafter.params, target)
    except ValueError as error:
        raise UserError(f"drafters[{name!r}]: {error}") from None
    return dataclasses.replace(drafter, params=params)


def check_parts(target: Any, drafters: Any, tables: Any) -> None:
    """Refuses parts of a generator of the wrong type, often names of models.

    Raises:
      UserError: naming the argument.
    """
    for name, value in (("drafters", drafters), ("tables", tables)):
        check_dictionary(name, value)
    if "target" in drafters:
        raise UserError("drafters has the name 'target'; drafters need names of their own")
    loaded = {"target": target, **{f"drafters[{name!r}]": d for name, d in drafters.items()}}
    for name, value in loaded.items():
        if not isinstance(value, LoadedModel):
            raise UserError(f"{name} is {value!r}; it must be what specjax.load returns")
    check_target(target)


def check_target(target: LoadedModel) -> None:
    """Refuses a feature drafter as target.

    Raises:
      UserError: naming its family.
    """
    if isinstance(target.model, FeatureDrafter):
        raise UserError(
            f"target is {target.name!r}, a drafter of the family {target.model.config.family!r};"
            " give it in drafters, with the target that it was made for"
        )
