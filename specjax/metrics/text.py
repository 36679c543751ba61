"""A generated text round by round: drafted tokens, accepted tokens, and their writers."""

from __future__ import annotations

from typing import Any

import numpy as np

from specjax.decoding.state import Decoder, Generation


def rounds_of_text(
    generation: Generation, row: int, decoder: Decoder, tokenizer: Any
) -> list[dict[str, Any]]:
    """The rounds of one row of a generation with host arrays, with tokens as text.

    Each holds the `drafted` pieces, how many were `accepted`, their `writer` (and `writers`, one
    for each piece), and the piece that followed (`next`, None when the draft ended the text) with
    its `next_writer`.
    """
    trace, writers = generation.trace, decoder.drafter.spec.writers
    place, rounds = int(generation.begin[row]), []
    for index in np.flatnonzero(trace.committed[row]).tolist():
        count, accepted = int(trace.committed[row, index]), int(trace.accepted[row, index])
        drafted = trace.proposed[row, index, : trace.drafted[row, index]].tolist()
        names = [writers[who] for who in trace.drafted_by[row, index, : len(drafted)].tolist()]
        before = int(generation.tokens[row, place - 1]) if rounds else None
        place += count
        last = int(generation.tokens[row, place - 1]) if count > accepted else None
        follows = drafted[accepted - 1] if accepted else before
        rounds.append(
            {
                "drafted": pieces(tokenizer, before, drafted),
                "accepted": accepted,
                "writer": names[0] if names else None,
                "writers": names,
                "next": None if last is None else pieces(tokenizer, follows, [last])[0],
                "next_writer": None if last is None else decoder.target,
            }
        )
    return rounds


def pieces(tokenizer: Any, before: int | None, tokens: list[int]) -> list[str]:
    """The text that each token adds after the previous one, including spaces."""
    texts = []
    for token in tokens:
        context = [] if before is None else [before]
        start = tokenizer.decode(context, clean_up_tokenization_spaces=False)
        whole = tokenizer.decode([*context, token], clean_up_tokenization_spaces=False)
        texts.append(whole[len(start) :])
        before = token
    return texts
