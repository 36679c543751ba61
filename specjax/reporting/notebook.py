"""A result in a notebook: who wrote each token, and the figures; on light and dark grounds."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from specjax.reporting.table import cell
from specjax.reporting.token_html import STYLE, legend, tokens, writer_colours

# Words take the notebook's own colour; grounds of tokens are translucent.
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
    colours = writer_colours(texts)
    blocks = [f"<div class='specjax-result'><style>{_STYLE}</style>"]
    if texts:
        blocks.append(legend(colours))
    for text in texts:
        blocks.append(f"<p class='source' dir='auto'>{html.escape(text['source'])}</p>")
        blocks.append(tokens(text["rounds"], colours))
    if texts and count > len(texts):
        blocks.append(f"<p class='source'>and {count - len(texts)} more</p>")
    return "".join([*blocks, _table(figures), "</div>"])


def _table(figures: Mapping[str, int | float]) -> str:
    # The side of names is said in the cells: notebooks' own rules for tables are stronger.
    lines = "".join(
        f"<tr><th scope='row' style='text-align:left'>{html.escape(name.replace('_', ' '))}</th>"
        f"<td>{cell(value, _FORMS.get(name, ',d'))}</td></tr>"
        for name, value in figures.items()
    )
    return f"<table><tbody>{lines}</tbody></table>"
