"""Shardings of parameters, caches and rows on a mesh.

Tensor parallelism by logical axes: attention heads, feed-forward width and vocabulary are split
over `model` or over a part of it, rows over `data`. Attention and feed-forward end in a matrix
whose input is split, so XLA adds one all-reduce for each. An axis that does not divide evenly stays
whole.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from specjax.models.base import Cache, LanguageModel, Where
from specjax.models.quantized_weights import to_key_path
from specjax.models.shapes import get_parameter_shapes
from specjax.parallel.mesh import DATA, MODEL, axes_over

PARAMETERS: dict[Where, tuple[str | None, ...]] = {
    ("embedding",): ("vocabulary", None),
    ("source_embedding",): ("vocabulary", None),
    ("output_embedding",): ("vocabulary", None),
    ("head", "kernel"): (None, "vocabulary"),
    ("head", "bias"): ("vocabulary",),
    ("q", "kernel"): (None, "heads"),
    ("q", "bias"): ("heads",),
    ("k", "kernel"): (None, "kv_heads"),
    ("k", "bias"): ("kv_heads",),
    ("v", "kernel"): (None, "kv_heads"),
    ("v", "bias"): ("kv_heads",),
    ("o", "kernel"): ("heads", None),
    ("sinks",): ("heads",),
    ("k_up",): (None, "heads"),
    ("v_up",): (None, "heads"),
    ("gate", "kernel"): (None, "width"),
    ("gate", "bias"): ("width",),
    ("up", "kernel"): (None, "width"),
    ("up", "bias"): ("width",),
    ("down", "kernel"): ("width", None),
    ("logits_bias",): (None, "vocabulary"),
    ("ff", "gates"): (None, None, "expert_width"),
    ("ff", "ups"): (None, None, "expert_width"),
    ("ff", "downs"): (None, "expert_width", None),
    ("ff", "gate_biases"): (None, "expert_width"),
    ("ff", "up_biases"): (None, "expert_width"),
    ("attention", "gate", "kernel"): (None, "heads"),
    ("attention", "gate", "bias"): ("heads",),
    ("recurrent", "q", "kernel"): (None, "key_heads"),
    ("recurrent", "k", "kernel"): (None, "key_heads"),
    ("recurrent", "v", "kernel"): (None, "value_heads"),
    ("recurrent", "gate", "kernel"): (None, "value_heads"),
    ("recurrent", "o", "kernel"): ("value_heads", None),
}
"""Logical axes of parameters by the end of their path; all others are replicated."""


def logical_axes(where: Where) -> tuple[str | None, ...]:
    """The logical axes of a parameter."""
    ends = (where[-count:] for count in (3, 2, 1))
    return next((PARAMETERS[end] for end in ends if end in PARAMETERS), ())


STACKS = ("encoder", "decoder")
"""Parts of a configuration with separate sizes, if it has such parts.

Other parameters are as wide as the decoder.
"""


def units(model: LanguageModel, where: Where) -> dict[str, int]:
    """Number of indivisible parts of each logical axis at a parameter of a model.

    If BART's encoder has other numbers than its decoder, parts of both.
    """
    config = model.config
    stack = where[0].partition("_")[0]
    shape = getattr(config, stack if stack in STACKS else "decoder", config)
    heads = math.gcd(shape.num_heads, getattr(shape, "encoder_heads", 0))
    mixed = *getattr(config, "mixtures", ()), *getattr(config, "encoder_mixtures", ())
    mixtures = [mixture for mixture in mixed if mixture]
    experts = {"expert_width": math.gcd(*(mixture.d_ff for mixture in mixtures))}
    recurrences = [recurrence for recurrence in getattr(config, "recurrences", ()) if recurrence]
    recurrent = {
        "key_heads": math.gcd(*(recurrence.key_heads for recurrence in recurrences)),
        "value_heads": math.gcd(*(recurrence.value_heads for recurrence in recurrences)),
    }
    shared = (mixture.shared for mixture in mixtures)
    return {
        # The output layer of a feature drafter may have fewer ids than its embedding, and Marian's
        # encoder others than its decoder.
        "vocabulary": math.gcd(
            config.vocab_size,
            getattr(config, "draft_vocab", 0),
            getattr(config, "source_vocab", None) or 0,
        ),
        "heads": heads,
        "kv_heads": math.gcd(
            getattr(shape, "num_kv_heads", heads),
            *(layer.kv_heads for layer in getattr(shape, "heads", ())),
        ),
        "width": math.gcd(
            shape.d_ff, getattr(shape, "encoder_ff", 0), *getattr(shape, "d_ffs", ()), *shared
        ),
        **(experts if mixtures else {}),
        **(recurrent if recurrences else {}),
    }


def find_undivided(model: LanguageModel, ways: int) -> dict[str, int]:
    """The logical axes, and their parts, that `ways` does not divide; they are replicated.

    If both stacks are affected, the decoder's parts are returned.
    """
    sides = [units(model, (stack,)) for stack in STACKS]
    return {axis: count for side in sides for axis, count in side.items() if count % ways}


def parameter_spec(where: Where, model: LanguageModel, ways: int) -> PartitionSpec:
    """The partition spec of a parameter over `ways` devices of the axis `model`."""
    parts = units(model, where)
    return PartitionSpec(
        *(MODEL if axis and parts[axis] % ways == 0 else None for axis in logical_axes(where))
    )


def split_spec(
    where: Where, shape: tuple[int, ...], model: LanguageModel, ways: int
) -> PartitionSpec:
    """`parameter_spec` of an array of `shape`; axes that `ways` does not divide stay whole.

    For example the scales of a quantized kernel, one or a few for all inputs, or parameters outside
    of a model, as of parallel heads.
    """
    spec = parameter_spec(where, model, ways)
    axes = [axis if size % ways == 0 else None for axis, size in zip(spec, shape, strict=False)]
    return PartitionSpec(*axes)


def full_spec(
    where: Where, shape: tuple[int, ...], model: LanguageModel, data: int, ways: int
) -> PartitionSpec:
    """The partition spec of a fully sharded parameter, split over `data` too.

    Splits the largest whole axis that `data` divides. Vectors (norms, biases) stay whole: they are
    too small to be worth a collective.
    """
    axes: list[str | None] = list(split_spec(where, shape, model, ways))
    axes += [None] * (len(shape) - len(axes))
    free = [i for i, size in enumerate(shape) if axes[i] is None and size % data == 0]
    if len(shape) > 1 and free:
        axes[max(free, key=shape.__getitem__)] = DATA
    return PartitionSpec(*axes)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh, and how many devices of its `model` axis each model is split over (0: all)."""

    mesh: jax.sharding.Mesh
    ways: tuple[tuple[str, int], ...]  # by model's name

    def sharding(self, *axes: str | tuple[str, ...] | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def rows(self, tree: Any) -> Any:
        """Shards rows of arrays [B, ...] over `data`; scalars are unchanged."""

        def place(x: jax.Array) -> jax.Array:
            if not x.ndim:
                return x
            return jax.lax.with_sharding_constraint(x, self.sharding(DATA))

        return jax.tree.map(place, tree)

    def cache(self, name: str, cache: Cache) -> Cache:
        """Shards a cache's rows over `data`, and its heads like the model's weights.

        Keys and values are its arrays of four axes, head-major [B, H, C, d].
        """

        axes = axes_over(self.mesh, dict(self.ways)[name])
        ways = math.prod(self.mesh.shape[axis] for axis in axes)

        def place(x: jax.Array) -> jax.Array:
            if x.ndim != 4:
                return x
            heads = axes if x.shape[1] % ways == 0 else None
            return jax.lax.with_sharding_constraint(x, self.sharding(DATA, heads))

        return Cache(jax.tree.map(place, cache.data), self.rows(cache.length))

    def replicate(self, tree: Any) -> Any:
        """Replicates arrays on every device, and so on every host."""
        return jax.lax.with_sharding_constraint(tree, self.sharding())


def own_rows(mesh: jax.sharding.Mesh | None, count: int) -> np.ndarray:
    """Indices of the `count` rows of a batch that the devices of this process hold."""
    if mesh is None:
        return np.arange(count)
    sharding = NamedSharding(mesh, PartitionSpec(DATA))
    places = sharding.addressable_devices_indices_map((count,)).values()
    held = {place[0].indices(count) for place in places if place is not None}
    return np.concatenate([np.arange(*span) for span in sorted(held)])


def placement(mesh: jax.sharding.Mesh, ways: int = 0, fully_sharded: bool = False) -> Any:
    """A function that gives `hf.load` the sharding of each parameter.

    `ways` are the devices of the `model` axis that it is split over: 0 all, 1 none.

    Raises:
      UserError: when the mesh has no such part.
    """
    axes = axes_over(mesh, ways)
    size = math.prod(mesh.shape[axis] for axis in axes)

    def of_model(model: LanguageModel) -> Any:
        def where_to(where: Where, shape: tuple[int, ...]) -> NamedSharding:
            if fully_sharded:
                spec = full_spec(where, shape, model, mesh.shape[DATA], size)
            else:
                spec = split_spec(where, shape, model, size) if axes else PartitionSpec()
            return NamedSharding(mesh, replace_model_axis(spec, axes))

        return where_to

    return of_model


def replace_model_axis(spec: PartitionSpec, axes: tuple[str, ...]) -> PartitionSpec:
    """The spec with `model` replaced by the mesh's axes."""
    if axes == (MODEL,):
        return spec
    return PartitionSpec(*(axes or None if axis == MODEL else axis for axis in spec))


def parameter_shardings(
    mesh: jax.sharding.Mesh,
    model: LanguageModel,
    fully_sharded: bool = False,
    tree: Any = None,
    ways: int = 0,
) -> Any:
    """The sharding of every parameter of a model on the mesh (`placement`), as a tree.

    `tree`: other parameters than only the model's, as those of heads on it.
    """
    where_to = placement(mesh, ways, fully_sharded)(model)

    def leaf(path: tuple[Any, ...], value: Any) -> NamedSharding:
        return where_to(to_key_path(path), value.shape)

    if tree is None:
        tree = get_parameter_shapes(model)
    return jax.tree_util.tree_map_with_path(leaf, tree)
