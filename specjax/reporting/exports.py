"""Exports results: results.csv for pandas, table.tex for a paper, table.md for an issue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specjax.metrics.accepted_lengths import PER_REQUEST, POOLED, WITH_PREFILL, WITHOUT_PREFILL
from specjax.reporting.summary import Table, summary
from specjax.runtime.files import write_csv, write_text

CSV, LATEX, MARKDOWN = "results.csv", "table.tex", "table.md"
"""Files in the workdir, next to results.json."""

RUN_FIELDS = ("target", "drafter", "batch_size", "dtype", "max_new_tokens", "seed")
"""Config fields that every row of the CSV repeats, so that runs can be concatenated."""

FIELDS = (
    "lossless",
    "baseline",
    "tokens",
    "seconds",
    "ms_per_token",
    "ms_per_token_median",
    "speedup",
    "speedup_low",
    "speedup_high",
    "speedup_predicted",
    "acceptance_rate",
    "tokens_per_target_call",
    "layers_per_token",
    "fallback_percent",
    "rollback_percent",
    "standardized_walltime_improvement",
    "standardized_walltime_improvement_measured",
    "fixed_ms",
    "compile_seconds",
    "identical_to_target",
    "differing",
    "near_ties",
)
"""Fields of a strategy in results.json that are columns of the CSV under the same names."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "τ": r"$\tau$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&$])")


def write_tables(content: Mapping[str, Any], workdir: Path) -> None:
    """Writes the three files from the content of results.json."""
    table = summary(content["strategies"])
    title = f"{content['data']['name'] or 'decoding'}, {content['data']['examples']} examples"
    write_csv(workdir / CSV, csv_rows(content))
    write_formatted(table, title, workdir)


def write_formatted(table: Table, title: str, workdir: Path) -> None:
    """Writes a table for LaTeX and for Markdown."""
    write_text(workdir / LATEX, latex(table, title))
    write_text(workdir / MARKDOWN, markdown(table, title))


def csv_rows(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per strategy; scores are columns under their names, in points of 100."""
    run = describe_run(content)
    return [
        {
            "strategy": name,
            **{field: entry.get(field) for field in FIELDS},
            **entry["quality"],
            **_operations(entry),
            **_lengths(content.get("evaluation", {}).get(name)),
            **run,
        }
        for name, entry in content["strategies"].items()
    ]


def describe_run(content: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that all rows of a run share."""
    return {
        "data": content["data"]["name"],
        "examples": content["data"]["examples"],
        "device": content["environment"]["device"],
        **{field: content["config"].get(field) for field in RUN_FIELDS},
    }


def _operations(entry: Mapping[str, Any]) -> dict[str, float | None]:
    total = (entry.get("operations") or {}).get("total") or {}
    return {f"{field}_per_token": total.get(field) for field in ("flops", "memory_operations")}


def _lengths(evaluation: Mapping[str, Any] | None) -> dict[str, float | None]:
    """The four accepted lengths and the verify rate over all requests."""
    if evaluation is None:
        return {}
    overall = evaluation["overall"]
    lengths = {
        f"accepted_length_{mean}_{prefill}": overall[prefill][mean]["value"]
        for prefill in (WITHOUT_PREFILL, WITH_PREFILL)
        for mean in (POOLED, PER_REQUEST)
    }
    return lengths | {"verify_rate": overall["verify_rate"]["value"]}


def latex(table: Table, title: str) -> str:
    """A booktabs tabular for `\\input`."""
    lines = [" & ".join(map(latex_text, row)) + r" \\" for row in (table.head, *table.rows)]
    columns = "l" + "r" * (len(table.head) - 1)
    return "\n".join(
        [
            f"% {_one_line(title)}; needs \\usepackage{{booktabs}}",
            f"\\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            *_latex_note(table),
            r"\end{tabular}",
            "",
        ]
    )


def _latex_note(table: Table) -> list[str]:
    if not table.note:
        return []
    return [f"\\multicolumn{{{len(table.head)}}}{{l}}{{{latex_text(table.note)}}} \\\\"]


def markdown(table: Table, title: str) -> str:
    """A table of GitHub's Markdown under its title."""
    lines = [f"| {' | '.join(map(markdown_text, row))} |" for row in (table.head, *table.rows)]
    rule = "|".join(["", " --- ", *[" ---: "] * (len(table.head) - 1), ""])
    note = [f"\n{markdown_text(table.note)}"] if table.note else []
    return "\n".join([f"{markdown_text(title)}\n", lines[0], rule, *lines[1:], *note, ""])


def latex_text(text: str) -> str:
    """Escapes a text for LaTeX."""
    return "".join(_LATEX.get(letter, letter) for letter in _one_line(text))


def markdown_text(text: str) -> str:
    """Escapes a text for Markdown."""
    return _MARKDOWN.sub(r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())
