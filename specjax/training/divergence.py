"""The fields by which objectives choose a divergence from the target, and its numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from specjax.contracts import fields
from specjax.training.loss import FROM_TARGET

POSITION, BATCH = "position", "batch"

READ = {
    "lk_lambda": ("kl_decay", "acceptance_scope"),
    "tv_ce": ("ce_weight", "l1_weight"),
    "top_k": ("top_k",),
}
"""Fields that a divergence reads; one that is not here reads none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DivergenceFields:
    """A divergence from the target, and the numbers of the acceptance-aware ones."""

    divergence: str = fields.choice(
        FROM_TARGET, "forward_kl", help="cross_entropy: with the target's most probable token"
    )
    kl_decay: float = fields.number(
        3.0, bounds="[0, inf)", help="for lk_lambda: KL has the weight exp(-kl_decay * acceptance)"
    )
    acceptance_scope: str = fields.choice(
        (POSITION, BATCH),
        POSITION,
        help="for lk_lambda: the acceptance of each position, or its mean over a micro-batch",
    )
    ce_weight: float = fields.number(
        0.1, bounds="[0, inf)", help="for tv_ce: weight of the cross-entropy with the text's token"
    )
    l1_weight: float = fields.number(
        0.9, bounds="[0, inf)", help="for tv_ce: weight of the L1 distance, twice total variation"
    )
    top_k: int = fields.integer(10, help="for top_k: how many of the target's ids count")

    def __post_init__(self) -> None:
        check_unread(self, "divergence", READ)

    def arguments(self, labels: jax.Array, mask: jax.Array) -> dict[str, Any]:
        """The arguments of its loss after p and q, where labels [...] are the text's tokens."""
        if self.divergence == "lk_lambda":
            averaged = self.acceptance_scope == BATCH
            return {"decay": self.kl_decay, "mask": mask if averaged else None}
        if self.divergence == "tv_ce":
            weights = {"ce_weight": self.ce_weight, "l1_weight": self.l1_weight}
            return {"labels": labels, **weights}
        return {"k": self.top_k} if self.divergence == "top_k" else {}


def check_unread(part: Any, choice: str, read: Mapping[str, tuple[str, ...]]) -> None:
    """Refuses a field that is set and that the value of the field `choice` does not read.

    `read` names the fields that each value reads and the others do not.

    Raises:
      ValueError: naming both fields.
    """
    chosen, known = getattr(part, choice), fields.get_config_fields(type(part))
    for name in dict.fromkeys(name for names in read.values() for name in names):
        value = getattr(part, name)
        if name not in read.get(chosen, ()) and value != known[name].default:
            given = fields.format_value(value)
            raise ValueError(f"{name} is {given}; {choice} {chosen!r} does not read it")
