"""The rule contract: who decides which tokens are written after a draft was read."""

from __future__ import annotations

import jax

from specjax.core import fields
from specjax.core.context import Options
from specjax.core.distribution import Distribution
from specjax.core.draft import Draft
from specjax.core.reading import Reading
from specjax.core.verdict import Verdict


class Rule:
    """Acceptance rule; frozen and hashable."""

    def __post_init__(self) -> None:
        fields.check(self)

    lossless: bool = False
    """Whether outputs keep the target's distribution (and equal its argmax when greedy)."""

    trees: bool = False
    """Whether it judges trees, beside chains."""

    apart: bool = False
    """Whether the nodes of a tree must have been drawn apart, not as `Spec.shared` says."""

    def judge(self, draft: Draft, reading: Reading, options: Options, keys: jax.Array) -> Verdict:
        """Judges a draft by what the target read; consumes `keys` [B]."""
        raise NotImplementedError

    def check_sampling(self, greedy: bool) -> None:
        """Refuses settings under which the rule means nothing.

        Raises:
          ValueError: saying which.
        """


class NestableRule(Rule):
    """A rule that may review inside a cascade."""

    def distribution(self, draft: Draft, reading: Reading, options: Options) -> Distribution:
        """Of what it lets through, [B, K + 1] positions, corrections included.

        The reviewer above tests each token against it (docs/methods/cascade.md).
        """
        raise NotImplementedError
