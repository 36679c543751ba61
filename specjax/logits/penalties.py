"""Logits processors that make tokens more or less probable.

The repetition penalty: Keskar et al., "CTRL: A Conditional Transformer Language Model for
Controllable Generation" (2019), section 4.1. N-grams that are written once: Paulus et al., "A Deep
Reinforced Model for Abstractive Summarization" (2018), section 2.5.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.logits_processor import UNKNOWN, LogitsProcessor, Positions, mask_tokens
from specjax.contracts.registry import PROCESSORS
from specjax.models.base import LanguageModel


@dataclasses.dataclass(frozen=True)
class PromptProcessor(LogitsProcessor):
    """A processor that reads the prompt; audio and images have no tokens."""

    has_ids: bool = dataclasses.field(default=True, kw_only=True)

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        return dataclasses.replace(self, has_ids=model.info.input is None)

    def prompt(self, context: Context) -> tuple[jax.Array, jax.Array]:
        """The tokens [B, S] of prompts, and how many [B] each has."""
        if not self.has_ids or context.encoder_tokens.shape[1]:
            return context.encoder_tokens, context.encoder_length * self.has_ids
        return context.tokens, context.begin


@PROCESSORS.register("encoder_repetition_penalty", example={"encoder_repetition_penalty": 1.5})
@dataclasses.dataclass(frozen=True)
class PromptReward(PromptProcessor):
    """Multiplies logits of the prompt's tokens; divides negative ones."""

    encoder_repetition_penalty: str = fields.number(
        bounds="(0, inf)",
        traced="encoder_repetition_penalty",
        help="multiplies logits of the prompt's tokens",
    )

    order: ClassVar[int] = 7
    off: ClassVar[float] = 1.0

    def prepare_rows(self, context: Context, vocabulary: int) -> jax.Array:
        """Whether [B, V] a token is in the prompt."""
        tokens, length = self.prompt(context)
        return find_prompt_tokens(tokens, length, vocabulary)

    def adjust(self, logits: jax.Array, positions: Positions, rows: jax.Array) -> jax.Array:
        factor = positions.context.options.numbers[self.encoder_repetition_penalty]
        scaled = jnp.where(logits < 0, logits / factor, logits * factor)
        return jnp.where(rows[:, None], scaled, logits)


def find_prompt_tokens(tokens: jax.Array, length: jax.Array, vocabulary: int) -> jax.Array:
    """Mask [B, V] of the tokens among the first `length` [B] of rows [B, N]."""
    slot = jnp.arange(tokens.shape[1])
    tokens = jnp.where(slot < length[:, None], tokens, vocabulary)
    rows = jnp.arange(len(tokens))[:, None]
    return jnp.zeros((len(tokens), vocabulary), bool).at[rows, tokens].set(True, mode="drop")


@PROCESSORS.register("repetition_penalty", example={"repetition_penalty": 1.5})
@dataclasses.dataclass(frozen=True)
class RepetitionPenalty(LogitsProcessor):
    """Divides logits of tokens in the text; multiplies negative ones."""

    repetition_penalty: str = fields.number(
        bounds="(0, inf)", traced="repetition_penalty", help="divides logits of the text's tokens"
    )

    order: ClassVar[int] = 10
    off: ClassVar[float] = 1.0

    def prepare_rows(self, context: Context, vocabulary: int) -> jax.Array:
        """Whether [B, V] a token is in the committed row."""
        return find_prompt_tokens(context.tokens, context.length, vocabulary)

    def adjust(self, logits: jax.Array, positions: Positions, rows: jax.Array) -> jax.Array:
        penalty = positions.context.options.numbers[self.repetition_penalty]

        def penalize(logits: jax.Array) -> jax.Array:
            return jnp.where(logits < 0, logits * penalty, logits / penalty)

        drafted = positions.drafted
        again = jnp.take_along_axis(logits, jnp.maximum(drafted, 0), axis=2)
        index = jnp.where(drafted >= 0, drafted, logits.shape[-1])
        row, place = jnp.arange(len(logits))[:, None, None], jnp.arange(logits.shape[1])[:, None]
        # From the original logits: a token counts once, however often it occurs in the text.
        once = jnp.where(rows[:, None], penalize(logits), logits)
        return once.at[row, place, index].set(penalize(again), mode="drop")


def find_followers(text: jax.Array, length: jax.Array, last: jax.Array) -> jax.Array:
    """Mask [B, T, N] of positions in a text after the `last` tokens [B, T, n - 1].

    The first `length` [B, 1 or T] tokens of texts [B, 1 or T, N] count.
    """
    size, before = text.shape[2], last.shape[2]
    place = jnp.arange(size)
    found = (place >= before) & (place < length[..., None])
    found &= jnp.all(last != UNKNOWN, axis=2)[..., None]
    for back in range(1, before + 1):
        shifted = jnp.pad(text, ((0, 0), (0, 0), (back, 0)), constant_values=UNKNOWN)
        found &= shifted[..., :size] == last[..., -back, None]
    return found


@PROCESSORS.register("no_repeat_ngram_size", example={"no_repeat_ngram_size": 2})
@dataclasses.dataclass(frozen=True)
class NoRepeatedNgrams(LogitsProcessor):
    """Forbids repeating an n-gram of the text."""

    no_repeat_ngram_size: int = fields.integer(help="size of n-grams that are written once")

    order: ClassVar[int] = 20
    off: ClassVar[int] = 0

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        before, context = self.no_repeat_ngram_size - 1, positions.context
        last, row = positions.last(before), context.tokens[:, None]
        logits = mask_tokens(logits, row, find_followers(row, context.length[:, None], last))
        # N-grams that end on the path; some begin in the row.
        tail = positions.tail(before)
        return mask_tokens(logits, tail, find_followers(tail, before + positions.depth, last))


@PROCESSORS.register("encoder_no_repeat_ngram_size", example={"encoder_no_repeat_ngram_size": 2})
@dataclasses.dataclass(frozen=True)
class NoNgramsOfPrompt(PromptProcessor):
    """Forbids n-grams of the prompt."""

    encoder_no_repeat_ngram_size: int = fields.integer(
        help="size of n-grams of the prompt that are not written"
    )

    order: ClassVar[int] = 30
    off: ClassVar[int] = 0

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        if model.info.source_vocab is not None:
            raise ValueError(
                f"encoder_no_repeat_ngram_size is {self.encoder_no_repeat_ngram_size}; of a target"
                " whose prompts have a vocabulary of their own it must be 0"
            )
        return self

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        prompt, length = self.prompt(positions.context)
        last = positions.last(self.encoder_no_repeat_ngram_size - 1)
        prompt = prompt[:, None]
        return mask_tokens(logits, prompt, find_followers(prompt, length[:, None], last))


def is_bias(pair: Any) -> bool:
    """Whether a value is a sequence of tokens with the bias of its last token's logit."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], tuple)):
        return False
    sequence, bias = pair
    number = isinstance(bias, (int, float)) and not isinstance(bias, bool)
    return bool(sequence) and all(map(fields.is_token, sequence)) and number and bias < float("inf")


@PROCESSORS.register("sequence_bias", example={"sequence_bias": (((3,), 1.5), ((4, 2), -2.0))})
@dataclasses.dataclass(frozen=True)
class SequenceBias(LogitsProcessor):
    """Adds a sequence's bias to the logit of the token that would complete it."""

    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = fields.listing(
        "a list of pairs of a list of token ids and a number below infinity",
        is_bias,
        help="sequences of tokens, and the bias of the last one's logit after the others",
    )

    order: ClassVar[int] = 4

    @staticmethod
    def tokens(value: tuple[tuple[tuple[int, ...], float], ...]) -> tuple[int, ...]:
        return tuple(token for sequence, _ in value for token in sequence)

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        biases = dict(self.sequence_bias)
        for size in sorted(set(map(len, biases))):
            sequences = [sequence for sequence in biases if len(sequence) == size]
            bias = jnp.array([biases[sequence] for sequence in sequences], logits.dtype)
            tokens = jnp.array(sequences)
            is_prefix = jnp.all(positions.last(size - 1)[:, :, None] == tokens[:, :-1], axis=-1)
            logits = logits.at[..., tokens[:, -1]].add(jnp.where(is_prefix, bias, 0.0))
        return logits


MOST = 1e30
"""Largest power, so that its product with a logit is finite."""


def is_decay(value: Any) -> bool:
    """Whether a value is a length and a factor."""
    if len(value) != 2 or not fields.is_token(value[0]):
        return False
    return fields.is_number(value[1]) and value[1] > 0


@PROCESSORS.register(
    "exponential_decay_length_penalty", example={"exponential_decay_length_penalty": (1, 1.5)}
)
@dataclasses.dataclass(frozen=True)
class DecayingLength(LogitsProcessor):
    """Makes ends of the text exponentially more probable after a number of new tokens."""

    exponential_decay_length_penalty: tuple[int, float] = fields.whole(
        "a pair of an integer of at least 0 and a positive number",
        is_decay,
        help="new tokens after which ends grow more probable, and the factor per token",
    )
    eos: tuple[int, ...] = ()

    order: ClassVar[int] = 84
    off: ClassVar[None] = None

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        return dataclasses.replace(self, eos=model.info.eos)

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        start, factor = self.exponential_decay_length_penalty
        more = positions.length - positions.context.begin[:, None] - start
        power = jnp.minimum(jnp.float32(factor) ** jnp.maximum(more, 0), MOST)
        ends = jnp.array(self.eos, jnp.int32)
        scores = logits[..., ends]
        # A forbidden end stays forbidden: the penalty is a multiple of its logit's magnitude.
        size = jnp.where(jnp.isfinite(scores), jnp.abs(scores), 0.0)
        return logits.at[..., ends].add(size * (power - 1.0)[..., None])


@PROCESSORS.register("renormalize_logits", example={"renormalize_logits": True})
@dataclasses.dataclass(frozen=True)
class LogitsNormalization(LogitsProcessor):
    """Renormalizes the log-probabilities of a beam search after other settings."""

    renormalize_logits: bool = fields.flag(
        help="renormalize the scores of a beam search after all other settings"
    )

    order: ClassVar[int] = 120
    off: ClassVar[bool] = False
    scores_only: ClassVar[bool] = True

    def adjust(self, logits: jax.Array, positions: Positions, rows: Any) -> jax.Array:
        total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        # If settings forbid all tokens there is nothing to normalize.
        return logits - jnp.where(total > -jnp.inf, total, 0.0)
