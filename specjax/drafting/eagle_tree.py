"""A tree of tokens of one layer that goes on from the target's states.

Li et al., "EAGLE-3" (2025); trees of the likeliest nodes are EAGLE-2's (docs/methods/eagle.md).
"""

from __future__ import annotations

import dataclasses

from specjax.core import fields
from specjax.core.env import Env
from specjax.core.registry import DRAFTERS
from specjax.core.spec import Spec
from specjax.drafting.neural_tree import NeuralTree
from specjax.drafting.on_target import OnOwnStates
from specjax.models.shared_vocabulary import unwrapped


@DRAFTERS.register("eagle_tree", example={"widths": (2, 2)})
@dataclasses.dataclass(frozen=True)
class EagleTree(OnOwnStates, NeuralTree):
    """A tree of one decoder layer that reads the target's states."""

    model: str = fields.name("drafter", help="the feature drafter, trained for this target")
    layers: tuple[int, ...] = ()

    @property
    def spec(self) -> Spec:
        # Nodes that stood are fed again, with the target's states: none of theirs is kept.
        return dataclasses.replace(super().spec, features=self.layers, fed=())

    @property
    def lag(self) -> int:
        return self.shape.levels + 1

    def check(self, env: Env) -> None:
        """Refuses another target's drafter, and more children than ids that it drafts.

        Raises:
          ValueError: saying what does not fit.
        """
        super().check(env)
        self.check_children(unwrapped(env[self.model].model).config.draft_vocab)
