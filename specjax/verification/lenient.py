"""Lenience: accept more, at a bounded distance from the target (methods.md 1.6).

Leviathan et al. (2023), appendix A.5. Outputs change: never a default at the outermost level.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.sampling import adjust, argmax
from specjax.verification.base import Verdict, leading_run, pick
from specjax.verification.exact import sampled_match


@dataclasses.dataclass(frozen=True)
class Lenient:
    """Sampling: accept iff `r * l * q(x) < p(x)`. Greedy: accept iff `p(x) >= l * max p`.

    The greedy form compares plain temperature-1 probabilities; correction and bonus are argmax p.
    `lenience` names the traced option that holds l in (0, 1]; 1 is the strict rule.
    """

    lenience: str = "lenience"
    lossless: ClassVar[bool] = False
    nestable: ClassVar[bool] = True

    def verify(self, draft, logits: jax.Array, options, keys: jax.Array) -> Verdict:
        value = options.numbers[self.lenience]
        if options.sampling.greedy:
            return greedy_lenient(draft, logits, value)
        return sampled_match(draft, adjust(logits, options.sampling), value, keys)


def greedy_lenient(draft, logits: jax.Array, lenience: jax.Array) -> Verdict:
    """Drafted tokens stand while their probability is at least `lenience` of the largest."""
    best = argmax(logits)
    drafted = jnp.take_along_axis(logits[:, :-1], draft.tokens[..., None], axis=-1, mode="clip")
    # p(x) >= l * max p without a softmax: the normaliser cancels.
    near = drafted[..., 0] >= jnp.max(logits[:, :-1], axis=-1) + jnp.log(lenience)
    accepted = leading_run((draft.tokens == best[:, :-1]) | near, draft.length)
    return Verdict(accepted, pick(best, accepted), accepted.astype(jnp.float32))
