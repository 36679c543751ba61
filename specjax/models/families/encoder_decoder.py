"""What families of encoder-decoder models share."""

from __future__ import annotations

from specjax.models.families.generation import Special


def start_token(special: Special, vocab_size: int) -> int:
    """The token that a decoder starts with.

    Raises:
      ValueError: when there is none.
    """
    if special.start is None or special.start >= vocab_size:
        raise ValueError(
            f"decoder_start_token_id is {special.start}; a decoder starts with a token id from 0 to"
            f" {vocab_size - 1}"
        )
    return special.start
