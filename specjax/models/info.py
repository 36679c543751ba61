"""What is fixed about a language model: sizes, special tokens, what it reads."""

from __future__ import annotations

import dataclasses

Forced = int | tuple[int, ...]
"""A token that texts begin with, or several of which the target finds one most probable there."""


@dataclasses.dataclass(frozen=True)
class Frames:
    """What an encoder hears in place of tokens: every prompt has so many frames of one width."""

    count: int  # P
    width: int  # M
    stride: int  # frames for each of the encoder's states


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """Facts about a model that a decode asks for, whatever its architecture.

    `start_token` is the decoder start token of an encoder-decoder model, None of a decoder-only
    one. `forced` stands behind it in every text (a language, a task); it is committed before the
    first round and counts as no generated tokens. `source_vocab` is how many ids prompts have where
    they are others than the decoder's. `frames` are what an encoder hears; None where it reads
    tokens, or there is none. A model that `borrows_encoder` must be given the target's encoder
    states in `start`: its own would be the same. `max_positions` is the most tokens a row of the
    decoder, or of the encoder, may hold; None where there is no such limit. `drops_scale` says that
    a final norm keeps `read_out` from seeing how large a state is.
    """

    vocab_size: int
    depth: int  # decoder layers
    eos: tuple[int, ...] = ()
    pad: int = 0
    start_token: int | None = None
    forced: tuple[Forced, ...] = ()
    source_vocab: int | None = None
    frames: Frames | None = None
    borrows_encoder: bool = False
    max_positions: int | None = None
    drops_scale: bool = True

    @property
    def prefix(self) -> tuple[Forced, ...]:
        """What every row of an encoder-decoder model begins with; of others nothing."""
        return () if self.start_token is None else (self.start_token, *self.forced)

    @property
    def open_prefix(self) -> bool:
        """Whether the target chooses among several tokens that a row may begin with."""
        return any(isinstance(token, tuple) for token in self.prefix)

    @property
    def first_prefix(self) -> tuple[int, ...]:
        """One of the prefixes that rows may begin with: of several tokens the first."""
        return tuple(token[0] if isinstance(token, tuple) else token for token in self.prefix)

    @property
    def pending_token(self) -> int | None:
        """The token before the first one of an encoder-decoder text; None of others."""
        return self.first_prefix[-1] if self.prefix else None
