"""Static facts about a language model: sizes, special tokens, kind of prompts."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

ForcedToken = int | tuple[int, ...]
"""A token of the decoder prefix, or alternatives of which the target selects the most probable."""


@dataclasses.dataclass(frozen=True)
class Frames:
    """Shape of audio prompts: a fixed number of frames of one width."""

    count: int  # P
    width: int  # M
    stride: int  # frames per encoder state

    @property
    def fewest(self) -> int:
        return self.count

    @property
    def states(self) -> int:
        """Encoder states of a prompt."""
        return self.count // self.stride

    def count_states(self, length: Any) -> Any:
        return self.states + 0 * length

    def __str__(self) -> str:
        return f"{self.count} frames of {self.width} numbers"


@dataclasses.dataclass(frozen=True)
class Samples:
    """Shape of audio prompts that are samples: any number of frames, each of M samples.

    Convolutions over the frames, each of a width and a stride, lead to encoder states.
    """

    count: int  # largest P
    width: int  # M
    convolutions: tuple[tuple[int, int], ...]

    @property
    def fewest(self) -> int:
        frames = 1
        for width, stride in reversed(self.convolutions):
            frames = (frames - 1) * stride + width
        return frames

    @property
    def states(self) -> int:
        """Most encoder states of a prompt."""
        return self.count_states(self.count)

    def count_states(self, length: Any) -> Any:
        for width, stride in self.convolutions:
            length = (length - width) // stride + 1
        return length

    def __str__(self) -> str:
        return f"audio in frames of {self.width} samples"


@dataclasses.dataclass(frozen=True)
class Spectrogram(Samples):
    """Shape of audio prompts that are any number of frames, each of M frequencies.

    The width of a convolution in `convolutions` is less by the zeros that it adds at both ends.
    """

    def __str__(self) -> str:
        return f"audio in frames of {self.width} frequencies"


@dataclasses.dataclass(frozen=True)
class Patches:
    """Shape of image prompts: a grid of patches, row by row from the top left.

    The M numbers of a patch are its pixels column by column, each with its channels.
    """

    rows: int
    columns: int
    height: int  # of a patch, in pixels
    breadth: int
    channels: int
    states: int  # encoder states of a prompt

    @property
    def fewest(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """P."""
        return self.rows * self.columns

    @property
    def width(self) -> int:
        """M."""
        return self.height * self.breadth * self.channels

    @property
    def size(self) -> tuple[int, int]:
        """Height and breadth of an image in pixels."""
        return self.rows * self.height, self.columns * self.breadth

    def count_states(self, length: Any) -> Any:
        return self.states + 0 * length

    def __str__(self) -> str:
        height, breadth = self.size
        grid = f"patches of {self.height} x {self.breadth}"
        return f"images of {self.channels} x {height} x {breadth} numbers in {grid}"


@dataclasses.dataclass(frozen=True)
class OneStateEach:
    """Shape of prompts of any number of rows, each of which has one encoder state."""

    count: int  # largest P
    width: int  # M

    @property
    def states(self) -> int:
        """Most encoder states of a prompt."""
        return self.count

    def count_states(self, length: Any) -> Any:
        return length


@dataclasses.dataclass(frozen=True)
class PlacedPatches(OneStateEach):
    """Shape of image prompts: any number of patches, as long as the image has a shape.

    The first two of the M numbers of a patch are its row and its column, from 1. The others are its
    pixels row by row, each with its channels.
    """

    fewest: ClassVar[int] = 1

    def __str__(self) -> str:
        return f"images in patches of {self.width} numbers with row and column"


@dataclasses.dataclass(frozen=True)
class EncoderStates(OneStateEach):
    """Shape of prompts that are the states of an encoder, for a decoder without one."""

    fewest: int

    def __str__(self) -> str:
        return f"encoder states of {self.width} numbers"


Input = Frames | Samples | Spectrogram | Patches | PlacedPatches | EncoderStates
"""Shape of prompts that are numbers [P, M] instead of tokens.

P is from `fewest` to `count`; `count_states` gives the encoder states of prompts of a length P.
"""


def has_one_size(given: Input | None) -> bool:
    """Whether all prompts have one size; tokens have any."""
    return given is not None and given.fewest == given.count


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """Facts about a model that decoding needs, independent of the architecture.

    `start_token` is the decoder start token of an encoder-decoder model, None for a decoder-only
    one. `forced` follows it in every text (a language, a task); these tokens are committed before
    the first round and do not count as generated. `source_vocab` is the vocabulary size of prompts
    if they have other ids than the decoder. `input` is the shape of audio or image prompts;
    None for token prompts. A model that `borrows_encoder` takes the target's encoder states in
    `start`, because its encoder is the same. One that `reads_states` reads the target's states
    instead of prompts. `max_positions` is the maximum number of tokens in a row of the decoder or
    the encoder; None if unlimited. `source_positions` is that of the encoder if it differs.
    `drops_scale`: a final norm makes `read_out` independent of a
    state's scale.
    """

    vocab_size: int
    depth: int  # decoder layers
    eos: tuple[int, ...] = ()
    pad: int = 0
    start_token: int | None = None
    forced: tuple[ForcedToken, ...] = ()
    source_vocab: int | None = None
    input: Input | None = None
    borrows_encoder: bool = False
    reads_states: bool = False
    max_positions: int | None = None
    source_positions: int | None = None
    drops_scale: bool = True

    @property
    def prefix(self) -> tuple[ForcedToken, ...]:
        """The decoder prefix of an encoder-decoder model; empty for other models."""
        return () if self.start_token is None else (self.start_token, *self.forced)

    @property
    def open_prefix(self) -> bool:
        """Whether the target selects a token of the prefix among alternatives."""
        return any(isinstance(token, tuple) for token in self.prefix)

    @property
    def first_prefix(self) -> tuple[int, ...]:
        """The decoder prefix with the first of each group of alternatives."""
        return tuple(token[0] if isinstance(token, tuple) else token for token in self.prefix)

    @property
    def pending_token(self) -> int | None:
        """The last token of an encoder-decoder model's prefix; None for other models."""
        return self.first_prefix[-1] if self.prefix else None
