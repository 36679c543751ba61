"""Shows a result in a notebook: the writer of each token, and the figures."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from specjax.reporting.colors import choose_model_colors
from specjax.reporting.table import cell

STYLE = """
.tokens { line-height: 2; overflow-wrap: anywhere; margin: .4em 0 }
.tokens > .token { white-space: pre-wrap; padding: .2em 0; color: inherit;
  border-bottom: 2px solid #8c8c8c; box-shadow: inset -1px 0 #8c8c8c }
.tokens > s.token { text-decoration: line-through 2px; opacity: .7 }
.legend > .token { display: inline-block; line-height: 1.4; padding: .2em .5em;
  margin-inline-end: .6em; box-shadow: none }
"""
"""Works on any background: text keeps its color. No padding separates tokens, which would break
ligatures of joined scripts.
"""


class Piece(NamedTuple):
    """A token of a text."""

    text: str
    writer: str
    accepted: bool  # False: drafted and rejected


def pieces(rounds: Sequence[Mapping[str, Any]]) -> list[Piece]:
    """Drafted tokens and the target's tokens, in order.

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


def choose_writer_colors(texts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A color for every writer of tokens."""
    writers = (piece.writer for text in texts for piece in pieces(text["rounds"]))
    return choose_model_colors(list(dict.fromkeys(writers)))


def side_by_side(texts: Sequence[Mapping[str, Any]]) -> str:
    """Each source with every strategy's output; rejected tokens are struck through."""
    colors = choose_writer_colors(texts)
    blocks = [render_legend(colors)]
    for source in dict.fromkeys(text["source"] for text in texts):
        own = (_render_text(text, colors) for text in texts if text["source"] == source)
        blocks.append(f"<p class='source' dir='auto'>{html.escape(source)}</p>")
        blocks.append(f"<div class='texts'>{''.join(own)}</div>")
    return "".join(blocks)


def _render_text(text: Mapping[str, Any], colors: Mapping[str, str]) -> str:
    """One strategy's tokens under its name and counts."""
    shown = pieces(text["rounds"])
    kept, rounds = sum(piece.accepted for piece in shown), len(text["rounds"])
    counts = f"{kept} tokens in {rounds} rounds, {len(shown) - kept} rejected"
    return (
        f"<div><h3 dir='auto'>{html.escape(text['strategy'])}</h3><p class='note'>{counts}</p>"
        f"{tokens(text['rounds'], colors)}</div>"
    )


def render_legend(colors: Mapping[str, str]) -> str:
    """A paragraph that names the writers."""
    names = "".join(_token(name, colors[name]) for name in colors)
    return f"<p class='tokens legend'>{names}<s class='token'>rejected</s></p>"


def tokens(rounds: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> str:
    """A paragraph of all tokens of a text."""
    every = (_token(piece.text, colors[piece.writer], piece.accepted) for piece in pieces(rounds))
    return f"<p class='tokens' dir='auto'>{''.join(every)}</p>"


def _token(text: str, color: str, accepted: bool = True) -> str:
    tag = "span" if accepted else "s"
    look = f"background:{color}33;border-color:{color}"
    return f"<{tag} class='token' style='{look}'>{html.escape(text)}</{tag}>"


# Text takes the notebook's own color; backgrounds of tokens are translucent.
_STYLE = f"""
{STYLE}
.specjax-result {{ overflow-x: auto }}
.specjax-result .source {{ opacity: .75; margin: .8em 0 0 }}
.specjax-result table {{ border-collapse: collapse; margin-top: .8em;
  font-variant-numeric: tabular-nums }}
.specjax-result th, .specjax-result td {{ padding: .2em .7em; text-align: right;
  border-bottom: 1px solid #8c8c8c80; background: none; color: inherit }}
.specjax-result th {{ font-weight: 500 }}
"""

_FORMS = {"acceptance_rate": ".1%", "tokens_per_target_call": ".2f"}


def result_html(
    texts: Sequence[Mapping[str, Any]], count: int, figures: Mapping[str, int | float]
) -> str:
    """Markup of the first of `count` texts ({"source", "rounds"}) and of the figures by name."""
    colors = choose_writer_colors(texts)
    blocks = [f"<div class='specjax-result'><style>{_STYLE}</style>"]
    if texts:
        blocks.append(render_legend(colors))
    for text in texts:
        blocks.append(f"<p class='source' dir='auto'>{html.escape(text['source'])}</p>")
        blocks.append(tokens(text["rounds"], colors))
    if texts and count > len(texts):
        blocks.append(f"<p class='source'>and {count - len(texts)} more</p>")
    return "".join([*blocks, _table(figures), "</div>"])


def _table(figures: Mapping[str, int | float]) -> str:
    # The cells set the alignment of names: notebooks' own table rules are stronger.
    lines = "".join(
        f"<tr><th scope='row' style='text-align:left'>{html.escape(name.replace('_', ' '))}</th>"
        f"<td>{cell(value, _FORMS.get(name, ',d'))}</td></tr>"
        for name, value in figures.items()
    )
    return f"<table><tbody>{lines}</tbody></table>"
