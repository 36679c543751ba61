"""Encodes texts into the token ids of training, truncated to its lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from specjax.data.pipeline import RaggedRows
from specjax.data.two_vocabularies import text_ids
from specjax.runtime.progress import progress

CHUNK = 1000
"""Texts passed to the tokenizer at a time."""

Ids = Sequence[int]


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A tokenizer for one kind of model.

    Encoder-decoder prompts that are too long lose their end but for the EOS, decoder-only ones
    their beginning; outputs lose their end, and with it the EOS. `chat` renders prompts as messages
    of a chat, whose answers are tokenized by themselves.
    """

    tokenizer: Any
    causal: bool  # decoder-only
    eos: int
    max_prompt_tokens: int
    max_output_tokens: int
    chat: Callable[[Sequence[str]], Sequence[Ids]] | None = None

    def prompts(self, texts: Sequence[str]) -> RaggedRows:
        """Ids of prompts."""
        encode = self.chat or self._plain
        return RaggedRows(map(self._cut_prompt, self._chunks("prompts", texts, encode)))

    def outputs(self, prompts: Sequence[str], texts: Sequence[str]) -> RaggedRows:
        """Ids of the outputs to learn, followed by EOS."""
        pairs = list(zip(prompts, texts, strict=True))
        encode = self._continuations if self.causal else self._targets
        encode = self._answers if self.chat else encode
        return RaggedRows(
            row[: self.max_output_tokens] for row in self._chunks("outputs", pairs, encode)
        )

    def plain_outputs(self, texts: Sequence[str]) -> list[Ids]:
        """Ids of the outputs without the tokenizer's special tokens, followed by EOS."""
        ids = self.tokenizer(list(texts), add_special_tokens=False).input_ids
        return [self._append_eos(row)[: self.max_output_tokens] for row in ids]

    def _chunks(
        self, what: str, items: Sequence[Any], encode: Callable[[Sequence[Any]], Sequence[Ids]]
    ) -> Iterator[Ids]:
        with progress(total=len(items), desc=f"tokenize {what}", unit="text") as bar:
            for start in range(0, len(items), CHUNK):
                chunk = items[start : start + CHUNK]
                yield from encode(chunk)
                bar.update(len(chunk))

    def _plain(self, texts: Sequence[str]) -> list[Ids]:
        return self.tokenizer(list(texts)).input_ids

    def _cut_prompt(self, ids: Ids) -> Ids:
        limit = self.max_prompt_tokens
        if len(ids) <= limit:
            return ids
        return ids[-limit:] if self.causal else [*ids[: limit - 1], ids[-1]]

    def _targets(self, pairs: Sequence[tuple[str, str]]) -> list[Ids]:
        texts = [output for _, output in pairs]
        return [self._append_eos(ids) for ids in text_ids(self.tokenizer, texts)]

    def _answers(self, pairs: Sequence[tuple[str, str]]) -> list[Ids]:
        texts = [output for _, output in pairs]
        rows = self.tokenizer(texts, add_special_tokens=False).input_ids if texts else []
        return [self._append_eos(ids) for ids in rows]

    def _continuations(self, pairs: Sequence[tuple[str, str]]) -> list[Ids]:
        """What follows the prompt when both are one text, which is how it will be generated."""
        joined = [
            prompt + ("" if prompt[-1:].isspace() else " ") + output for prompt, output in pairs
        ]
        heads = self._plain([prompt for prompt, _ in pairs])
        sequences = []
        for head, whole, (_, output) in zip(heads, self._plain(joined), pairs, strict=True):
            if whole[: len(head)] == head:
                rest = whole[len(head) :]
            else:  # a piece spans the border
                rest = self.tokenizer(output, add_special_tokens=False).input_ids
            sequences.append(self._append_eos(rest))
        return sequences

    def _append_eos(self, ids: Ids) -> Ids:
        return ids if ids and ids[-1] == self.eos else [*ids, self.eos]
