"""The layer of a head for multi-token prediction (MTP): one of the target's own, on two inputs.

DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024), section 2.2. The embedding of a token and the
target's last state before it, each normed, are joined by a matrix to the input of an ordinary
decoder layer of the target: with its experts, its norms and its rotation. What the final norm makes
of the layer's output is read out by the target's output layer, and stands in for the target's state
in the next step.

Dimension letters as in `models.base`; G key-value heads of width d, and e of values.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from specjax.models import causal_layers
from specjax.models.attention import AnyBias
from specjax.models.base import Params
from specjax.models.causal_config import CausalConfig
from specjax.models.eagle_layers import Inputs
from specjax.models.layers import Dense


class MtpLayer(nn.Module):
    """Both norms, the matrix that joins them, and the target's layer."""

    config: Any  # `models.eagle.EagleCausalConfig`

    def setup(self) -> None:
        c = self.config
        self.embedding_norm, self.state_norm = (
            causal_layers.make_norm(c),
            causal_layers.make_norm(c),
        )
        self.join = Dense(c.d_model, c.dtype)
        self.block = causal_layers.Layer(c, c.rope, c.layer_mixtures[0], c.layer_query_scales[0])

    def read(
        self,
        embedded: Float[Array, "B T D"],
        before: Float[Array, "B T D"],
        angles: Float32[Array, "B T R"] | None,
    ) -> Inputs:
        """The residual stream, and queries, keys and values, of tokens and the states before."""
        parts = self.embedding_norm(embedded), self.state_norm(before)
        parts = parts[::-1] if self.config.states_first else parts
        x = self.join(jnp.concatenate(parts, axis=-1))
        return x, self.block.queries_keys_values(x, angles)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        q: Float[Array, "B H T d"],
        k: Float[Array, "B G C d"],
        v: Float[Array, "B G C e"],
        bias: AnyBias,
        cross: Any = None,  # there is no encoder
    ) -> Float[Array, "B T D"]:
        """The states [B, T, D] after the layer on the residual stream x [B, T, D]."""
        return self.block.add_sublayers(x, q, k, v, bias)


def pass_states(params: Params) -> Params:
    """A fresh layer whose join passes the normed states on, and adds what embeddings give."""
    kernel = params["join"]["kernel"]
    width = kernel.shape[1]
    join = {"kernel": kernel.at[-width:].set(jnp.eye(width, dtype=kernel.dtype))}
    return {**params, "join": join}


_USUAL = {
    "rms_norm": True,
    "final_norm": True,
    "projected_width": None,
    "embedding_scale": 1.0,
    "logit_scale": 1.0,
    "head_bias": False,
    "temperature": None,
    "heads": (),
    "d_ffs": (),
    "shared_caches": (),
    "layer_inputs": None,
    "layer_scale": False,
}
"""Fields of targets that heads read, and their values."""


def get_layer_shape(target: CausalConfig) -> dict[str, Any]:
    """The fields of a shape with the target's last layer that attends to all by rotation.

    Raises:
      ValueError: when there is none, or the target's embedding and output layer are of a kind that
        a head does not read.
    """
    kinds = zip(target.layer_windows, target.layer_recurrences, target.layer_ropes, strict=True)
    whole = [
        layer
        for layer, (window, recurrence, rope) in enumerate(kinds)
        if rope and not window and not recurrence
    ]
    if not whole:
        raise ValueError(
            f"no layer of the target, of family {target.family!r}, attends to the whole text by"
            " rotary positions, as a head does"
        )
    for field, usual in _USUAL.items():
        if (value := getattr(target, field)) != usual:
            raise ValueError(f"{field} of the target is {value!r}; a head reads only {usual!r}")
    last = whole[-1]
    mixture = target.layer_mixtures[last]
    fields = {field.name: getattr(target, field.name) for field in dataclasses.fields(CausalConfig)}
    return fields | {
        "num_layers": 1,
        "rope": target.layer_ropes[last],
        "ropes": (),
        "windows": (),
        "recurrences": (),
        "mixtures": (mixture,) if mixture else (),
        "query_scales": (target.layer_query_scales[last],),
        "logit_cap": 0.0,
        "tied": False,
    }
