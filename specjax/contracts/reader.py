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
"""Column: width of the target's call in drafted tokens; 0 if it did not run."""


Judge = Callable[[Draft, Reading], Verdict]


class Reader:
    """Runs the target on drafts; frozen and hashable."""

    def __post_init__(self) -> None:
        fields.check(self)

    overrides: bool = False
    """Whether it replaces the reader that a drafter requires."""

    columns: tuple[str, ...] = ()
    """Columns that it logs in addition to `WIDTH`."""

    @property
    def exact(self) -> bool:
        """Whether the logits are those of the whole target."""
        return True

    @property
    def trees(self) -> bool:
        """Whether it reads trees instead of chains."""
        return False

    def adapt_to(self, spec: Spec, own: Reader | None) -> Reader:
        """Returns the reader for a drafter that requires the reader `own`, if any."""
        return own or self

    def list_widths(self, width: int) -> tuple[int, ...]:
        """Lists widths, in drafted tokens, of the target's calls on drafts of `width`."""
        return (width,)

    def make_call(self, target: str, drafted: int) -> Call:
        """Describes the target's call on the pending token and `drafted` drafted tokens."""
        return Call(target, drafted + 1, drafted + 1)

    def check(self, width: int) -> None:
        """Checks that it can read drafts of a width.

        Raises:
          ValueError: giving the reason.
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
        """Reads and judges a draft; also returns the target's new cache and log columns.

        The reader calls `judge` itself, so that a reader with several compiled widths holds logits
        of one width only.
        """
        raise NotImplementedError
