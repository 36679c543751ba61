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
from specjax.contracts.rows import select_rows

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

    R is the largest possible number of rounds of a row, as each commits at least one token. K is
    the drafter's width. Round n is at index n mod R, so that rows may begin in any round
    (`decoding.filling`); a row's record stays as it is once the row has ended.
    """

    rounds: jax.Array  # [] int32: rounds run, the same for all rows
    most: jax.Array  # [columns] int32: each round's largest number of any row, summed over rounds
    numbers: jax.Array  # [B, R, columns] int32
    overlap: jax.Array  # [B, R] float32: sum of min(p, q) over the tested positions
    drafts: jax.Array  # [B, R, 2, K] int32: drafted tokens, rejected ones too, and who drafted them
    written_by: jax.Array  # [B, L] int8: who wrote each token
    columns: tuple[str, ...] = struct.field(pytree_node=False)
    logprobs: jax.Array | None = (
        None  # [B, L] float32: of each written token, if `Decoder.logprobs`
    )

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
        places = {name: index for index, name in enumerate(self.columns)}
        return {part: self.most[places[CALLS + part]] for part in self._runs()}

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
        most=jnp.zeros((len(columns),), jnp.int32),
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
    active: jax.Array,
) -> Trace:
    """Adds a round to the trace: values [B] by column, drafts [B, k] with k at most K.

    Nothing is added to rows that are not `active` [B].

    Raises:
      ValueError: when there is no column of a name.
    """
    for name in values:
        if not trace.has(name):
            raise ValueError(f"{name!r} is logged, but not among the columns of drafter and reader")
    at = jax.lax.rem(trace.rounds, trace.numbers.shape[1])
    numbers = jnp.stack(
        [values.get(name, jnp.zeros(overlap.shape, jnp.int32)) for name in trace.columns], axis=-1
    )
    drafts = jnp.stack([tokens, drafted_by], axis=1)

    def write(record: jax.Array, new: jax.Array) -> jax.Array:
        where = (0, at, *(0,) * (new.ndim - 1))
        before = jax.lax.dynamic_slice(record, where, (new.shape[0], 1, *new.shape[1:]))
        kept = select_rows(active, new[:, None], before)
        return jax.lax.dynamic_update_slice(record, kept, where)

    return trace.replace(
        rounds=trace.rounds + 1,
        most=trace.most + jnp.max(numbers * active[:, None], axis=0),
        numbers=write(trace.numbers, numbers),
        overlap=write(trace.overlap, overlap),
        drafts=write(trace.drafts, drafts),
    )
