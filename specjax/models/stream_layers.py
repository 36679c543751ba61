"""Layers of decoder-only transformers on several residual streams (`models.altup`)."""

from __future__ import annotations

from typing import Any

import jax

from specjax.models.altup import AltUp, StreamUpdate, add_to_others
from specjax.models.causal_layers import Layer
from specjax.models.positions import Turn
from specjax.models.recurrent_caches import LayerCache, LayerKeysValues


class StreamLayer(Layer):
    """A layer that runs on one of several residual streams and updates all.

    States x are [B, T, R * D]. Layer inputs are added to all streams but the first.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.update = StreamUpdate(self.altup, c.d_model, c.eps, c.dtype)

    @property
    def altup(self) -> AltUp:
        assert self.config.altup is not None
        return self.config.altup

    def __call__(
        self,
        x: jax.Array,
        own: LayerCache | None,
        start: jax.Array | None,
        turn: Turn | jax.Array | None,
        mask: Any,
        deterministic: bool = True,
        length: jax.Array | None = None,
        given: jax.Array | None = None,
        shared: LayerKeysValues | None = None,
    ) -> tuple[jax.Array, Any, LayerKeysValues | None]:
        predicted = self.update.predict(x)
        active = predicted[..., self.altup.active, :]
        how = {"deterministic": deterministic, "length": length, "shared": shared}
        output, kept, visible = super().__call__(active, own, start, turn, mask, **how)
        streams = self.update.correct(predicted, output)
        if given is not None:
            added = self.input_gate(self.update.get_gating_state(streams), given)
            streams = add_to_others(streams, added)
        return streams.reshape(x.shape), kept, visible

    def write_cache(
        self, x: jax.Array, own: LayerCache, start: jax.Array, turn: Turn | jax.Array | None
    ) -> LayerCache:
        active = self.update.predict(x)[..., self.altup.active, :]
        return super().write_cache(active, own, start, turn)
