"""Runs the target at the narrowest compiled width that fits the drafts.

A call is compiled for each of several widths; the narrowest that fits all drafts runs, and none
without drafts (docs/decisions.md).
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.contracts.env import Env
from specjax.contracts.reader import WIDTH, Judge, Reader
from specjax.contracts.registry import READERS
from specjax.contracts.rows import make_zeros, run_if
from specjax.contracts.rule import Reading, Verdict
from specjax.contracts.spec import Call, Spec
from specjax.models.base import Cache
from specjax.verification.whole import WholeReader

Judged = TypeVar("Judged", Verdict, Reading)


@READERS.register("fitted")
@dataclasses.dataclass(frozen=True)
class FittedReader(Reader):
    """The narrowest compiled target call that fits all drafts; none if there are no drafts.

    `inner` reads the first columns of the drafts; `fits` are the compiled widths, ascending up to
    the drafter's width.
    """

    fits: tuple[int, ...] = ()
    inner: Reader = WholeReader()

    def adapt_to(self, spec: Spec, own: Reader | None) -> FittedReader:
        """Calls of 2, 4, 8, ... tokens, and of the pending token if drafts may be empty."""
        own = own or WholeReader()
        fits = (*(() if spec.always else (0,)), *list_doubling_widths(spec.width))
        return FittedReader(fits, own.inner if isinstance(own, FittedReader) else own)

    @property
    def exact(self) -> bool:
        return self.inner.exact

    @property
    def trees(self) -> bool:
        return self.inner.trees

    def list_widths(self, width: int) -> tuple[int, ...]:
        return self.fits

    def make_call(self, target: str, drafted: int) -> Call:
        return self.inner.make_call(target, drafted)

    def check(self, width: int) -> None:
        self.inner.check(width)
        if list(self.fits) != sorted(set(self.fits)) or self.fits[-1:] != (width,):
            raise ValueError(
                f"widths are {self.fits}; they must be ascending up to the drafter's, {width}"
            )

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
        read = context.active & draft.review
        longest = jnp.max(jnp.where(read, draft.length, 0))
        choice = jnp.argmax(jnp.array(self.fits) >= longest)

        def at(width: int, cache: Cache) -> tuple[Verdict, Reading, Cache]:
            narrow = draft.narrow(min(width, draft.width))
            verdict, reading, cache, _ = self.inner.read(
                env, cache, narrow, context, judge, features
            )
            return widen_judged(verdict, draft.width), widen_judged(reading, draft.width), cache

        nothing = make_zeros(lambda: at(draft.width, cache)[:2])
        carry = (*nothing, cache)
        for index, width in enumerate(self.fits):
            wanted = jnp.any(read) & (choice == index)
            carry = run_if(wanted, lambda carry, width=width: at(width, carry[2]), carry)
        width = jnp.broadcast_to(jnp.array(self.fits, jnp.int32)[choice], context.length.shape)
        return *carry, {WIDTH: width}


def widen_judged(tree: Judged, width: int) -> Judged:
    """Pads the outputs or verdict of a narrow draft to the columns of `width` tokens.

    Columns are the second axis; a tree's path has one column fewer than its tokens.
    """
    columns = width + 1

    def one(x: jax.Array) -> jax.Array:
        if x.ndim < 2:
            return x
        return jnp.pad(x, ((0, 0), (0, columns - x.shape[1]), *((0, 0),) * (x.ndim - 2)))

    return jax.tree.map(one, tree)


def list_doubling_widths(longest: int) -> tuple[int, ...]:
    """Lists 1, 3, 7, ... and `longest`: with the pending token 2, 4, 8, ... tokens."""
    widths = (2**power - 1 for power in range(1, longest.bit_length() + 1))
    return (*(width for width in widths if width < longest), longest)
