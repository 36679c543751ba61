"""Drafts: tokens proposed by a drafter, read by the target and judged by a rule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int, Int32

from specjax.contracts.distribution import Distribution, OneHot
from specjax.contracts.rows import count_until_eos

GOING, LENGTH, STOPPED, NO_MATCH, ENDED, HELD = range(6)
"""Stop reasons of a draft: still drafting, all K tokens or as many as fit, stop predicate, nothing
to copy, the draft ends the text, the drafter did not run."""

STOP_REASONS = ("going", "length", "stopped", "no_match", "ended", "held")
"""Names of the stop reasons in tables."""


class Draft(struct.PyTreeNode):
    """A proposal of up to K tokens per row; entries at and after `length` are ignored.

    A chain if `parents` is None, else a tree: node k is a child of node `parents[b, k]`, -1 is
    the pending token, and parents come before their children.
    """

    tokens: Int32[Array, "B K"]
    length: Int32[Array, " B"]
    distribution: Distribution  # from which each token was drawn
    review: Bool[Array, " B"]  # False: accepted without verification; ends the row
    drafted_by: Int32[Array, "B K"]  # index into the drafter's `Spec.writers`
    parents: Int32[Array, "B K"] | None = None
    slots: Int32[Array, "B K"] | None = None  # cache slot of each node, counted from the end
    # of the text, for the models of `TreeSpec.fed`; -1: the node was not fed
    aux: Any = None  # of the drafter, for its reader or rule; leaves [B, K + n, ...]

    @classmethod
    def chain(
        cls,
        tokens: jax.Array,
        length: Int[Array, " B"] | None = None,
        distribution: Distribution | None = None,
        *,
        drafted_by: Int[Array, "B K"] | None = None,
        review: Bool[Array, " B"] | None = None,
        aux: Any = None,
    ) -> Draft:
        """Builds a chain of tokens [B, K]; by default of full length and one-hot, by writer 0.

        Raises:
          ValueError: if the tokens are not of rank 2.
        """
        if tokens.ndim != 2:
            raise ValueError(f"drafted tokens have shape {tokens.shape}; expected [B, K]")
        rows, width = tokens.shape
        return cls(
            tokens=tokens,
            length=jnp.full((rows,), width, jnp.int32) if length is None else length,
            distribution=OneHot(tokens) if distribution is None else distribution,
            review=jnp.ones((rows,), bool) if review is None else review,
            drafted_by=jnp.zeros_like(tokens) if drafted_by is None else drafted_by,
            aux=aux,
        )

    @property
    def width(self) -> int:
        return self.tokens.shape[1]

    @property
    def tree_parents(self) -> Int[Array, "B K"]:
        """The `parents` [B, K] of a tree.

        Raises:
          ValueError: if the draft is a chain.
        """
        if self.parents is None:
            raise ValueError("the draft is a chain; expected a tree")
        return self.parents

    @property
    def node_slots(self) -> Int[Array, "B K"]:
        """The `slots` [B, K] of nodes in the caches of the drafter's models.

        Raises:
          ValueError: if the drafter gave none.
        """
        if self.slots is None:
            raise ValueError("slots is None; a drafter whose models are fed nodes must give them")
        return self.slots

    def check(self, rows: int, most: int) -> None:
        """Checks dtype and shape of the tokens during tracing.

        Raises:
          ValueError: naming the shape and the allowed one.
        """
        shape, kind = self.tokens.shape, self.tokens.dtype
        if kind != jnp.int32 or shape[0] != rows or shape[1] > most:
            raise ValueError(
                f"drafted tokens are {kind} of shape {shape}; they must be int32 [{rows}, K] with K"
                f" at most {most}, the width in the drafter's spec"
            )

    def narrow(self, width: int) -> Draft:
        """Returns the first `width` columns, which must hold every row's draft."""
        dropped = self.width - width
        return self.replace(
            tokens=self.tokens[:, :width],
            distribution=self.distribution.narrow(width),
            drafted_by=self.drafted_by[:, :width],
            parents=None if self.parents is None else self.parents[:, :width],
            slots=None if self.slots is None else self.slots[:, :width],
            aux=jax.tree.map(lambda x: x[:, : x.shape[1] - dropped], self.aux),
        )

    def cut(self, most: Int[Array, " B"], eos: tuple[int, ...]) -> Draft:
        """Cuts a chain to at most `most` [B] tokens and after its first EOS; keeps a tree.

        The cut at a position depends on earlier tokens only, so lossless rules stay lossless.
        Tokens after an EOS or beyond the row's limit are never committed.
        """
        if self.parents is not None:
            return self
        length = jnp.minimum(jnp.minimum(self.length, most), count_until_eos(self.tokens, eos))
        return self.replace(length=length)
