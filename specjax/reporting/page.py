"""Building blocks of a self-contained HTML page; all texts are escaped."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import re
from collections.abc import Container, Sequence

from specjax.reporting.look import SORT, STYLE

_HASH = base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'"
"""Content security policy: inline styles and the one script below."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a page; `body` is markup."""

    name: str  # of its anchor
    title: str
    body: str


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """A whole document; `lead` is markup."""
    links = "".join(f"<li><a href='#{s.name}'>{html.escape(s.title)}</a></li>" for s in sections)
    parts = "".join(
        f"<section id='{s.name}' aria-labelledby='{s.name}-title'>"
        f"<h2 id='{s.name}-title'>{html.escape(s.title)}</h2>{s.body}</section>\n"
        for s in sections
    )
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>"
        f"<header><h1 dir='auto'>{html.escape(title)}</h1>{lead}<nav aria-label='Sections'>"
        f"<ul>{links}</ul></nav><p class='note narrow'>Wide tables and plots scroll sideways.</p>"
        f"</header>\n<main>\n{parts}</main>"
        f"<script>{SORT}</script></body></html>\n"
    )


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    marked: Container[int] = (),
) -> str:
    """A table of texts in a scrolling box; the first cell of a row names it.

    Rows whose index is in `marked` are highlighted.
    """
    titles = "".join(f"<th scope='col'>{html.escape(title)}</th>" for title in head)
    lines = "".join(
        f"<tr{' class=best' * (index in marked)}><th scope='row' dir='auto'>{_name(row[0])}</th>"
        + "".join(f"<td>{html.escape(text)}</td>" for text in row[1:])
        + "</tr>"
        for index, row in enumerate(rows)
    )
    label = html.escape(caption)
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{label}'><table>"
        f"<caption><div>{label}</div></caption><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody>"
        "</table></div>"
    )


def _name(text: str) -> str:
    """A name that may break after an underscore."""
    return html.escape(text).replace("_", "_<wbr>")


def figure(drawing: str, caption: str) -> str:
    """A drawing (markup) with a caption."""
    return (
        f"<figure><div class='scroll' tabindex='0'>{drawing}</div>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def answer(question: str, short: str, sentences: Sequence[str]) -> str:
    """A question with its answer, and the sentences that explain it."""
    points = "".join(f"<li>{words(sentence)}</li>" for sentence in sentences)
    return (
        f"<div class='answer'><div><h2>{html.escape(question)}</h2>"
        f"<p class='short'>{words(short)}</p></div><ul>{points}</ul></div>"
    )


def words(text: str) -> str:
    """Renders plain text; names in backticks become code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text; `kind` is a class of the style."""
    return f"<p{f' class={kind}' if kind else ''}>{words(text)}</p>"


def fold_section(title: str, body: str) -> str:
    """A collapsed section of markup."""
    return f"<details><summary>{html.escape(title)}</summary>{body}</details>"
