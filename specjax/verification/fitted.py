"""The target's call is as narrow as the drafts allow, and is left out when there is none to read.

A call is compiled for each of some widths; the narrowest that holds every draft runs
(docs/design.md, "Verification width").
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
from specjax.contracts.rows import make_zeros, masked_step
from specjax.contracts.rule import Reading, Verdict
from specjax.contracts.spec import Call, Spec
from specjax.models.base import Cache
from specjax.verification.whole import Whole

Judged = TypeVar("Judged", Verdict, Reading)


@READERS.register("fitted")
@dataclasses.dataclass(frozen=True)
class Fitted(Reader):
    """The narrowest of some compiled calls that holds the drafts; none where there are none.

    `inner` reads the first columns of the drafts; `fits` rise to the drafter's width.
    """

    fits: tuple[int, ...] = ()
    inner: Reader = Whole()

    def around(self, spec: Spec, own: Reader | None) -> Fitted:
        """With 2, 4, 8, ... tokens, and only the pending one if there may be no draft."""
        own = own or Whole()
        fits = (*(() if spec.always else (0,)), *doubling(spec.width))
        return Fitted(fits, own.inner if isinstance(own, Fitted) else own)

    @property
    def exact(self) -> bool:
        return self.inner.exact

    @property
    def trees(self) -> bool:
        return self.inner.trees

    def widths(self, width: int) -> tuple[int, ...]:
        return self.fits

    def call(self, target: str, drafted: int) -> Call:
        return self.inner.call(target, drafted)

    def check(self, width: int) -> None:
        self.inner.check(width)
        if list(self.fits) != sorted(set(self.fits)) or self.fits[-1:] != (width,):
            raise ValueError(f"widths are {self.fits}; they must rise to the drafter's, {width}")

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
            carry = masked_step(wanted, lambda carry, width=width: at(width, carry[2]), carry)
        width = jnp.broadcast_to(jnp.array(self.fits, jnp.int32)[choice], context.length.shape)
        return *carry, {WIDTH: width}


def widen_judged(tree: Judged, width: int) -> Judged:
    """What was made of a narrow draft with the columns of one of `width` tokens.

    Columns are the second axis; of a tree's path, one fewer than of tokens.
    """
    columns = width + 1

    def one(x: jax.Array) -> jax.Array:
        if x.ndim < 2:
            return x
        return jnp.pad(x, ((0, 0), (0, columns - x.shape[1]), *((0, 0),) * (x.ndim - 2)))

    return jax.tree.map(one, tree)


def doubling(longest: int) -> tuple[int, ...]:
    """1, 3, 7, 15 and so on up to and with `longest`: the target is fed 2, 4, 8, 16 tokens."""
    widths = (2**power - 1 for power in range(1, longest.bit_length() + 1))
    return (*(width for width in widths if width < longest), longest)
