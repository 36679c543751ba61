"""Generation settings written out once more, token by token in plain Python, for one law.

By what transformers' logits processors are documented to do, in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


def followers(text: tuple[int, ...], last: tuple[int, ...]) -> list[int]:
    """What stands in a text behind the tokens `last`."""
    size = len(last)
    return [text[i] for i in range(size, len(text)) if text[i - size : i] == last]


def process(
    logits: np.ndarray,
    text: tuple[int, ...],
    given: Mapping[str, Any],
    *,
    prompt: tuple[int, ...],
    begin: int,
    limit: int,
    eos: tuple[int, ...],
) -> np.ndarray:
    """Logits [V] behind a text of which the first `begin` tokens were given."""
    made = np.array(logits, np.float64)
    for sequence, bias in given.get("sequence_bias", ()):
        *begun, last = sequence
        if len(begun) <= len(text) and list(text[len(text) - len(begun) :]) == begun:
            made[last] += bias
    for token in set(prompt):
        reward = given.get("encoder_repetition_penalty", 1.0)
        made[token] *= 1 / reward if made[token] < 0 else reward
    for token in set(text):
        penalty = given.get("repetition_penalty", 1.0)
        made[token] *= penalty if made[token] < 0 else 1 / penalty
    for name, searched in (
        ("no_repeat_ngram_size", text),
        ("encoder_no_repeat_ngram_size", prompt),
    ):
        size = given.get(name, 0)
        if size and len(text) + 1 >= size:
            made[followers(searched, text[len(text) - size + 1 :])] = -np.inf
    for word in given.get("bad_words_ids", ()):
        *begun, last = word
        said = len(begun) <= len(text) and list(text[len(text) - len(begun) :]) == begun
        if said and (begun or last not in eos):
            made[last] = -np.inf
    least = given.get("min_length", 0)
    if "min_new_tokens" in given:
        least = given["min_new_tokens"] + begin
    if len(text) < least:
        made[list(eos)] = -np.inf
    forced = []
    if "forced_bos_token_id" in given and len(text) == 1:
        forced = [given["forced_bos_token_id"]]
    if "forced_eos_token_id" in given and len(text) == limit - 1:
        forced = list(given["forced_eos_token_id"])
    if forced:
        made[:] = -np.inf
        made[forced] = 0.0
    start, factor = given.get("exponential_decay_length_penalty", (limit, 1.0))
    if len(text) > begin + start:
        for end in eos:
            push = abs(made[end]) * (factor ** (len(text) - begin - start) - 1)
            made[end] += push if np.isfinite(made[end]) else 0.0
    made[list(given.get("suppress_tokens", ()))] = -np.inf
    later = begin == 1 and "forced_bos_token_id" in given
    if len(text) == begin + later:
        made[list(given.get("begin_suppress_tokens", ()))] = -np.inf
    if given.get("renormalize_logits"):
        made -= np.logaddexp.reduce(made)
    return made


@dataclasses.dataclass(frozen=True)
class UnderSettings:
    """A `PrefixModel` whose law is that under settings, for `sequence_law`."""

    model: Any
    given: Mapping[str, Any]
    new: int  # tokens at the row's end

    @property
    def eos(self) -> tuple[int, ...]:
        return self.model.info.eos

    def logits(self, params, source, prefix) -> np.ndarray:
        own = self.model.logits(params, source, prefix)
        begin = 1 if self.model.info.start_token is not None else len(source)
        prompt = tuple(source)
        return process(
            own, tuple(prefix), self.given, prompt=prompt, begin=begin, limit=begin + self.new,
            eos=self.eos,
        )  # fmt: skip

    def greedy(self, params, source) -> list[int]:
        """What it says to a source."""
        encoded = self.model.info.start_token is not None
        text = [self.model.info.start_token] if encoded else list(source)
        begin = len(text)
        while len(text) < begin + self.new and (len(text) == begin or text[-1] not in self.eos):
            text.append(int(np.argmax(self.logits(params, source, tuple(text)))))
        return text[begin:]
