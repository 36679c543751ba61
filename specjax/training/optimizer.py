"""Optimizers and their schedules."""

from __future__ import annotations

import dataclasses

import optax

from specjax.contracts import fields

NAMES = ("adamw", "adafactor", "relative_adam")
DECAYS = ("constant", "linear", "cosine")


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The optimizer and its schedule; hashable.

    `adafactor` with decay "constant" is the papers' fine-tuning (docs/methods/alignment.md,
    "Recipes of the papers"). `relative_adam` takes Adam's steps relative to each tensor's root mean
    square, for models from scratch: T5 starts its tensors at scales that differ a hundredfold, so
    one absolute rate is too large for some and too small for others.
    """

    steps: int = fields.integer(1000, most=10**8, help="optimizer steps")
    learning_rate: float = fields.number(
        1e-3, bounds="[1e-9, 1000]", help="peak of the learning rate"
    )
    name: str = fields.choice(NAMES, "adamw", help="update rule")
    warmup: int = fields.integer(0, least=0, help="steps of linear growth")
    decay: str = fields.choice(DECAYS, "linear", help="to zero at `steps`")
    weight_decay: float = fields.number(0.0, bounds="[0, 1000]", help="weight decay of adamw")
    clip: float = fields.number(
        1.0, bounds="[0, 1000000]", help="global norm of the gradient; 0: none"
    )
    b1: float = 0.9
    b2: float = 0.98

    def __post_init__(self) -> None:
        fields.check(self)

    def schedule(self) -> optax.Schedule:
        """The learning rate of each step."""
        rest = max(self.steps - self.warmup, 1)
        after = {
            "constant": lambda: optax.constant_schedule(self.learning_rate),
            "linear": lambda: optax.linear_schedule(self.learning_rate, 0.0, rest),
            "cosine": lambda: optax.cosine_decay_schedule(self.learning_rate, rest),
        }[self.decay]()
        grow = optax.linear_schedule(0.0, self.learning_rate, self.warmup)
        return optax.join_schedules([grow, after], [self.warmup])

    def make(self) -> optax.GradientTransformation:
        """The Optax transformation."""
        clip = optax.clip_by_global_norm(self.clip) if self.clip else optax.identity()
        return optax.chain(clip, self._step())

    def _step(self) -> optax.GradientTransformation:
        rate = self.schedule()
        if self.name == "adafactor":
            return optax.adafactor(rate, multiply_by_parameter_scale=False)
        if self.name == "adamw":
            return optax.adamw(rate, self.b1, self.b2, weight_decay=self.weight_decay)
        return optax.chain(
            optax.scale_by_adam(b1=self.b1, b2=self.b2),
            optax.scale_by_param_block_rms(),
            optax.scale_by_learning_rate(rate),
        )
