"""A tree of heads on the target, each of which reads the tokens of its path before its own.

Ankner et al., "Hydra" (2024) (docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from specjax.core.context import Context, last_token
from specjax.core.draft import Draft
from specjax.core.drafter import Log, Memory, calls_of
from specjax.core.env import Env
from specjax.core.registry import DRAFTERS
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.growing import Growing
from specjax.drafting.hydra import SequentialHeads


@DRAFTERS.register("hydra_tree", example={"widths": (2, 2)})
@dataclasses.dataclass(frozen=True)
class HydraTree(Growing, SequentialHeads):
    """A tree of heads on the target's own state that read the tokens of their path."""

    @property
    def used(self) -> int:
        return self.shape.levels

    @property
    def asking(self) -> str:
        return f"{self.given} is {getattr(self, self.given)}, of {self.used} levels"

    @property
    def runs(self) -> tuple[int, ...]:
        return self.fed

    @property
    def spec(self) -> Spec:
        return self._grown_spec(reach=self.nodes or self.shape.size, **self._common())

    def check(self, env: Env) -> None:
        """Refuses heads that do not fit, and more children than there are tokens.

        Raises:
          ValueError: saying what does not.
        """
        super().check(env)
        self.check_children(env.target.vocab_size)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        pending = last_token(context)[:, None]

        def feed(depth: int, tokens: jax.Array, carry: None) -> tuple[jax.Array, None]:
            paths = np.array([self.shape.path(node) for node in self.shape.fed(depth)])
            hidden = jnp.broadcast_to(memory[:, None], (len(memory), len(paths), memory.shape[-1]))
            first = jnp.broadcast_to(pending[..., None], (len(memory), len(paths), 1))
            text = jnp.concatenate([first, tokens[:, paths]], axis=-1)
            return self.law(env, hidden, text), carry

        logits = self.law(env, memory, pending)
        grown = self.grow(feed, logits, None, context, env.target.eos, keys)
        return self.draft(grown), caches, memory, calls_of({self.calls[0].part: grown.levels})
