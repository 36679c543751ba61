"""The rule contract: which tokens are written after a draft was read."""

from __future__ import annotations

import jax

from specjax.core import fields
from specjax.core.context import Options
from specjax.core.distribution import Distribution
from specjax.core.draft import Draft
from specjax.core.verdict import Reading, Verdict


class Rule:
    """Acceptance rule; frozen and hashable."""

    def __post_init__(self) -> None:
        fields.check(self)

    lossless: bool = False
    """Whether outputs keep the target's distribution (and equal its argmax when greedy)."""

    trees: bool = False
    """Whether it judges trees as well as chains."""

    apart: bool = False
    """Whether nodes must be drawn independently (not `TreeSpec.shared`)."""

    def judge(self, draft: Draft, reading: Reading, options: Options, keys: jax.Array) -> Verdict:
        """Judges a draft by what the target read; consumes `keys` [B]."""
        raise NotImplementedError

    def check_sampling(self, greedy: bool) -> None:
        """Refuses sampling settings that the rule does not support.

        Raises:
          ValueError: saying which.
        """


class NestableRule(Rule):
    """A rule that may review inside a cascade."""

    def distribution(self, draft: Draft, reading: Reading, options: Options) -> Distribution:
        """The distribution [B, K + 1] of accepted tokens and corrections.

        The next reviewer tests each token against it (docs/methods/cascade.md).
        """
        raise NotImplementedError
