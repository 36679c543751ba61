"""Rollback of the Big Little Decoder: drafted tokens stand unless the target finds them far off.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), section 3.3;
docs/methods/bild.md, "Rollback".
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.sampling import adjust, argmax, draw
from specjax.verification.base import Verdict, leading_run, pick
from specjax.verification.distances import DISTANCES, OF_LAWS


@dataclasses.dataclass(frozen=True)
class Rollback:
    """Drops everything from the first drafted token whose distance exceeds the threshold.

    `threshold` names the traced option, from 0 to infinity (never). The token that follows is the
    target's own: its argmax when greedy, else a draw from its adjusted law. When greedy and
    `equal_argmax`, a token that is the target's argmax stands however flat the law. `official` is
    the authors' form: when the first token beyond the threshold is the argmax, all stand.
    """

    distance: str = "cross_entropy"
    threshold: str = "rollback"
    equal_argmax: bool = True
    official: bool = False
    lossless: ClassVar[bool] = False
    nestable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.distance not in DISTANCES:
            raise ValueError(
                f"distance is {self.distance!r}; it must be one of {', '.join(DISTANCES)}"
            )

    @property
    def compares_laws(self) -> bool:
        """Whether drafts must carry the logits of their proposer."""
        return self.distance in OF_LAWS

    def verify(self, draft, logits: jax.Array, options, keys: jax.Array) -> Verdict:
        far = DISTANCES[self.distance](draft, logits[:, :-1]) > options.numbers[self.threshold]
        if options.sampling.greedy:
            best = argmax(logits)
            accepted = self._standing(far, draft.tokens == best[:, :-1], draft.length)
            next_token = pick(best, accepted)
        else:
            accepted = leading_run(~far, draft.length)
            next_token = draw(keys, adjust(pick(logits, accepted), options.sampling))
        return Verdict(accepted, next_token, accepted.astype(jnp.float32))

    def _standing(self, far: jax.Array, agreed: jax.Array, length: jax.Array) -> jax.Array:
        """How many tokens [B] stand when greedy."""
        if not self.equal_argmax:
            return leading_run(~far, length)
        if not self.official:
            return leading_run(~far | agreed, length)
        first = leading_run(~far, length)
        at_first = jnp.arange(far.shape[1]) == first[:, None]
        return jnp.where(jnp.any(at_first & agreed, axis=1), length, first)
