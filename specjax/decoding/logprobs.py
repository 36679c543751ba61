"""Log-probabilities of the written tokens under the target, for rollouts of reinforcement learning.

They are read from the logits that verification has anyway, in the same round: [B, K + 1, V] is
reduced to [B, K + 1] at once, and the target runs no second time (docs/how_to/rollouts.md).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from specjax.contracts.context import Options
from specjax.contracts.rule import Verdict
from specjax.runtime.errors import UserError
from specjax.sampling import adjust

OFF, RAW, PROCESSED = "", "raw", "processed"
"""Of no distribution; the target's softmax at temperature 1; that which the text is drawn from."""

KINDS: dict[Any, str] = {False: OFF, True: RAW, RAW: RAW, PROCESSED: PROCESSED}
"""Values of a generator's `logprobs`."""


def parse_logprobs(value: Any) -> str:
    """Returns the kind of log-probabilities of a generator's `logprobs`.

    Raises:
      UserError: when it is none of `KINDS`.
    """
    if isinstance(value, bool | str) and value in KINDS:
        return KINDS[value]
    allowed = ", ".join(map(repr, KINDS))
    raise UserError(f"logprobs is {value!r}; it must be one of {allowed}")


def add_logprobs(
    verdict: Verdict,
    kind: str,
    raw: Float[Array, "B K1 V"],
    processed: Float[Array, "B K1 V"],
    options: Options,
) -> Verdict:
    """Adds the log-probabilities [B, K+1], in nats, of a verdict's tokens to it.

    `raw` are the target's logits after the pending token and each drafted one, `processed` those
    after logits processors, to which the sampling settings of `options` apply.
    """
    logits = raw if kind == RAW else jnp.log(adjust(processed, options.sampling))
    return verdict.replace(logprobs=pick_logprobs(verdict, logits))


def pick_logprobs(verdict: Verdict, logits: Float32[Array, "B K1 V"]) -> Float32[Array, "B K1"]:
    """Returns the log-probabilities [B, K+1] of a verdict's tokens, each at its parent's logits.

    The parent of token i is the token before it: in a chain row i of the logits, in a tree the row
    of node `path[i - 1]`, which is one further because row 0 is the pending token's.
    """
    # Not logsumexp, which rounds at the size of the logits where a token is nearly certain.
    most = jnp.max(logits, axis=-1, keepdims=True)
    normalizer = jnp.log(jnp.sum(jnp.exp(logits - most), axis=-1, keepdims=True))
    if verdict.path is None:
        return (_take(logits, verdict.tokens[..., None], -1) - most - normalizer)[..., 0]
    by_node = _take(logits, verdict.tokens[:, None], -1) - most - normalizer  # [B, nodes, tokens]
    parents = jnp.pad(verdict.path + 1, ((0, 0), (1, 0)))
    return _take(by_node, parents[:, None], 1)[:, 0]


def _take(values: jax.Array, index: jax.Array, axis: int) -> jax.Array:
    return jnp.take_along_axis(values, index, axis=axis, mode="clip")
