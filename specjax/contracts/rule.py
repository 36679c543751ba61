"""The acceptance rule contract: from the target's outputs to accepted tokens."""

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
    """A rule's decision for each row: the first `count` of `tokens` are written.

    The first `accepted` of them are drafted tokens, in a tree the nodes of `path`. The token after
    them is the target's, which a rule may withhold (`count` = `accepted`).
    """

    tokens: Int32[Array, "B K+1"]
    count: Int32[Array, " B"]
    accepted: Int32[Array, " B"]
    overlap: Float32[Array, " B"]  # sum of sum_x min(p, q) over the tested positions
    path: Int32[Array, "B K"] | None = None  # accepted nodes of a tree, from the root
    logprobs: Float32[Array, "B K+1"] | None = None  # of the tokens; the loop's, not the rule's


def make_verdict(
    draft: Draft,
    accepted: Int[Array, " B"],
    own: Int[Array, " B"],
    overlap: Float[Array, " B"] | None = None,
) -> Verdict:
    """Builds a verdict of the first `accepted` [B] drafted tokens and the token `own` [B].

    Without `overlap` every accepted token counts as 1, as for one-hot distributions.
    """
    drafted = jnp.pad(draft.tokens, ((0, 0), (0, 1)))
    is_accepted = jnp.arange(draft.width + 1) < accepted[:, None]
    tokens = jnp.where(is_accepted, drafted, own[:, None])
    overlap = accepted.astype(jnp.float32) if overlap is None else overlap
    return Verdict(tokens, accepted + 1, accepted, overlap)


def count_leading(passed: Bool[Array, "B K"], length: Int[Array, " B"]) -> Int[Array, " B"]:
    """Counts [B] the True entries of passed [B, K] before the first False or `length`."""
    inside = jnp.arange(passed.shape[1]) < length[:, None]
    return jnp.sum(jnp.cumprod((passed & inside).astype(jnp.int32), axis=1), axis=1)


def count_tested(accepted: Int[Array, " B"], length: Int[Array, " B"]) -> Int[Array, " B"]:
    """Counts tested positions [B]: the accepted ones and the first rejected one, if any."""
    return jnp.minimum(accepted + 1, length)


class Rule:
    """Decides which drafted tokens are accepted; frozen and hashable."""

    def __post_init__(self) -> None:
        fields.check(self)

    lossless: bool = False
    """Whether outputs have the target's distribution (and equal its argmax when greedy)."""

    trees: bool = False
    """Whether it supports trees as well as chains."""

    apart: bool = False
    """Whether nodes must be drawn independently of each other (not `TreeSpec.shared`)."""

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        """Judges a draft by the target's outputs; consumes `keys` [B]."""
        raise NotImplementedError

    def check_sampling(self, greedy: bool) -> None:
        """Checks that the rule supports greedy decoding or sampling.

        Raises:
          ValueError: naming the unsupported setting.
        """


class NestableRule(Rule):
    """A rule that can review drafts inside a cascade."""

    def distribution(self, draft: Draft, reading: Reading, options: Options) -> Distribution:
        """Returns the output distribution at K + 1 positions, rejections and corrections included.

        The next reviewer tests the tokens against it (docs/methods/cascade.md).
        """
        raise NotImplementedError
