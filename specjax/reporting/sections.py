"""The sections of a report: their plots, tables and captions."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from specjax.reporting import html_tables as tables
from specjax.reporting import page
from specjax.reporting.causes import IN_PLACE
from specjax.reporting.html_tables import Results
from specjax.reporting.notebook import side_by_side
from specjax.reporting.page import Section
from specjax.reporting.plots import acceptance, operations, speed, style
from specjax.reporting.plots.svg import inline


def sections(results: Results, folder: Path) -> list[Section]:
    """The sections with measurements; their plots are saved in `folder`."""
    plots = Plots(folder)
    every = [Section(name, title, body(results, plots)) for name, title, body in _SECTIONS]
    return [section for section in every if section.body]


@dataclasses.dataclass(frozen=True)
class Plots:
    """Plots that are saved in a folder and shown in the page."""

    folder: Path

    def render_figure(self, name: str, figure: Figure | None, alt: str, caption: str) -> str:
        """Markup of a figure; empty without one."""
        if not figure:
            return ""
        style.save(figure, self.folder, name)
        return page.figure(inline(figure, name, alt), caption)


def _speed(results: Results, plots: Plots) -> str:
    strategies = results["strategies"]
    words = (
        "`speedup` is how many times as fast a strategy is as the target alone, `accepted` the"
        " share of tested drafted tokens that were accepted, `tokens/call` the tokens per target"
        " call. Outputs of lossless strategies are the target's own. A click on a heading sorts."
    )
    every = page.fold_section("All figures of every strategy", tables.speed_table(strategies))
    return page.paragraph(words) + tables.summary_table(strategies) + every


def _quality(results: Results, plots: Plots) -> str:
    return plots.render_figure(
        "quality",
        speed.quality_against_latency(results["strategies"]),
        "Scatter plot: quality of every strategy against its milliseconds per token.",
        "Up and to the left is better. Lossless strategies keep the target's quality.",
    )


def _prediction(results: Results, plots: Plots) -> str:
    strategies = results["strategies"]
    plot = plots.render_figure(
        "prediction",
        speed.predicted_against_measured(strategies),
        "Scatter plot: measured speedup of every strategy against the predicted one, with the"
        " diagonal and a band of 15% around it.",
        "Predictions are E[tokens per round] over the cost of a round in steps of the target,"
        f" without the fixed cost per batch. {_describe_pricing(strategies)} Theorem 3.8 of"
        " Leviathan et al. takes v as 1.",
    )
    return plot + tables.prediction_table(strategies) + tables.improvement_table(strategies)


def _describe_pricing(strategies: Mapping[str, Any]) -> str:
    """Describes how the rounds of a run were priced."""
    ways = {(entry.get("predicted") or {}).get("priced") for entry in strategies.values()}
    if IN_PLACE in ways:
        return (
            "Rounds were priced in place: by shorter decodes of some prompts among the measured"
            " ones."
        )
    return "Rounds were priced by their calls, timed alone."


def _acceptance(results: Results, plots: Plots) -> str:
    strategies = results["strategies"]
    by_position = plots.render_figure(
        "acceptance",
        acceptance.by_position(strategies),
        "Acceptance rate of every draft position with error bars, one series per strategy.",
        "Accepted over tested drafts; bars are 95% Wilson intervals. A position is tested when"
        " all before it were accepted.",
    )
    along_text = plots.render_figure(
        "along_text",
        acceptance.along_text(strategies),
        "Overlap of target and drafter along the output, one line per strategy.",
        "Probability that the target accepts a draft, by position in the output.",
    )
    return by_position + along_text + tables.acceptance_table(strategies)


def _rounds(results: Results, plots: Plots) -> str:
    strategies = results["strategies"]
    plot = plots.render_figure(
        "rounds",
        acceptance.tokens_per_round(strategies),
        "Stacked bars: shares of rounds that gave one token, two tokens and so on.",
        "A round is one target call: the accepted drafts and one token of the target.",
    )
    return plot + tables.rounds_table(strategies)


def _accepted_lengths(results: Results, plots: Plots) -> str:
    table = tables.accepted_lengths_table(results.get("evaluation") or {})
    words = (
        "`pooled` is all tokens over all rounds, `per request` the mean over requests; the prefill"
        " counts as a round of one token where a heading says so. `verify rate` is tokens over"
        " drafted tokens and rounds. Intervals are over samples of requests."
    )
    return page.paragraph(words) + table if table else ""


def _handovers(results: Results, plots: Plots) -> str:
    return tables.handovers_table(results["strategies"])


def _arms(results: Results, plots: Plots) -> str:
    return tables.arms_table(results["strategies"])


def _groups(results: Results, plots: Plots) -> str:
    return tables.groups_table(results.get("groups") or {})


def _tokens(results: Results, plots: Plots) -> str:
    texts = results.get("texts")
    if not texts:
        return ""
    words = (
        "The first texts token by token, on the color of the model that wrote each. Tokens that"
        " are struck through were drafted and rejected."
    )
    return page.paragraph(words) + side_by_side(texts)


def _time(results: Results, plots: Plots) -> str:
    strategies = results["strategies"]
    plot = plots.render_figure(
        "time",
        speed.time_bars(strategies),
        "Stacked bars: time per token in the drafter, the target, fixed costs and the rest,"
        " relative to autoregressive decoding.",
        "Target and drafter: calls times the measured cost of one. Fixed: prompt reading and"
        " dispatch. Rest: what no model call explains; below zero when calls cost less than"
        " measured alone. The mark is the measured total.",
    )
    return plot + tables.time_table(strategies)


def _operations(results: Results, plots: Plots) -> str:
    strategies = results["strategies"]
    plot = plots.render_figure(
        "operations",
        operations.operation_bars(strategies),
        "Three panels of bars: arithmetic, memory operations and intensity of every strategy"
        " relative to autoregressive decoding, by model.",
        "Counted by the shapes of all model calls, drafts that were rejected included."
        " Memory operations are elements read or written.",
    )
    return plot + tables.operations_table(strategies)


def _roofline(results: Results, plots: Plots) -> str:
    plot = plots.render_figure(
        "roofline",
        operations.roofline(results),
        "Measured one-token steps compared with the bandwidth bound, and strategies under"
        " the bandwidth roof.",
        "A one-token step reads all weights and caches once; percent of what the measured"
        " copy bandwidth allows. Models that fit a processor's cache may exceed it.",
    )
    return plot + tables.roofline_table(results)


def _models(results: Results, plots: Plots) -> str:
    return tables.models_table(results["models"]) + tables.costs_table(results)


def _settings(results: Results, plots: Plots) -> str:
    settings = json.dumps({k: results[k] for k in ("environment", "config")}, indent=2)
    return page.fold_section(
        "Machine and config", f"<pre tabindex='0'>{html.escape(settings)}</pre>"
    )


_SECTIONS = (
    ("speed", "Strategies", _speed),
    ("arms", "Arms that were chosen", _arms),
    ("tokens", "Texts side by side", _tokens),
    ("quality", "Quality against latency", _quality),
    ("prediction", "Predicted against measured", _prediction),
    ("time", "Where the time goes", _time),
    ("roofline", "Roofline", _roofline),
    ("acceptance", "Acceptance by draft position", _acceptance),
    ("rounds", "Tokens per round", _rounds),
    ("lengths", "Accepted lengths as papers report them", _accepted_lengths),
    ("handovers", "Calls, fallbacks and rollbacks", _handovers),
    ("groups", "Groups of examples", _groups),
    ("operations", "Arithmetic and memory operations", _operations),
    ("models", "Models", _models),
    ("settings", "Settings", _settings),
)
"""Anchor, title and body of each, in the order of the page; an empty body is left out."""
