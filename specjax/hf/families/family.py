"""What a model family is: an architecture, and where a checkpoint keeps its numbers."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from specjax.core.registry import FAMILIES
from specjax.hf.families.generation import NEUTRAL
from specjax.hf.families.schema import Schema
from specjax.models.base import LanguageModel, Where


@dataclasses.dataclass(frozen=True)
class Stored:
    """Where a parameter lies in a checkpoint.

    `transposed`: the tensor is `[out, in]`, as PyTorch's linear layers are. A fused tensor holds
    parameters side by side along its output axis, all of them in each of `groups` such as heads: of
    its `parts` equal parts this one is number `part`, and as many as it `spans` from there on. A
    parameter may be `stacked` along its first axis of so many tensors, whose names have their
    number for `{}`. Ids are `integer`, whatever dtype weights are read in; the tensor may hold them
    less their `place`.
    """

    tensor: str
    transposed: bool = False
    part: int = 0
    parts: int = 1
    spans: int = 1
    groups: int = 1
    stacked: int = 0  # 0: one tensor
    integer: bool = False
    place: bool = False

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors that it is made of."""
        if not self.stacked:
            return (self.tensor,)
        return tuple(self.tensor.format(number) for number in range(self.stacked))


class Architecture(LanguageModel, Protocol):
    """A model that is made of its configuration alone."""

    def __init__(self, config: Any) -> None: ...


class Family(abc.ABC):
    """How to build a family's model from a configuration, and where its tensors are."""

    model: ClassVar[type[Architecture]]
    """The architecture."""

    schema: ClassVar[Schema]
    """The fields of its `config.json`."""

    prefix: ClassVar[str] = ""
    """Of tensor names, which checkpoints of the bare model leave off."""

    output: ClassVar[str] = "lm_head.weight"
    """Name of the output layer's tensor, where it is not the embedding."""

    ignored: ClassVar[str] = r"$^"
    """Names that match hold nothing to load: buffers, second copies."""

    generation: ClassVar[Collection[str]] = ()
    """Fields of `generation_config.json` that no other family has; it reads what counts of them."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = NEUTRAL
    """Fields of `generation_config.json`, and the values besides null that change no token."""

    @property
    def generation_fields(self) -> frozenset[str]:
        """Fields of `generation_config.json` that are read of this family's files."""
        return frozenset({*self.generation, *self.neutral})

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        """Whether a configuration is of this family, whatever its `model_type` says."""
        return False

    @abc.abstractmethod
    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> Any:
        """The model's configuration; `dtype` is that of the arithmetic.

        Reads the contents of `config.json` and `generation_config.json`, None where there is no
        such file.

        Raises:
          ValueError: naming the field, its value and what is allowed.
        """

    @abc.abstractmethod
    def config_to_hf(self, config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Contents of `config.json` and `generation_config.json` of a model exported from here."""

    def of_stored(self, config: Any, tensors: Collection[str]) -> Any:
        """The model's configuration, where that depends on which tensors a checkpoint has.

        Raises:
          ValueError: naming a tensor that must be there.
        """
        return config

    def named(self, tensor: str) -> str:
        """The name of a checkpoint's tensor as `names` has it: of a part of a model, without it."""
        return tensor

    def repeated(self, config: Any, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Tensors of an export that say again what its others say."""
        return {}

    def given_by(self, target: LanguageModel) -> dict[str, Any]:
        """Fields of `config.json` that a model made for a target has from it."""
        return {}

    @abc.abstractmethod
    def names(self, config: Any) -> Mapping[Where, Stored]:
        """Where each parameter is stored."""


def family_of(model: LanguageModel) -> Family:
    """The family that a model belongs to."""
    return FAMILIES[model.config.family].cls()


def linear(
    where: Where, tensor: str, biased: bool = True, part: int = 0, parts: int = 1, groups: int = 1
) -> dict[Where, Stored]:
    """Where a linear layer of PyTorch is stored, and how it is fused."""
    kernel = Stored(f"{tensor}.weight", True, part, parts, groups=groups)
    stored: dict[Where, Stored] = {(*where, "kernel"): kernel}
    if biased:
        stored[*where, "bias"] = Stored(f"{tensor}.bias", False, part, parts, groups=groups)
    return stored


def layer_norm(where: Where, tensor: str) -> dict[Where, Stored]:
    """Where a layer norm is stored."""
    return {
        (*where, "scale"): Stored(f"{tensor}.weight"),
        (*where, "bias"): Stored(f"{tensor}.bias"),
    }
