"""Who wrote which token: the rounds of `texts` in results.json as pieces with their writers."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specjax.reporting.colours import model_colours

STYLE = """
.tokens { line-height: 2; overflow-wrap: anywhere; margin: .4em 0 }
.tokens > .token { white-space: pre-wrap; padding: .2em 0; color: inherit;
  border-bottom: 2px solid #8c8c8c; box-shadow: inset -1px 0 #8c8c8c }
.tokens > s.token { text-decoration: line-through 2px; opacity: .7 }
.legend > .token { display: inline-block; line-height: 1.4; padding: .2em .5em;
  margin-inline-end: .6em; box-shadow: none }
"""
"""For any ground: words keep its colour. Nothing stands between tokens that would part letters
which a script joins.
"""


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


def side_by_side(texts: Sequence[Mapping[str, Any]]) -> str:
    """Each source with what every strategy wrote for it; rejected tokens are struck through."""
    colours = writer_colours(texts)
    blocks = [legend(colours)]
    for source in dict.fromkeys(text["source"] for text in texts):
        own = (_written(text, colours) for text in texts if text["source"] == source)
        blocks.append(f"<p class='source' dir='auto'>{html.escape(source)}</p>")
        blocks.append(f"<div class='texts'>{''.join(own)}</div>")
    return "".join(blocks)


def _written(text: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    """One strategy's tokens under its name and counts."""
    shown = pieces(text["rounds"])
    stood, rounds = sum(piece.stands for piece in shown), len(text["rounds"])
    counts = f"{stood} tokens in {rounds} rounds, {len(shown) - stood} rejected"
    return (
        f"<div><h3 dir='auto'>{html.escape(text['strategy'])}</h3><p class='note'>{counts}</p>"
        f"{tokens(text['rounds'], colours)}</div>"
    )


def legend(colours: Mapping[str, str]) -> str:
    """A paragraph that names the writers."""
    names = "".join(_token(name, colours[name]) for name in colours)
    return f"<p class='tokens legend'>{names}<s class='token'>rejected</s></p>"


def tokens(rounds: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> str:
    """A paragraph of all tokens of a text."""
    every = (_token(piece.text, colours[piece.writer], piece.stands) for piece in pieces(rounds))
    return f"<p class='tokens' dir='auto'>{''.join(every)}</p>"


def _token(text: str, colour: str, stands: bool = True) -> str:
    tag = "span" if stands else "s"
    look = f"background:{colour}33;border-color:{colour}"
    return f"<{tag} class='token' style='{look}'>{html.escape(text)}</{tag}>"
