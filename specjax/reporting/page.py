"""Building blocks of a page that opens from disk: escaped, with images inside, without scripts."""

from __future__ import annotations

import base64
import dataclasses
import html
from collections.abc import Sequence
from pathlib import Path

_STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff;
       max-width: 1184px; margin: 0 auto; padding: 1.5rem 2rem 4rem }
h1 { font-size: 1.7rem; margin: 0 0 .5rem }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; border-top: 1px solid #ddd; padding-top: 1.5rem }
h3 { font-size: 1rem; margin: 1.5rem 0 0 }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; list-style: none; padding: 0 }
a { color: #005a8f }
.scroll { overflow-x: auto; max-height: 40rem; margin: 1rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem }
caption { text-align: left; color: #444; padding-bottom: .3rem }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #ddd;
         white-space: nowrap }
thead th { position: sticky; top: 0; background: #fff }
th:first-child { text-align: left }
tbody th { font-weight: 500; white-space: normal; overflow-wrap: anywhere; min-width: 11rem }
figure { margin: 1rem 0 }
figure img { display: block; max-width: 100%; height: auto }
figcaption, .source { color: #444; font-size: .92rem; max-width: 60rem }
.tokens { line-height: 2; overflow-wrap: anywhere; margin: .4rem 0 }
.token { display: inline-block; white-space: pre-wrap; line-height: 1.4; max-width: 100%;
         border-bottom: 2px solid #8c8c8c; padding: 0 .1rem; margin-right: 2px }
s.token { text-decoration: line-through 2px #1a1a1a }
pre { background: #f5f5f5; padding: 1rem; overflow-x: auto; font-size: .85rem }
"""


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
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>"
        f"<header><h1>{html.escape(title)}</h1>{lead}<nav aria-label='Sections'><ul>{links}</ul>"
        f"</nav></header>\n<main>\n{parts}</main></body></html>\n"
    )


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts that scrolls inside its own box; the first cell of a row names it."""
    titles = "".join(f"<th scope='col'>{html.escape(title)}</th>" for title in head)
    lines = "".join(
        f"<tr><th scope='row'>{html.escape(row[0])}</th>"
        + "".join(f"<td>{html.escape(text)}</td>" for text in row[1:])
        + "</tr>"
        for row in rows
    )
    label = html.escape(caption)
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{label}'><table>"
        f"<caption>{label}</caption><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody>"
        "</table></div>"
    )


def image(file: Path, alt: str, caption: str) -> str:
    """A PNG inside the page, with what it shows in words."""
    data = base64.b64encode(file.read_bytes()).decode()
    return (
        f"<figure><img alt='{html.escape(alt)}' src='data:image/png;base64,{data}'>"
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{html.escape(text)}</p>"
