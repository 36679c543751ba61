"""Inputs of proposers, and their memory between rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np
from flax import struct

from specjax.contracts.drafter import Memory
from specjax.drafting.adaptive_length import Running
from specjax.drafting.online import LearnedBias


@dataclasses.dataclass(frozen=True)
class Nodes:
    """Drafted nodes that are fed to a proposer for their next-token logits.

    B batch rows, m nodes, K drafted tokens so far, D tokens of a path.
    """

    tokens: jax.Array  # [B, m] int32
    depth: jax.Array | int  # []: tokens of the paths to them
    drafted: jax.Array  # [B, K] int32: the draft so far
    paths: np.ndarray | None = None  # [m, D]: in a tree, the nodes on the path to each node
    numbers: np.ndarray | None = None  # [m]: of a tree, of the distributions after them
    parents: np.ndarray | None = None  # [m]: and of those that they were drawn from; 0: the text's
    placement: Mapping[str, jax.Array] = dataclasses.field(default_factory=dict)  # for `extend`

    @property
    def path(self) -> jax.Array:
        """The drafted tokens [B, m, D] up to and including each node; the first `depth` count."""
        if self.paths is not None:
            return self.drafted[:, self.paths]
        known = isinstance(self.depth, int)
        return self.drafted[:, None, : self.depth] if known else self.drafted[:, None]


class ProposerMemory(struct.PyTreeNode):
    """Memory of rows between rounds; None for parts that are unused."""

    own: Memory  # of the proposer
    acceptance_counts: Running | None  # of acceptance, for adaptive lengths
    learned: LearnedBias | None  # of the target, for online adaptation


NOTHING = ProposerMemory((), None, None)
"""The memory of a proposer without memory."""
