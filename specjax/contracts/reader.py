"""The reader contract: how the target reads a draft."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Array, Int

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.contracts.env import Env
from specjax.contracts.rule import Reading, Verdict
from specjax.contracts.spec import Call, Spec
from specjax.models.base import Cache

WIDTH = "width"
"""Column of readers: drafted tokens that fit the target's call; 0: it did not run."""


Judge = Callable[[Draft, Reading], Verdict]


class Reader:
    """A way to read drafts; frozen and hashable."""

    def __post_init__(self) -> None:
        fields.check(self)

    overrides: bool = False
    """Whether it replaces the reader that a drafter asks for."""

    columns: tuple[str, ...] = ()
    """Numbers that it logs, other than `WIDTH`."""

    @property
    def exact(self) -> bool:
        """Whether the logits are the target's own."""
        return True

    @property
    def trees(self) -> bool:
        """Whether it reads trees, and no chains."""
        return False

    def around(self, spec: Spec, own: Reader | None) -> Reader:
        """The reader for a drafter whose own one is `own`."""
        return own or self

    def widths(self, width: int) -> tuple[int, ...]:
        """Widths, in drafted tokens, of the target's calls on drafts of `width`."""
        return (width,)

    def call(self, target: str, drafted: int) -> Call:
        """The target's call on the pending token and `drafted` others."""
        return Call(target, drafted + 1, drafted + 1)

    def check(self, width: int) -> None:
        """Refuses drafts that it cannot read.

        Raises:
          ValueError: saying why.
        """

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
        """Reads and judges a draft; returns the target's new cache and log columns too.

        Judging here lets a reader that calls the target at one of several widths keep logits of
        that width alone.
        """
        raise NotImplementedError
