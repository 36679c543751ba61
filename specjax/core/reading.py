"""What the target read of a draft."""

from __future__ import annotations

import jax
from flax import struct


class Reading(struct.PyTreeNode):
    """The target's view of the pending token and the draft behind it."""

    logits: jax.Array  # [B, K + 1, V] float32
    hidden: jax.Array | None = None  # [B, K + 1, D] after the last layer
    features: tuple[jax.Array, ...] = ()  # [B, K + 1, D] after each layer that was asked for
