"""Who wrote which token: the rounds of `texts` in results.json as pieces with their writers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specjax.reporting.colours import model_colours


class Piece(NamedTuple):
    """A token of a text."""

    text: str
    writer: str
    stands: bool  # False: drafted and rejected


def pieces(rounds: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """Drafted tokens and what the target added, in the order they were written.

    A round whose drafter has several writers names one for each token in `writers`.
    """
    made = []
    for round_ in rounds:
        writers = round_.get("writers") or [round_["writer"]] * len(round_["drafted"])
        for index, (text, writer) in enumerate(zip(round_["drafted"], writers, strict=True)):
            made.append(Piece(_visible(text), writer, index < round_["accepted"]))
        if round_.get("next") is not None:
            made.append(Piece(_visible(round_["next"]), round_["next_writer"], True))
    return made


def _visible(text: str) -> str:
    return text.replace("\n", "↵")


def writer_colours(texts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A colour for everybody who wrote a token."""
    writers = (piece.writer for text in texts for piece in pieces(text["rounds"]))
    return model_colours(list(dict.fromkeys(writers)))


def as_html(texts: Sequence[Mapping[str, Any]]) -> str:
    """The texts with every token on its writer's colour, rejected ones struck through."""
    colours = writer_colours(texts)
    blocks = [legend(colours)]
    for text in texts:
        source, strategy = html.escape(text["source"]), html.escape(text["strategy"])
        blocks.append(f"<h3>{strategy}</h3><p class='source'>{source}</p>")
        blocks.append(tokens(text["rounds"], colours))
    return "".join(blocks)


def legend(colours: Mapping[str, str]) -> str:
    """A paragraph that names the writers."""
    names = "".join(_token(name, colours[name]) for name in colours)
    return f"<p class='tokens'>{names}<s class='token'>rejected</s></p>"


def tokens(rounds: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> str:
    """A paragraph of all tokens of a text."""
    every = (_token(each.text, colours[each.writer], each.stands) for each in pieces(rounds))
    return f"<p class='tokens'>{''.join(every)}</p>"


def _token(text: str, colour: str, stands: bool = True) -> str:
    tag = "span" if stands else "s"
    look = f"background:{colour}33;border-color:{colour}"
    return f"<{tag} class='token' style='{look}'>{html.escape(text)}</{tag}>"
