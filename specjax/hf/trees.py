"""Small parameter trees as one safetensors file, under the names of their branches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from specjax.hf.finite import check_finite
from specjax.hf.tensors import open_file
from specjax.models.base import Params
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.files import replacing


def save_tree(params: Params, file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a tree of arrays in nested dicts, atomically."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    tensors = {_name(path): processes.whole(leaf) for path, leaf in leaves}
    with replacing(file) as partial:
        save_file(tensors, partial, None if metadata is None else dict(metadata))


def load_tree(file: Path, expected: Params, what: str, described: str) -> Params:
    """Reads a tree with the shapes and dtypes of `expected`; other tensors are ignored.

    `what` names the contents (`heads`) and `described` their source (`their metadata`) in errors.

    Raises:
      UserError: when the file is damaged, or lacks a tensor or has one of another shape.
    """
    with open_file(file) as opened:
        stored = set(opened.keys())

        def read(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
            name = _name(path)
            if name not in stored:
                raise UserError(f"{what} {str(file)!r} lack the tensor {name!r}")
            try:
                tensor = opened.get_tensor(name)
            except SafetensorError as error:
                raise UserError(f"{what} {str(file)!r} cannot be read: {error}") from None
            if tensor.shape != leaf.shape:
                raise UserError(
                    f"{what} {str(file)!r} have a tensor {name!r} of shape {tensor.shape};"
                    f" {described} asks for {leaf.shape}"
                )
            check_finite(name, str(file), np.asarray(tensor, leaf.dtype))
            return jnp.asarray(tensor, leaf.dtype)

        return jax.tree_util.tree_map_with_path(read, expected)


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(key.key for key in path)
