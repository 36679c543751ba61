"""The models of a decode, their parameters and other resources of drafters."""

from __future__ import annotations

import dataclasses
from typing import Any

from flax import struct
from jaxtyping import Array, Float, Float32, Int

from specjax.models.base import Cache, LanguageModel, Output, Params, PromptReading, Prompts
from specjax.models.info import ModelInfo

Models = tuple[tuple[str, LanguageModel], ...]
"""Models by name; hashable."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """A model with its parameters."""

    model: LanguageModel
    params: Params

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    def start(
        self, prompt: Prompts, length: Int[Array, " B"], capacity: int, **wanted: Any
    ) -> tuple[Cache, PromptReading]:
        return self.model.start(self.params, prompt, length, capacity, **wanted)

    def extend(self, tokens: Int[Array, "B T"], cache: Cache, **how: Any) -> tuple[Output, Cache]:
        return self.model.extend(self.params, tokens, cache, **how)

    def propagate(
        self, hidden: Float[Array, "B T D"], cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        return self.model.propagate(self.params, hidden, cache, layers)

    def read_out(self, hidden: Float[Array, "... D"]) -> Float32[Array, "... V"]:
        return self.model.read_out(self.params, hidden)

    def normed(self, hidden: Float[Array, "... D"]) -> Float[Array, "... D"]:
        return self.model.normed(self.params, hidden)

    def output(self, normed: Float[Array, "... D"]) -> Float32[Array, "... V"]:
        return self.model.output(self.params, normed)

    def embed(self, tokens: Int[Array, " ..."]) -> Float[Array, "... D"]:
        return self.model.embed(self.params, tokens)


def get_states(output: Output) -> Float[Array, "B T D"]:
    """The residual states [B, T, D] of a call.

    Raises:
      ValueError: when its model gives none.
    """
    if output.hidden is None:
        raise ValueError("the model's calls give no states; `Output.hidden` must be there")
    return output.hidden


class Env(struct.PyTreeNode):
    """Static models with their parameters; `env[name]` is a model that can be called."""

    params: dict[str, Any]  # of the models and of the drafter's `Spec.resources`
    models: Models = struct.field(pytree_node=False)
    target_name: str = struct.field(pytree_node=False, default="target")

    def __getitem__(self, name: str) -> Bound:
        return Bound(dict(self.models)[name], self.params[name])

    @property
    def target(self) -> Bound:
        return self[self.target_name]
