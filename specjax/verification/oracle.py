"""Oracle engagement: how seldom a large model must step in.

See docs/methods/bild.md, "Oracle engagement".

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), Figure 2.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.sampling import argmax
from specjax.verification.base import Verdict, leading_run, pick, probability


@dataclasses.dataclass(frozen=True)
class Oracle:
    """Drafted tokens stand while the target gives them a probability of at least `engage`.

    The first that does not is replaced by the target's argmax; behind a draft that stood whole the
    target writes nothing, so that both models see every prefix. `engage` names the traced option: 0
    keeps all drafts, above 1 none. Greedy: it looks at plain laws.
    """

    engage: str = "engage"
    lossless: ClassVar[bool] = False
    nestable: ClassVar[bool] = False

    def verify(self, draft, logits: jax.Array, options, keys: jax.Array) -> Verdict:
        likely = probability(logits[:, :-1], draft.tokens) >= options.numbers[self.engage]
        accepted = leading_run(likely, draft.length)
        adds = (accepted < draft.length) | (draft.length == 0)
        next_token = pick(argmax(logits), accepted)
        return Verdict(accepted, next_token, accepted.astype(jnp.float32), adds)
