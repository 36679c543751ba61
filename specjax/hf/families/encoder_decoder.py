"""What families of encoder-decoder models share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.hf.families.generation import Special, reading_generation


def start_token(special: Special, vocab_size: int, generation: Mapping[str, Any] | None) -> int:
    """The token that a decoder starts with.

    Raises:
      ValueError: when there is none.
    """
    with reading_generation(generation):
        if special.start is None or special.start >= vocab_size:
            raise ValueError(
                f"decoder_start_token_id is {special.start}; a decoder starts with a token id from"
                f" 0 to {vocab_size - 1}"
            )
    return special.start
