"""A self-contained report.html with its plots, also kept as PNG."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from specjax.evaluation.table import COLUMNS
from specjax.writing import replacing

matplotlib.use("Agg")

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 1180px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3em .7em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% } pre { background: #f5f5f5; padding: 1em; overflow-x: auto }
"""


def write_report(results: dict[str, Any], workdir: Path) -> None:
    """Writes report.html and its plots beside results.json."""
    strategies = results["strategies"]
    plots = {
        "speedup.png": speedup_plot(strategies),
        "acceptance.png": acceptance_plot(strategies),
    }
    images = []
    for name, figure in plots.items():
        with replacing(workdir / name) as partial:
            figure.savefig(partial, dpi=120)
        data = base64.b64encode((workdir / name).read_bytes()).decode()
        images.append(f'<p><img alt="{name}" src="data:image/png;base64,{data}"></p>')
    page = _page(results, images)
    with replacing(workdir / "report.html") as partial:
        partial.write_text(page, "utf-8")


def _page(results: dict[str, Any], images: list[str]) -> str:
    environment, data = results["environment"], results["data"]
    where = f"{environment['device']}, {environment['processors']} processors"
    return "\n".join(
        [
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            f"<title>specjax: {html.escape(data['name'])}</title><style>{STYLE}</style></head>",
            "<body><h1>Decode experiment</h1>",
            f"<p>{html.escape(data['name'])}, {data['examples']} examples, batch size"
            f" {results['config']['batch_size']}, {results['config']['dtype']};"
            f" {html.escape(where)}. Speedups are against jitted autoregressive decoding;"
            " compilation and warm-up are not timed.</p>",
            _html_table(results["strategies"]),
            *images,
            "<h2>Models</h2>",
            _models_table(results["models"]),
            "</body></html>",
        ]
    )


def _html_table(strategies: dict[str, Any]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title, _, _ in COLUMNS)
    rows = []
    for name, entry in strategies.items():
        cells = "".join(
            f"<td>{'-' if entry[field] is None else format(entry[field], form)}</td>"
            for _, field, form in COLUMNS
        )
        quality = ", ".join(f"{k} {v:.2f}" for k, v in entry["quality"].items())
        rows.append(f"<tr><td>{html.escape(name)}</td>{cells}<td>{quality}</td></tr>")
    return f"<table><tr><th>strategy</th>{head}<th>quality</th></tr>" + "".join(rows) + "</table>"


def _models_table(models: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{entry['parameters']:,}</td>"
        f"<td>{entry['step_ms']:.3f}</td></tr>"
        for name, entry in models.items()
    )
    return f"<table><tr><th>model</th><th>parameters</th><th>step, ms</th></tr>{rows}</table>"


def speedup_plot(strategies: dict[str, Any]) -> Figure:
    """Measured beside predicted speedup of every strategy."""
    names = list(strategies)
    figure = Figure(figsize=(9, 0.6 * len(names) + 1.6), layout="constrained")
    axes = figure.subplots()
    place = range(len(names))
    measured = [strategies[n]["speedup"] for n in names]
    predicted = [strategies[n]["speedup_predicted"] or 0.0 for n in names]
    axes.barh([y - 0.2 for y in place], measured, 0.4, label="measured")
    axes.barh([y + 0.2 for y in place], predicted, 0.4, label="predicted")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(place, names)
    axes.invert_yaxis()
    axes.set_xlabel("speedup over autoregressive decoding (times)")
    axes.legend()
    return figure


def acceptance_plot(strategies: dict[str, Any]) -> Figure:
    """Tokens per target call against the acceptance rate."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for name, entry in strategies.items():
        axes.plot(entry["acceptance_rate"], entry["tokens_per_target_call"], "o", label=name)
    axes.set_xlabel("acceptance rate (accepted over tested drafts)")
    axes.set_ylabel("tokens per target call")
    axes.legend(fontsize="small")
    return figure
