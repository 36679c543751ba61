"""The rule contract: what the target read, and which tokens a rule accepts."""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, Key

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.distribution import Distribution
from specjax.contracts.draft import Draft


class Reading(struct.PyTreeNode):
    """The target's outputs on the pending token and the draft after it."""

    logits: Float32[Array, "B K+1 V"]
    hidden: Float[Array, "B K+1 D"] | None = None  # after the last layer
    features: tuple[Float[Array, "B K+1 D"], ...] = ()  # after each of `Spec.features`


class Verdict(struct.PyTreeNode):
    """What a rule decided for each row: the first `count` of `tokens` are written.

    The first `accepted` of them are the draft's, or of a tree the nodes of `path`; what follows is
    the target's own. A rule that withholds its own token counts one less.
    """

    tokens: Int32[Array, "B K+1"]
    count: Int32[Array, " B"]
    accepted: Int32[Array, " B"]
    overlap: Float32[Array, " B"]  # sum of sum_x min(p, q) over the tested positions
    path: Int32[Array, "B K"] | None = None  # the accepted nodes of a tree, from the root on


def make_verdict(
    draft: Draft,
    accepted: Int[Array, " B"],
    own: Int[Array, " B"],
    overlap: Float[Array, " B"] | None = None,
) -> Verdict:
    """The first `accepted` [B] drafted tokens, then the token `own` [B].

    Without `overlap` every accepted token counts as one: a greedy target's distribution is one-hot.
    """
    drafted = jnp.pad(draft.tokens, ((0, 0), (0, 1)))
    is_accepted = jnp.arange(draft.width + 1) < accepted[:, None]
    tokens = jnp.where(is_accepted, drafted, own[:, None])
    overlap = accepted.astype(jnp.float32) if overlap is None else overlap
    return Verdict(tokens, accepted + 1, accepted, overlap)


def leading_run(passed: Bool[Array, "B K"], length: Int[Array, " B"]) -> Int[Array, " B"]:
    """Length [B] of the leading run of True in passed [B, K] among each row's first `length`."""
    inside = jnp.arange(passed.shape[1]) < length[:, None]
    return jnp.sum(jnp.cumprod((passed & inside).astype(jnp.int32), axis=1), axis=1)


def count_tested(accepted: Int[Array, " B"], length: Int[Array, " B"]) -> Int[Array, " B"]:
    """Positions [B] put to the test: the accepted ones and, if any, the first rejected one."""
    return jnp.minimum(accepted + 1, length)


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

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
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
