"""Several copied continuations side by side, verified as one tree (docs/methods/trees.md)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.draft import Draft
from specjax.contracts.reader import Reader
from specjax.contracts.spec import Spec, TreeSpec
from specjax.drafting.growing import select_nodes
from specjax.verification.whole import TreeReader


def branches_field() -> Any:
    """The config field of the number of continuations."""
    return fields.integer(1, help="continuations, which differ in first tokens; above 1: a tree")


def check_branches(branches: int, length: int) -> None:
    """Refuses more drafted tokens than are verified.

    Raises:
      ValueError: naming the fields.
    """
    if branches * length > fields.MOST_DRAFTED:
        raise ValueError(
            f"branches is {branches} and length {length}; the tree has {branches * length:,} nodes,"
            f" it must have at most {fields.MOST_DRAFTED:,}"
        )


def branched_spec(branches: int, length: int, **others: Any) -> Spec:
    """The static spec of drafts of several continuations of at most `length` tokens."""
    tree = TreeSpec(length) if branches > 1 else None
    return Spec(width=branches * length, tree=tree, **others)


def branched_reader(branches: int) -> Reader | None:
    """The reader of such drafts."""
    return TreeReader() if branches > 1 else None


def make_branches(
    tokens: list[jax.Array], counts: list[jax.Array], writers: list[jax.Array] | None = None
) -> Draft:
    """The tree of the first `counts` [B] of each continuation's tokens [B, K]; or one chain."""
    writer = None if writers is None else jnp.concatenate(writers, axis=1)
    if len(tokens) == 1:
        return Draft.chain(tokens[0], counts[0], drafted_by=writer)
    whole = jnp.concatenate(tokens, axis=1)
    step, width = jnp.arange(tokens[0].shape[1]), whole.shape[1]
    node = jnp.arange(width)
    parents = jnp.where(node % len(step) == 0, -1, node - 1)
    drafted = jnp.concatenate([step < count[:, None] for count in counts], axis=1)
    draft = Draft.chain(whole, jnp.sum(drafted, axis=1, dtype=jnp.int32), drafted_by=writer)
    draft = draft.replace(parents=jnp.broadcast_to(parents, whole.shape))
    return select_nodes(draft, jnp.argsort(~drafted, axis=1, stable=True))
