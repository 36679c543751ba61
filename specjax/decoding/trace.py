"""The record of a decode, from which every figure and table is computed.

Numbers of a round are in one array with named columns: the loop's own and those that drafters and
readers log. So a method adds a column without changes elsewhere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.contracts.draft import STOP_REASONS
from specjax.contracts.drafter import CALLS, STOP
from specjax.contracts.reader import WIDTH

NOBODY, TARGET, FIRST_DRAFTER = 0, 1, 2
"""Values of `Trace.written_by`: prompt or unwritten, the target, then the drafter's writers."""

DRAFTED, ACCEPTED, COMMITTED, REVIEWED, TESTED = OWN = (
    "drafted",
    "accepted",
    "committed",
    "reviewed",
    "tested",
)
"""The loop's own columns: drafted tokens; accepted ones; committed tokens, 0 for a finished row;
whether the target ran for the row; positions that were tested."""


class Trace(struct.PyTreeNode):
    """Fixed-size record of a decode.

    R is the largest possible number of rounds, as each commits at least one token. K is the
    drafter's width.
    """

    rounds: jax.Array  # [] int32: rounds run, the same for all rows
    numbers: jax.Array  # [B, R, columns] int32
    overlap: jax.Array  # [B, R] float32: sum of min(p, q) over the tested positions
    drafts: jax.Array  # [B, R, 2, K] int32: drafted tokens, rejected ones too, and who drafted them
    written_by: jax.Array  # [B, L] int8: who wrote each token
    columns: tuple[str, ...] = struct.field(pytree_node=False)

    def column(self, name: str) -> jax.Array:
        """[B, R] int32."""
        return self.numbers[..., self.columns.index(name)]

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self.columns

    @property
    def drafted(self) -> jax.Array:
        return self.column(DRAFTED)

    @property
    def accepted(self) -> jax.Array:
        return self.column(ACCEPTED)

    @property
    def committed(self) -> jax.Array:
        return self.column(COMMITTED)

    @property
    def reviewed(self) -> jax.Array:
        return self.column(REVIEWED) > 0

    @property
    def tested(self) -> jax.Array:
        return self.column(TESTED)

    @property
    def width(self) -> jax.Array:
        return self.column(WIDTH)

    @property
    def proposed(self) -> jax.Array:
        """Drafted tokens [B, R, K]."""
        return self.drafts[:, :, 0]

    @property
    def drafted_by(self) -> jax.Array:
        """Who drafted them [B, R, K], index into the drafter's writers."""
        return self.drafts[:, :, 1]

    @property
    def calls(self) -> dict[str, jax.Array]:
        """Runs [B] by `Call.part` while the row was active."""
        return {part: runs.sum(axis=1) for part, runs in self._runs().items()}

    @property
    def runs(self) -> dict[str, jax.Array]:
        """Runs [] of the batch by `Call.part`: the maximum over rows in every round."""
        return {part: runs.max(axis=0).sum() for part, runs in self._runs().items()}

    @property
    def stops(self) -> np.ndarray:
        """Rounds [B, reasons] by the reason why drafting stopped (`STOP_REASONS`)."""
        reason = np.asarray(self.column(STOP))[..., None] == np.arange(len(STOP_REASONS))
        return (reason & (np.asarray(self.committed) > 0)[..., None]).sum(axis=1)

    def _runs(self) -> dict[str, jax.Array]:
        names = (name for name in self.columns if name.startswith(CALLS))
        return {name.removeprefix(CALLS): self.column(name) for name in names}


def make_empty_trace(
    rows: int, rounds: int, width: int, buffer: int, columns: tuple[str, ...]
) -> Trace:
    """A trace of no rounds."""
    return Trace(
        rounds=jnp.int32(0),
        numbers=jnp.zeros((rows, rounds, len(columns)), jnp.int32),
        overlap=jnp.zeros((rows, rounds), jnp.float32),
        drafts=jnp.zeros((rows, rounds, 2, width), jnp.int32),
        written_by=jnp.zeros((rows, buffer), jnp.int8),
        columns=columns,
    )


def add_round(
    trace: Trace,
    values: dict[str, jax.Array],
    overlap: jax.Array,
    tokens: jax.Array,
    drafted_by: jax.Array,
) -> Trace:
    """Adds a round to the trace: values [B] by column, drafts [B, k] with k at most K.

    Raises:
      ValueError: when there is no column of a name.
    """
    for name in values:
        if not trace.has(name):
            raise ValueError(f"{name!r} is logged, but not among the columns of drafter and reader")
    at = trace.rounds
    row = jnp.stack(
        [values.get(name, jnp.zeros(overlap.shape, jnp.int32)) for name in trace.columns], axis=-1
    )
    drafts = jnp.stack([tokens, drafted_by], axis=1)
    return trace.replace(
        rounds=at + 1,
        numbers=jax.lax.dynamic_update_slice(trace.numbers, row[:, None], (0, at, 0)),
        overlap=jax.lax.dynamic_update_slice(trace.overlap, overlap[:, None], (0, at)),
        drafts=jax.lax.dynamic_update_slice(trace.drafts, drafts[:, None], (0, at, 0, 0)),
    )
