"""Parallel heads as one safetensors file with their shape in its metadata, or as published."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from specjax.hf import medusa
from specjax.hf.hub import is_hub_id
from specjax.hf.tensors import open_file
from specjax.hf.trees import load_tree, save_tree
from specjax.models.heads import Heads, LoadedHeads
from specjax.models.shapes import get_parameter_shapes
from specjax.runtime.errors import UserError

COUNTS = ("count", "d_model", "width")

LATER = {
    "state_lag": ("behind", int),
    "sequential": ("sequential", bool),
    "normed": ("normed", bool),
}
"""Keys and types of fields that files of heads may lack; the default is 0."""


def save(loaded: LoadedHeads, file: str | Path) -> None:
    """Writes heads as one safetensors file, atomically."""
    shape = dataclasses.asdict(loaded.heads)
    shape |= {key: int(shape.pop(name)) for name, (key, _) in LATER.items()}
    save_tree(loaded.params, Path(file), {name: str(value) for name, value in shape.items()})


def is_published(name: str | Path) -> bool:
    """Whether heads of this name are published ones, in a directory or under a hub id."""
    of_hub = is_hub_id(name) and str(name).count("/") == 1
    return os.path.isdir(name) or (of_hub and Path(name).suffix != ".safetensors")


def load(file: str | Path, dtype: Any = jnp.float32) -> LoadedHeads:
    """Reads heads written by `save`, their weights in `dtype`.

    Those of a directory or hub id are published ones (`hf.medusa`).

    Raises:
      UserError: when the file is missing, damaged, or holds something else.
    """
    if is_published(file):
        return medusa.load(file, dtype)
    expected = shapes(file, dtype)
    params = load_tree(Path(file), expected.params, "heads", "their metadata")
    return LoadedHeads(expected.heads, params)


def shapes(file: str | Path, dtype: Any = jnp.float32) -> LoadedHeads:
    """Heads with the shapes of their parameters in `dtype`, read from the metadata of a file.

    Raises:
      UserError: when the file is missing, damaged, or not one of heads.
    """
    if is_published(file):
        return medusa.shapes(file, dtype)
    with open_file(Path(file)) as opened:
        metadata = opened.metadata() or {}
    try:
        counts = {name: int(metadata[name]) for name in COUNTS}
        later = {name: kind(int(metadata.get(key, 0))) for name, (key, kind) in LATER.items()}
        heads = Heads(**counts, **later, activation=metadata["activation"])
    except KeyError as error:
        raise UserError(f"heads {str(file)!r} have no {error} in their metadata") from None
    except ValueError as error:
        raise UserError(f"heads {str(file)!r} have unusable metadata: {error}") from None
    tree = get_parameter_shapes(heads)
    return LoadedHeads(
        heads, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), tree)
    )
