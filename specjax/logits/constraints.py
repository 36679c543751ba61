"""Logits processors that forbid tokens or force them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.logits_processor import LogitsProcessor, Positions, force_tokens, mask_tokens
from specjax.contracts.registry import PROCESSORS
from specjax.models.base import LanguageModel


@PROCESSORS.register("forced_bos_token_id", example={"forced_bos_token_id": 3})
@dataclasses.dataclass(frozen=True)
class ForcedFirstToken(LogitsProcessor):
    """Forces the token after a one-token text, as the language after the start token."""

    forced_bos_token_id: str = fields.integer(
        least=0, traced="forced_bos_token_id", help="the token after the decoder's start token"
    )

    order: ClassVar[int] = 70
    off: ClassVar[None] = None

    @staticmethod
    def tokens(value: int) -> tuple[int, ...]:
        return (value,)

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        # One for all rows, or one for each row.
        token = positions.context.options.numbers[self.forced_bos_token_id].reshape(-1, 1, 1)
        return force_tokens(logits, jnp.arange(logits.shape[-1]) == token, positions.length == 1)


@PROCESSORS.register("forced_eos_token_id", example={"forced_eos_token_id": (1,)})
@dataclasses.dataclass(frozen=True)
class ForcedLastToken(LogitsProcessor):
    """Forces one of these tokens, equally probable, at the row's last position."""

    forced_eos_token_id: tuple[int, ...] = fields.tokens(help="the token at the length limit")

    order: ClassVar[int] = 80

    @staticmethod
    def tokens(value: tuple[int, ...]) -> tuple[int, ...]:
        return value

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        chosen = jnp.isin(jnp.arange(logits.shape[-1]), jnp.array(self.forced_eos_token_id))
        return force_tokens(
            logits, chosen, positions.length == positions.context.limit[:, None] - 1
        )


def drop_tokens(logits: jax.Array, tokens: tuple[int, ...]) -> jax.Array:
    """Masks these tokens in logits [..., V]."""
    return logits.at[..., jnp.array(tokens, jnp.int32)].set(-jnp.inf, mode="drop")


@PROCESSORS.register("suppress_tokens", example={"suppress_tokens": (2,)})
@dataclasses.dataclass(frozen=True)
class SuppressedTokens(LogitsProcessor):
    """Tokens that are never written."""

    suppress_tokens: tuple[int, ...] = fields.tokens(help="tokens that are never written")

    order: ClassVar[int] = 90

    @staticmethod
    def tokens(value: tuple[int, ...]) -> tuple[int, ...]:
        return value

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        return drop_tokens(logits, self.suppress_tokens)


@PROCESSORS.register("begin_suppress_tokens", example={"begin_suppress_tokens": (2, 1)})
@dataclasses.dataclass(frozen=True)
class SuppressedFirstTokens(LogitsProcessor):
    """Forbids tokens at the first position; after a forced first token, at the second."""

    begin_suppress_tokens: tuple[int, ...] = fields.tokens(help="tokens that are not written first")
    forced: bool = False  # a first token is

    order: ClassVar[int] = 100

    @staticmethod
    def tokens(value: tuple[int, ...]) -> tuple[int, ...]:
        return value

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        forced = any(isinstance(other, ForcedFirstToken) for other in others)
        return dataclasses.replace(self, forced=forced)

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        begin = positions.context.begin
        first = begin + (self.forced & (begin == 1))
        here = (positions.length == first[:, None])[..., None]
        return jnp.where(here, drop_tokens(logits, self.begin_suppress_tokens), logits)


@dataclasses.dataclass(frozen=True)
class _MinLength(LogitsProcessor):
    """Forbids end tokens while the text is too short."""

    eos: tuple[int, ...] = ()

    off: ClassVar[int] = 0

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        return dataclasses.replace(self, eos=model.info.eos)

    def short(self, positions: Positions) -> jax.Array:
        """Whether [B, T] the text before each position is too short to end."""
        raise NotImplementedError

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        return jnp.where(self.short(positions)[..., None], drop_tokens(logits, self.eos), logits)


@PROCESSORS.register("min_length", example={"min_length": 3})
@dataclasses.dataclass(frozen=True)
class MinLength(_MinLength):
    """Forbids an end before a minimum length, including the prompt or start token."""

    min_length: str = fields.integer(
        least=0, traced="min_length", help="least tokens of a text, its prompt or start token too"
    )

    order: ClassVar[int] = 50

    def short(self, positions: Positions) -> jax.Array:
        return positions.length < positions.context.options.numbers[self.min_length]


@PROCESSORS.register("min_new_tokens", example={"min_new_tokens": 2})
@dataclasses.dataclass(frozen=True)
class MinNewTokens(_MinLength):
    """Forbids an end before a minimum number of new tokens."""

    min_new_tokens: str = fields.integer(
        least=0, traced="min_new_tokens", help="least new tokens; in place of `min_length`"
    )

    order: ClassVar[int] = 60

    def short(self, positions: Positions) -> jax.Array:
        context = positions.context
        written = positions.length - context.begin[:, None]
        return written < context.options.numbers[self.min_new_tokens]


@PROCESSORS.register("bad_words_ids", example={"bad_words_ids": ((4,), (3, 2))})
@dataclasses.dataclass(frozen=True)
class BadWords(LogitsProcessor):
    """Forbids sequences of tokens, except single end tokens, as in transformers."""

    bad_words_ids: tuple[tuple[int, ...], ...] = fields.listing(
        "a list of lists of token ids",
        lambda word: isinstance(word, tuple) and bool(word) and all(map(fields.is_token, word)),
        help="sequences of tokens that are not written",
    )

    order: ClassVar[int] = 40

    @staticmethod
    def tokens(value: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return tuple(token for word in value for token in word)

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        ends = {(end,) for end in model.info.eos}
        words = tuple(word for word in self.bad_words_ids if word not in ends)
        return dataclasses.replace(self, bad_words_ids=words)

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        for size in sorted(set(map(len, self.bad_words_ids))):
            words = jnp.array([word for word in self.bad_words_ids if len(word) == size])
            is_prefix = positions.last(size - 1)[:, :, None] == words[:, :-1]
            banned = jnp.all(is_prefix, axis=-1)
            logits = mask_tokens(logits, words[:, -1], banned)
        return logits
