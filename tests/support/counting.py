"""A model whose runs are counted when a program runs them, and not when it is compiled."""

from __future__ import annotations

import collections
import dataclasses
import functools

import jax
from scripted import PrefixModel

CALLS: collections.Counter[tuple[str, str]] = collections.Counter()
"""Runs of (model, method)."""


@dataclasses.dataclass(frozen=True)
class Counting(PrefixModel):
    """A model that counts its runs in `CALLS`."""

    name: str = ""

    def _note(self, method: str) -> None:
        jax.debug.callback(functools.partial(CALLS.update, [(self.name, method)]))

    def start(
        self, params, prompt, prompt_length, capacity, *, features=(), ahead=None, longest=None
    ):
        self._note("start")
        return super().start(
            params, prompt, prompt_length, capacity, features=features, ahead=ahead
        )

    def extend(self, params, tokens, cache, *, at=None, **whole):
        self._note("extend")
        return super().extend(params, tokens, cache, at=at, **whole)
