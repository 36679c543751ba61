"""Heads on the target's own states, each of which reads the tokens before its own.

Ankner et al., "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding" (2024), section 3,
with the text's tokens in the place of drafted ones (docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from specjax.contracts.registry import OBJECTIVES
from specjax.training.objectives.medusa import Medusa


@OBJECTIVES.register("hydra", example={"heads": 2})
@dataclasses.dataclass(frozen=True)
class Hydra(Medusa):
    """As `medusa`, of heads that read the tokens before theirs."""

    sequential: ClassVar[bool] = True
