"""From prompts to batches of token ids, and from generated ids to texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from specjax.checks import token_ids
from specjax.core.env import Models
from specjax.data.batching import Batch, make_batch
from specjax.errors import UserError
from specjax.models.base import LanguageModel


class Decodes(Protocol):
    """What a decode says of itself, whatever its loop is."""

    models: Models
    max_new_tokens: int

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the models that run, the target first."""


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Encodes prompts for a decode, and pads them to few shapes."""

    tokenizer: Any  # None: prompts are token ids
    decoder: Decodes
    max_prompt_tokens: int
    bucket: int

    @property
    def models(self) -> dict[str, LanguageModel]:
        """Those that run, the target first."""
        known = dict(self.decoder.models)
        return {name: known[name] for name in self.decoder.used}

    def encode(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Token ids of prompts; checks that there is something to decode and that it fits.

        Raises:
          UserError: when they are of no use.
        """
        if isinstance(prompts, str):
            raise UserError("prompts is a single text; it must be a list of texts or token ids")
        if not isinstance(prompts, Iterable):
            raise UserError(f"prompts is {prompts!r}; it must be a list of texts or token ids")
        vocabulary = min(model.vocab_size for model in self.models.values())
        ids = []
        for index, prompt in enumerate(prompts):
            if isinstance(prompt, str):
                prompt = self._tokens(index, prompt)
            row = token_ids(f"prompt {index}", prompt, vocabulary)
            if not 1 <= len(row) <= self.max_prompt_tokens:
                raise UserError(
                    f"prompt {index} has {len(row)} tokens; max_prompt_tokens allows 1 to"
                    f" {self.max_prompt_tokens}"
                )
            self._check_positions(index, len(row))
            ids.append(row)
        if not ids:
            raise UserError("prompts is empty; there is nothing to decode")
        return ids

    def _tokens(self, index: int, text: str) -> list[int]:
        if self.tokenizer is None:
            raise UserError("prompts holds texts, but the target has no tokenizer")
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UserError(f"prompt {index} has half a character; it must be a whole text")
        return self.tokenizer(text).input_ids

    def _check_positions(self, index: int, length: int) -> None:
        """Learned positions end somewhere; beyond them a model computes nonsense."""
        for name, model in self.models.items():
            most = model.max_positions
            if most and length + self.decoder.max_new_tokens > most:
                raise UserError(
                    f"prompt {index} has {length} tokens, and max_new_tokens is"
                    f" {self.decoder.max_new_tokens}; model {name!r} has {most} positions for both"
                )

    def batch(self, ids: list[list[int]], size: int, first: int = 0) -> Batch:
        """Rows `first ..` padded to a compiled shape; missing rows decode nothing."""
        return make_batch(
            ids,
            size,
            first=first,
            pad=next(iter(self.models.values())).pad,
            bucket=self.bucket,
            limit=self.decoder.max_new_tokens,
        )

    def decode(self, tokens: list[list[int]]) -> list[str] | None:
        """Texts of generated ids without special tokens; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
