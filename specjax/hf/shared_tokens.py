"""The common tokens of a target and a drafter with another vocabulary.

Token-level intersection (TLI; Timor et al. 2025, arXiv 2502.05202): see
docs/methods/cross_vocabulary.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from specjax.hf.pieces import Piece, pieces
from specjax.hf.speech import own_prefix, timestamps
from specjax.hf.tokenizer import are_same, check_same_vocabulary
from specjax.models.on_target import FeatureDrafter
from specjax.models.vocabularies import OtherVocabulary
from specjax.runtime.errors import UserError

LEAST_SHARED = 0.1
"""Least share of the target's tokens that a drafter must have to write most texts.

It counts tokens, not their use: a small vocabulary may lack most tokens and few of a text.
"""


@dataclasses.dataclass(frozen=True)
class SharedTokens:
    """Two tables by the target's ids, and how many tokens both vocabularies have."""

    places: np.ndarray  # [V] int32: the drafter's id of the same text; `width` where it has none
    fed: np.ndarray  # [V] int32: the drafter's id that is fed in place of the token
    shared: int
    tokens: int  # of the target's tokenizer
    width: int  # of the drafter's vocabulary

    @property
    def share(self) -> float:
        return self.shared / self.tokens


def shared_tokens(drafter: Any, target: Any) -> SharedTokens:
    """The tokens that a drafter has of a target, both loaded models with fast tokenizers.

    Tokens of one role (end, padding, beginning, unknown, a time) match under any name; other tokens
    match by their text. The mapping is injective, so no probability is counted twice. A token that
    the drafter lacks is fed as the longest of its tokens that ends the text, because the next token
    depends most on the nearest text.
    """
    theirs, ours = pieces(target.tokenizer), pieces(drafter.tokenizer)
    known: dict[Piece, list[int]] = {}
    for token, piece in ours.items():
        known.setdefault(piece, []).append(token)
    width = drafter.model.info.vocab_size
    same = dict(_roles(drafter, target)) | timestamps(drafter.model, target.model)
    taken = set(same.values())
    for token, piece in theirs.items():
        free = [own for own in known.get(piece, ()) if own not in taken]
        if token not in same and free:
            same[token] = free[0]
            taken.add(free[0])
    places = np.full(target.model.info.vocab_size, width, np.int32)
    places[list(same)] = list(same.values())
    instead = next(t for t in (*_special(drafter)[::-1], 0) if t is not None)
    fed = np.full_like(places, instead)
    for token, piece in theirs.items():
        fed[token] = same.get(token, _find_ending(piece, known, instead))
    own, info = drafter.model.info, target.model.info
    for token in info.eos:
        fed[token] = same.get(token, own.eos[0] if own.eos else instead)
    if info.start_token is not None and own.start_token is not None:
        fed[info.start_token] = own.start_token
    known_by_name = len(theirs.keys() | same.keys())  # timestamps may have no name
    return SharedTokens(places, fed, len(same), known_by_name, width)


def in_vocabulary_of(
    target: Any, drafter: Any, *, name: str = "drafter", least_shared: float = LEAST_SHARED
) -> Any:
    """The drafter with logits and inputs in the target's ids; unchanged for the same ids.

    Both are results of `specjax.load`. A `Generator` converts its drafters itself. Converting in
    advance serves many generators, and allows another `least_shared`: the share of the target's
    tokens below which a drafter is refused.

    Raises:
      UserError: when the drafter has too little in common with the target.
    """
    both = drafter.tokenizer, target.tokenizer
    if None in both or are_same(*both):
        check_same_vocabulary(name, drafter, target)
        return drafter
    _check_comparable(name, drafter, target)
    match = shared_tokens(drafter, target)
    if match.share < least_shared:
        raise UserError(
            f"drafter {name!r} has another tokenizer than the target and shares"
            f" {_words(match)} with it; least_shared, {least_shared:g}, allows no less"
        )
    print(f"drafter {name!r} has another vocabulary: {_words(match)} of the target are shared")
    return dataclasses.replace(
        drafter,
        model=OtherVocabulary(drafter.model, target.model, own_prefix(drafter.model, target.model)),
        params={"model": drafter.params, "places": match.places, "fed": match.fed},
        tokenizer=target.tokenizer,
        own_tokenizer=drafter.tokenizer,
    )


def share_in(drafter: Any, texts: Iterable[list[int]]) -> float:
    """The share of the tokens of texts, in the target's ids, that a drafter of `in_vocabulary_of`
    has."""
    ids = np.fromiter((token for text in texts for token in text), np.int64)
    has = np.asarray(drafter.params["places"])[ids] < drafter.model.model.info.vocab_size
    return float(has.mean()) if ids.size else 0.0


def _words(match: SharedTokens) -> str:
    return f"{match.shared:,} of {match.tokens:,} tokens ({match.share:.1%})"


def _check_comparable(name: str, drafter: Any, target: Any) -> None:
    for whose, loaded in (("the drafter", drafter), ("the target", target)):
        if not loaded.tokenizer.is_fast:
            raise UserError(
                f"drafter {name!r} has another tokenizer than the target, and that of {whose} is"
                " not a fast one, whose pieces could be compared"
            )
    if isinstance(drafter.model, FeatureDrafter):
        raise UserError(
            f"drafter {name!r} has another tokenizer than the target; a feature drafter reads the"
            " states of a target of its own vocabulary"
        )


def _special(loaded: Any) -> tuple[int | None, ...]:
    """The tokens with a role: end of text, beginning, padding, unknown."""
    end = loaded.model.info.eos[0] if loaded.model.info.eos else None
    names = ("bos_token_id", "pad_token_id", "unk_token_id")
    return end, *(getattr(loaded.tokenizer, name, None) for name in names)


def _roles(drafter: Any, target: Any) -> Iterator[tuple[int, int]]:
    """The target's and the drafter's token of each role that both have, each token once."""
    seen_theirs, seen_ours = set(), set()
    for theirs, ours in zip(_special(target), _special(drafter), strict=True):
        if theirs is None or ours is None or theirs in seen_theirs or ours in seen_ours:
            continue
        seen_theirs.add(theirs)
        seen_ours.add(ours)
        yield theirs, ours


def _find_ending(piece: Piece, known: dict[Piece, list[int]], instead: int) -> int:
    """The token of the longest ending of a piece; `instead` of a special one, or without any."""
    if isinstance(piece, str):
        return known.get(piece, [instead])[0]
    return next((known[piece[at:]][0] for at in range(len(piece)) if piece[at:] in known), instead)
