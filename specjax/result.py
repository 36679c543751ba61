"""What a call of a generator gives, and how notebooks and data frames show it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from specjax.data.batching import Prompt
from specjax.decoding.state import Decoder, Generation
from specjax.decoding.summary import Statistics
from specjax.hf.two_vocabularies import prompt_text
from specjax.metrics.text import rounds_of_text

SHOWN = 5
"""Texts that a notebook shows."""


@dataclasses.dataclass(frozen=True)
class FirstTexts:
    """The first texts of a call as they were decoded, read from the device when looked at."""

    generation: Generation
    prompts: Sequence[Prompt]  # of its first rows, SHOWN at most
    decoder: Decoder
    tokenizer: Any

    def entries(self) -> list[dict[str, Any]]:
        """Each text's prompt (`source`) and its rounds, as `texts` of results.json has them."""
        generation = jax.device_get(self.generation)
        return [
            {
                "source": self._source(prompt),
                "rounds": rounds_of_text(generation, row, self.decoder, self.tokenizer),
            }
            for row, prompt in enumerate(self.prompts)
        ]

    def _source(self, prompt: Prompt) -> str:
        heard = isinstance(prompt, np.ndarray)
        return "(audio)" if heard else prompt_text(self.tokenizer, prompt)


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """Outputs of one call, row by row; a notebook shows who wrote each token of the first texts."""

    tokens: list[list[int]]  # generated ids, EOS included
    texts: list[str] | None  # None without a tokenizer
    statistics: Statistics
    first: FirstTexts | None = dataclasses.field(default=None, compare=False)  # with a tokenizer

    def row(self) -> dict[str, int | float]:
        """Figures of the call, flat: `pandas.DataFrame([result.row() for result in results])`."""
        statistics = self.statistics
        return {
            "texts": len(self.tokens),
            "tokens": statistics.tokens,
            "rounds": statistics.rounds,
            "drafted": statistics.drafted,
            "tested": statistics.tested,
            "accepted": statistics.accepted,
            "acceptance_rate": statistics.acceptance_rate,
            "tokens_per_target_call": statistics.tokens_per_target_call,
            **{f"calls_{part}": count for part, count in statistics.calls.items()},
        }

    def __repr__(self) -> str:
        statistics = self.statistics
        accepted = (
            f", {statistics.acceptance_rate:.1%} of drafts accepted" if statistics.tested else ""
        )
        return (
            f"Result({len(self.tokens)} texts, {statistics.tokens} tokens,"
            f" {statistics.tokens_per_target_call:.2f} per target call{accepted})"
        )

    def _repr_html_(self) -> str:
        from specjax.reporting.notebook import result_html

        entries = self.first.entries() if self.first else []
        return result_html(entries, len(self.tokens), self.row())
