"""Replaces parameters by others of the same structure, without changing compiled programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.base import Params
from specjax.runtime.errors import UserError


def replace_params(name: str, old: Params, new: Params) -> Params:
    """Returns the leaves of `new` in the structure of `old`, on the devices of `old`.

    Leaves are NumPy's or JAX's arrays; those on other devices are moved.

    Raises:
      UserError: naming the tree `name` and its first leaf that is missing, or of another shape or
        dtype.
    """
    known, structure = jax.tree_util.tree_flatten_with_path(old)
    given = {_to_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(new)[0]}
    leaves = {_to_name(path): leaf for path, leaf in known}
    for path in (*leaves, *given):
        if path not in given or path not in leaves:
            there, here = ("no", "it must have") if path in leaves else ("the", "there must be no")
            raise UserError(
                f"{name} has {there} leaf {path!r}; {here} it, as the parameters before"
            )
        if _describe(given[path]) != _describe(leaves[path]):
            raise UserError(
                f"{name} has {_describe(given[path])} at {path!r}; it must be"
                f" {_describe(leaves[path])}, as before"
            )
    placed = [_place(given[path], leaf) for path, leaf in leaves.items()]
    return jax.tree.unflatten(structure, placed)


def _to_name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _describe(leaf: Any) -> str:
    if not isinstance(leaf, jax.Array | np.ndarray):
        return repr(leaf)
    return f"{leaf.dtype} {list(leaf.shape)}"


def _place(new: jax.Array | np.ndarray, old: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    """Returns `new` on the devices of `old`, and committed to them only if `old` is.

    A program is compiled anew for an argument that is committed where it was not before.
    """
    if not isinstance(old, jax.Array):
        return np.asarray(new)
    if old.committed:
        return jax.device_put(new, old.sharding)
    # JAX uncommits an array only by a copy through the host.
    is_committed = isinstance(new, jax.Array) and new.committed
    return jnp.asarray(np.asarray(new) if is_committed else new)
