"""The reader contract: how the target reads a draft."""

from __future__ import annotations

from collections.abc import Callable

import jax

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.context import Context
from specjax.core.draft import Draft
from specjax.core.env import Env
from specjax.core.reading import Reading
from specjax.core.spec import Spec
from specjax.core.verdict import Verdict
from specjax.models.base import Cache

WIDTH = "width"
"""Column of readers: the drafted tokens that the target's call had room for, 0: it did not run."""


Judge = Callable[[Draft, Reading], Verdict]


class Reader:
    """A way to read drafts; frozen and hashable."""

    def __post_init__(self) -> None:
        fields.check(self)

    overrides: bool = False
    """Whether it reads drafts of any drafter, which might be read in another way otherwise."""

    columns: tuple[str, ...] = ()
    """Numbers that it logs, beside `WIDTH`."""

    @property
    def exact(self) -> bool:
        """Whether the logits are the target's own."""
        return True

    @property
    def trees(self) -> bool:
        """Whether it reads trees, and no chains."""
        return False

    def around(self, spec: Spec, own: Reader | None) -> Reader:
        """This reader for the drafts of a drafter, which may want to be read in its `own` way."""
        return own or self

    def widths(self, width: int) -> tuple[int, ...]:
        """Drafted tokens that a target call may have room for, under drafts of `width`."""
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
    ) -> tuple[Verdict, Reading, Cache, dict[str, jax.Array]]:
        """Reads a draft and has it judged; the target's cache afterwards, and log columns.

        The verdict is asked for in here, so that a reader which calls the target at one of several
        widths need not hand on logits of the widest.
        """
        raise NotImplementedError
