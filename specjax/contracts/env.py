"""Models of a decode with their parameters, and other resources of drafters."""

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
        self, prompt: Prompts, length: Int[Array, " B"], capacity: int, **options: Any
    ) -> tuple[Cache, PromptReading]:
        return self.model.start(self.params, prompt, length, capacity, **options)

    def extend(
        self, tokens: Int[Array, "B T"], cache: Cache, **options: Any
    ) -> tuple[Output, Cache]:
        return self.model.extend(self.params, tokens, cache, **options)

    def propagate(
        self, hidden: Float[Array, "B T D"], cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        return self.model.propagate(self.params, hidden, cache, layers)

    def read_out(self, hidden: Float[Array, "... D"]) -> Float32[Array, "... V"]:
        return self.model.read_out(self.params, hidden)

    def apply_final_norm(self, hidden: Float[Array, "... D"]) -> Float[Array, "... D"]:
        return self.model.apply_final_norm(self.params, hidden)

    def apply_lm_head(self, normed: Float[Array, "... D"]) -> Float32[Array, "... V"]:
        return self.model.apply_lm_head(self.params, normed)

    def embed(self, tokens: Int[Array, " ..."]) -> Float[Array, "... D"]:
        return self.model.embed(self.params, tokens)


def get_states(output: Output) -> Float[Array, "B T D"]:
    """Returns the residual states [B, T, D] of a call.

    Raises:
      ValueError: if the model returned none.
    """
    if output.hidden is None:
        raise ValueError(
            "Output.hidden is None; the model's calls must return their residual states"
        )
    return output.hidden


class Env(struct.PyTreeNode):
    """Models and parameters; `env[name]` is a model bound to its parameters."""

    params: dict[str, Any]  # of the models and of the drafter's `Spec.resources`
    models: Models = struct.field(pytree_node=False)
    target_name: str = struct.field(pytree_node=False, default="target")

    def __getitem__(self, name: str) -> Bound:
        return Bound(dict(self.models)[name], self.params[name])

    @property
    def target(self) -> Bound:
        return self[self.target_name]
