"""The interface of model families: an architecture, and tables of fields and tensors."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import jax
import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.generation import (
    GENERATION,
    NEUTRAL,
    ends_to_hf,
    reading_generation,
    special_tokens,
)
from specjax.hf.families.schema import Schema, read
from specjax.models.base import LanguageModel, Where
from specjax.models.shapes import get_parameter_shapes


@dataclasses.dataclass(frozen=True)
class Stored:
    """The place of a parameter in a checkpoint.

    `transposed`: the tensor is `[out, in]`, as PyTorch's linear layers are. A fused tensor holds
    parameters side by side along its output axis, repeated in each of `groups` such as heads: of
    `parts` equal parts this parameter has the `spans` parts from number `part` on. A parameter may
    be `stacked` from that many tensors along its first axis; `{}` in the name is their number. Ids
    are `integer` for any dtype of the weights; the tensor may hold them minus their `place`. A
    `precise` parameter is float32 for any dtype.
    The first axis of a `batched` tensor counts matrices, which are transposed one by one.
    """

    tensor: str
    transposed: bool = False
    part: int = 0
    parts: int = 1
    spans: int = 1
    groups: int = 1
    stacked: int = 0  # 0: one tensor
    integer: bool = False
    precise: bool = False
    place: bool = False
    batched: bool = False

    def order_axes(self, count: int) -> tuple[int, ...]:
        """The axes in the tensor's order, of a parameter with `count` of them; and back."""
        if not self.transposed:
            return tuple(range(count))
        return (0, *range(1, count)[::-1]) if self.batched else tuple(range(count)[::-1])

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors of the parameter."""
        if not self.stacked:
            return (self.tensor,)
        return tuple(self.tensor.format(number) for number in range(self.stacked))


Tensors = Mapping[str, str | Stored]
"""Names of modules here -> in a checkpoint, `{}` for the number of a layer.

A name that ends in a parameter's (`embedding`) has the whole name of its tensor.
"""


class Architecture(LanguageModel, Protocol):
    """A model class that is built from only its configuration."""

    def __init__(self, config: Any) -> None: ...


Shape = TypeVar("Shape")


class Family(Generic[Shape]):
    """How to build a family's model from a configuration, and where its tensors are."""

    model: ClassVar[type[Architecture]]
    """The architecture."""

    shape: ClassVar[type]
    """The class of the architecture's configuration."""

    schema: ClassVar[Schema]
    """The fields of its `config.json`."""

    words: ClassVar[dict[str, str]] = {}
    """Attributes of the shape, and the fields of `config.json` that hold them as they are."""

    constants: ClassVar[dict[str, Any]] = {}
    """Attributes of all its shapes."""

    architecture: ClassVar[str] = ""
    """Hugging Face's class; empty: it is named after the family."""

    tensors: ClassVar[Tensors]
    """Places of the parameters of its models; a shape has some of them.

    A parameter without an entry is not in a checkpoint, but in its target's.
    """

    transposed: ClassVar[bool] = True
    """Whether kernels are stored as PyTorch's linear layers have them."""

    prefix: ClassVar[str] = ""
    """Of tensor names, which checkpoints of the bare model leave off."""

    output: ClassVar[str] = "lm_head.weight"
    """Name of the output layer's tensor, where it is not the embedding."""

    ignored: ClassVar[str] = r"$^"
    """Names that match hold nothing to load: buffers, second copies."""

    draftable: ClassVar[str] = ""
    """Name of a tensor that says of each id whether it can be drafted; empty: it is not read."""

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
        """Whether a configuration is of this family, for any `model_type`."""
        return False

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> Shape:
        """The model's configuration; `dtype` is that of the arithmetic.

        Reads the contents of `config.json` and `generation_config.json`, None where there is no
        such file.

        Raises:
          ValueError: naming the field, its value and what is allowed.
        """
        return self.build(read(self.schema, hf, GENERATION), hf, generation, dtype)

    def build(
        self,
        fields: dict[str, Any],
        hf: Mapping[str, Any],
        generation: dict[str, Any] | None,
        dtype: Any,
        **more: Any,
    ) -> Shape:
        """The shape that checked `fields` describe, with `more` attributes."""
        attributes = {attribute: fields[field] for attribute, field in self.words.items()}
        attributes |= self.from_fields(fields, hf) | self.constants | more
        vocab_size = attributes["vocab_size"]
        special = special_tokens(hf, generation, vocab_size)
        attributes |= {"eos": special.eos, "pad": special.pad, "dtype": dtype}
        if any(field.name == "bos" for field in dataclasses.fields(self.shape)):
            attributes["bos"] = special.bos
        if self.has_encoder:
            attributes["start_token"] = _start_token(special.start, vocab_size, generation)
        return self.shape(family=hf["model_type"], **attributes)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """The other attributes, of the checked `fields` of the configuration `hf`.

        Raises:
          ValueError: naming the field, its value and what is allowed.
        """
        return {}

    @property
    def has_encoder(self) -> bool:
        """Whether its models have one, and a token that their decoders start with."""
        field = self.schema.fields.get("is_encoder_decoder")
        return field is not None and field.default is True

    def config_to_hf(self, config: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
        """Contents of `config.json` and `generation_config.json` of a model exported from here."""
        named: Any = config
        ends = self.ends(config)
        named_by = self.architecture or f"{named.family.capitalize()}ForCausalLM"
        fields = {"model_type": named.family, "architectures": [named_by]}
        if self.has_encoder:
            fields["is_encoder_decoder"] = True
        fields |= {field: getattr(config, attribute) for attribute, field in self.words.items()}
        return fields | self.to_fields(config) | ends, ends

    def to_fields(self, config: Any) -> dict[str, Any]:
        """The other fields of `config.json`, and those that replace one."""
        return {}

    def ends(self, config: Any) -> dict[str, Any]:
        """The special tokens of an export."""
        firsts = {"bos_token_id": config.bos} if hasattr(config, "bos") else {}
        if self.has_encoder:
            firsts["decoder_start_token_id"] = config.start_token
        return ends_to_hf(config, **firsts)

    def export_base(self, hf: dict[str, Any]) -> dict[str, Any]:
        """The fields that an export of a model with the configuration `hf` is written over."""
        return hf

    def of_stored(self, config: Any, tensors: Collection[str]) -> Any:
        """The model's configuration, where that depends on which tensors a checkpoint has.

        Raises:
          ValueError: naming a tensor that must be there.
        """
        return config

    def rename_tensor(self, tensor: str) -> str:
        """The name of a checkpoint's tensor as `names` has it: of a part of a model, without it."""
        return tensor

    def repeat_tensors(
        self, config: Any, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Tensors of an export that repeat others."""
        return {}

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        """Fields of `config.json` that a model made for a target has from it."""
        return {}

    def table(self, config: Any) -> Tensors:
        """Places of the parameters of a shape, possibly of further modules."""
        return self.tensors

    def names(self, config: Any) -> Mapping[Where, Stored]:
        """Where each parameter is stored."""
        return _names(type(self), config)


@functools.lru_cache(maxsize=64)
def _names(family: type[Family], config: Any) -> Mapping[Where, Stored]:
    one = family()
    table = one.table(config)
    leaves = jax.tree_util.tree_flatten_with_path(get_parameter_shapes(one.model(config)))[0]
    paths = (tuple(key.key for key in path) for path, _ in leaves)
    found = {path: _find_stored(table, path, one.transposed) for path in paths}
    return {path: stored for path, stored in found.items() if stored}


def _find_stored(table: Tensors, path: Where, transposed: bool) -> Stored | None:
    """Where the parameter at a path is, by the line of a table for it or for its module."""
    numbers = [match[1] for part in path if (match := re.search(r"_(\d+)$", part))]
    names = [re.sub(r"_\d+$", "_{}", part) for part in path]
    parameter, module = ".".join(names), ".".join(names[:-1])
    entry = table.get(parameter, table.get(module))
    if entry is None:
        return None
    found = entry if isinstance(entry, Stored) else Stored(entry)
    name = found.tensor.format(*numbers)
    if parameter in table:
        return dataclasses.replace(found, tensor=name)
    kind = "bias" if path[-1] == "bias" else "weight"
    kernel = path[-1] == "kernel"
    return dataclasses.replace(found, tensor=f"{name}.{kind}", transposed=transposed and kernel)


def nest_modules(ours: str, theirs: str, modules: Tensors) -> dict[str, str | Stored]:
    """A table of modules that are parts of the modules `ours` here and `theirs` in a checkpoint."""
    return {
        f"{ours}.{name}": f"{theirs}.{entry}"
        if isinstance(entry, str)
        else dataclasses.replace(entry, tensor=f"{theirs}.{entry.tensor}")
        for name, entry in modules.items()
    }


def split_outputs(tensor: str, widths: Mapping[str, int], groups: int = 1) -> Tensors:
    """Modules whose outputs of these `widths` lie one after another in each group of a tensor."""
    unit, total = math.gcd(*widths.values()), sum(widths.values())
    firsts = itertools.accumulate(widths.values(), initial=0)
    return {
        name: Stored(
            tensor,
            part=first // unit,
            parts=total // unit,
            spans=width // unit,
            groups=groups,
        )
        for (name, width), first in zip(widths.items(), firsts, strict=False)
    }


def _start_token(start: int | None, vocab_size: int, generation: Mapping[str, Any] | None) -> int:
    """The token that a decoder starts with.

    Raises:
      ValueError: when there is none.
    """
    with reading_generation(generation):
        if start is None or start >= vocab_size:
            raise ValueError(
                f"decoder_start_token_id is {start}; a decoder starts with a token id from"
                f" 0 to {vocab_size - 1}"
            )
    return start


def get_family(model: LanguageModel) -> Family:
    """The family that a model belongs to."""
    return FAMILIES[model.config.family].cls()
