"""Parallel heads as one safetensors file with their shape in its metadata."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from specjax.checkpoints.tensors import open_file
from specjax.errors import UserError
from specjax.models.heads import Heads, LoadedHeads

COUNTS = ("count", "d_model", "width")


def save(loaded: LoadedHeads, file: str | Path) -> None:
    """Writes heads as one safetensors file, complete or not at all."""
    file = Path(file)
    leaves = jax.tree_util.tree_flatten_with_path(loaded.params)[0]
    tensors = {_tensor_name(path): np.asarray(leaf) for path, leaf in leaves}
    shape = dataclasses.asdict(loaded.heads)
    partial = file.with_name(file.name + ".partial")
    save_file(tensors, partial, {name: str(value) for name, value in shape.items()})
    partial.replace(file)


def load(file: str | Path, dtype: Any = jnp.float32) -> LoadedHeads:
    """Reads heads written by `save`, their weights in `dtype`.

    Raises:
      UserError: when the file is missing, damaged, or holds something else.
    """
    expected = shapes(file, dtype)
    with open_file(Path(file)) as opened:
        stored = set(opened.keys())

        def read(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
            name = _tensor_name(path)
            if name not in stored:
                raise UserError(f"heads {str(file)!r} lack the tensor {name!r}")
            try:
                tensor = opened.get_tensor(name)
            except SafetensorError as error:
                raise UserError(f"heads {str(file)!r} cannot be read: {error}") from None
            if tensor.shape != leaf.shape:
                raise UserError(
                    f"heads {str(file)!r} have a tensor {name!r} of shape {tensor.shape}; their"
                    f" metadata asks for {leaf.shape}"
                )
            return jnp.asarray(tensor, leaf.dtype)

        params = jax.tree_util.tree_map_with_path(read, expected.params)
    return LoadedHeads(expected.heads, params)


def shapes(file: str | Path, dtype: Any = jnp.float32) -> LoadedHeads:
    """Heads with the shapes of their parameters in `dtype`, read from the metadata of a file.

    Raises:
      UserError: when the file is missing, damaged, or not one of heads.
    """
    with open_file(Path(file)) as opened:
        found = opened.metadata() or {}
    try:
        counts = {name: int(found[name]) for name in COUNTS}
        heads = Heads(**counts, activation=found["activation"])
    except KeyError as error:
        raise UserError(f"heads {str(file)!r} have no {error} in their metadata") from None
    except ValueError as error:
        raise UserError(f"heads {str(file)!r} have unusable metadata: {error}") from None
    tree = jax.eval_shape(heads.init, jax.random.key(0))
    return LoadedHeads(
        heads, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), tree)
    )


def _tensor_name(path: tuple[Any, ...]) -> str:
    return ".".join(key.key for key in path)
