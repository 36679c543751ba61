"""The file of results of `accelerator.py`, and the Markdown tables that it is printed as."""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import planted
from bandwidth_bound import TABLE
from contests import DECODE, DRAFT, VERIFY, Texts, Unit

from specjax.accelerators.chips import get_bandwidth
from specjax.measuring.roofline import step_bytes
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json
from specjax.theory.speculative import walltime_improvement

FILE = "results.json"

Row = dict[str, Any]


class Results:
    """What was measured so far: rows by setting, pair, unit and pass."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE
        self.content: dict[str, Any] = {"settings": {}, "about": {}, "measured": {}}
        if self.file.exists():
            self.content = self._read(set(self.content))

    def _read(self, wanted: set[str]) -> dict[str, Any]:
        try:
            content = json.loads(self.file.read_text("utf-8"))
        except ValueError as error:
            raise UserError(f"{self.file} is not JSON ({error}); give another --out") from None
        if not isinstance(content, dict) or not wanted <= content.keys():
            raise UserError(f"{self.file} is not of this benchmark; give another --out")
        return content

    @property
    def about(self) -> dict[str, Any]:
        return self.content["about"]

    @property
    def rows(self) -> Iterable[Row]:
        return self.content["measured"].values()

    def agree(self, part: str, values: dict[str, Any]) -> None:
        """Keeps values under the name of a part; refuses others than those that are there.

        Raises:
          UserError: naming the first that differs.
        """
        known = self.content[part]
        for name, value in values.items():
            if known.get(name, value) != value:
                raise UserError(
                    f"{name} is {value!r}, and {self.file} was measured with {known[name]!r}; give"
                    " another --out"
                )
        known.update(values)

    def has(self, setting: str, pair: str, unit: Unit, number: int) -> bool:
        return _key(setting, pair, unit, number) in self.content["measured"]

    def add(self, setting: str, pair: str, unit: Unit, number: int, row: Row) -> None:
        """Adds a row to the file; a crash leaves it as it was or as it is."""
        where = {"setting": setting, "pair": pair, "pass": number, **dataclasses.asdict(unit)}
        self.content["measured"][_key(setting, pair, unit, number)] = {**where, **row}
        self.save()

    def save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.file, self.content)


def _key(setting: str, pair: str, unit: Unit, number: int) -> str:
    return f"{setting}/{pair}/{unit.key}/pass={number}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the least and the most."""
    low, usual, high = (
        f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values))
    )
    return f"{usual} ({low} to {high})"


@dataclasses.dataclass(frozen=True)
class Figures:
    """The rows of a pair under a setting, all passes together."""

    pair: str
    rows: list[Row]

    def of(self, kind: str, **wanted: Any) -> list[Row]:
        """Rows of a kind with these fields; without those that failed."""
        return [
            row
            for row in self.rows
            if row["kind"] == kind
            and "failed" not in row
            and all(row[name] == value for name, value in wanted.items())
        ]

    def ratios(self, kind: str, **wanted: Any) -> list[float]:
        """Other over base of every repeat."""
        return [
            other / base
            for row in self.of(kind, **wanted)
            for base, other in zip(row["base_ms"], row["other_ms"], strict=True)
        ]

    def steps(self, batch: int) -> list[float]:
        """Milliseconds of the target's step of one token."""
        rows = self.of(VERIFY, batch=batch) + self.of(DRAFT, batch=batch)
        return [ms for row in rows for ms in row["base_ms"]]

    def distinct(self, kind: str, *names: str) -> list[tuple]:
        """The values of fields that rows of a kind have, in order."""
        found = (tuple(row[name] for name in names) for row in self.rows if row["kind"] == kind)
        return list(dict.fromkeys(found))

    def predicted(self, drafter: str, length: int, acceptance: float) -> float | None:
        """Theorem 3.8 with the measured cost of the drafter and of the verification, batch 1."""
        cost = self.ratios(DRAFT, batch=1, drafter=drafter)
        verification = self.ratios(VERIFY, batch=1, length=length)
        if not (cost and verification):
            return None
        times = statistics.median(cost), statistics.median(verification)
        return float(walltime_improvement(acceptance, length, *times))


def report(results: Results, bandwidth: float | None = None) -> str:
    """All tables; `bandwidth` in bytes per second counts instead of what is known of the device."""
    texts = Texts(
        results.content["settings"]["prompt_tokens"], results.content["settings"]["new_tokens"]
    )
    bandwidth, whence = _bandwidth(results.about, bandwidth)
    lines = [
        f"{results.about.get('device', 'no device of jax')}, bfloat16, prompts of {texts.prompt}"
        f" tokens, {texts.new} new ones; median (least to most)",
        f"memory bound: weights and half-filled caches at {bandwidth / 1e9:,.0f} GB/s ({whence})"
        if bandwidth
        else "memory bound: the bandwidth is not known; give --bandwidth",
    ]
    by_pair = lambda row: (row["pair"], row["setting"])  # noqa: E731
    groups = itertools.groupby(sorted(results.rows, key=by_pair), by_pair)
    for (pair, setting), rows in groups:
        figures = Figures(pair, list(rows))
        lines += ["", f"## {pair}, {_TITLES[setting]}"]
        lines += _calls(figures, texts, bandwidth) + _decodes(figures, texts, bandwidth)
        lines += _failures(figures)
    return "\n".join(lines)


_TITLES = {
    "default": "XLA's default command buffers",
    "off": "no command buffers",
    "huggingface": "Hugging Face in torch",
}


def _bandwidth(about: Row, given: float | None) -> tuple[float | None, str]:
    known = get_bandwidth(about.get("device", ""))
    if given:
        return given, "--bandwidth"
    return (known, "data sheet") if known else (about.get("copy_bandwidth"), "of a copy, measured")


def _bound_ms(pair: str, texts: Texts, batch: int, bandwidth: float | None) -> float | None:
    """Milliseconds that reading the target's weights and half-filled caches takes."""
    shapes = planted.PAIRS[pair]
    cached = texts.head(shapes.encoder_decoder) + texts.new / 2
    moved = step_bytes(planted.describe_model(shapes.target), batch, cached, texts.prompt)
    return moved / bandwidth * 1e3 if bandwidth else None


def _format_share(bound: float | None, measured: Sequence[float]) -> str:
    return f"{100 * bound / statistics.median(measured):.0f}%" if bound else "-"


def _calls(figures: Figures, texts: Texts, bandwidth: float | None) -> list[str]:
    """The table of single calls: step, bound, c and v by batch."""
    batches = [batch for (batch,) in figures.distinct(VERIFY, "batch") if figures.steps(batch)]
    if not batches:
        return []
    drafters = [name for (name,) in figures.distinct(DRAFT, "drafter")]
    lengths = sorted(length for (length,) in figures.distinct(VERIFY, "length"))
    table = [
        ["batch", "step ms", "bound ms", "of bound"]
        + [f"c {name}" for name in drafters]
        + [f"v({length})" for length in lengths]
    ]
    for batch in sorted(batches):
        steps, bound = figures.steps(batch), _bound_ms(figures.pair, texts, batch, bandwidth)
        found = [figures.ratios(DRAFT, batch=batch, drafter=name) for name in drafters]
        found += [figures.ratios(VERIFY, batch=batch, length=length) for length in lengths]
        table.append(
            [
                str(batch),
                spread(steps),
                f"{bound:.2f}" if bound else "-",
                _format_share(bound, steps),
            ]
            + [spread(ratios, 3) if ratios else "-" for ratios in found]
        )
    return _markdown(table)


def _decodes(figures: Figures, texts: Texts, bandwidth: float | None) -> list[str]:
    """The table of whole decodes at set acceptance rates."""
    head = "drafter|K|acceptance|measured|tokens|alone ms/token|of bound|drafted ms/token|speedup"
    table = [[*head.split("|"), "predicted", "paper"]]
    bound = _bound_ms(figures.pair, texts, 1, bandwidth)
    for drafter, length, acceptance in figures.distinct(DECODE, "drafter", "length", "acceptance"):
        chosen = {"drafter": drafter, "length": length, "acceptance": acceptance}
        rows = figures.of(DECODE, **chosen)
        if not rows:
            continue
        base, other = ([ms for row in rows for ms in row[side]] for side in ("base_ms", "other_ms"))
        accepted = [rate for row in rows for rate in row["accepted"] if rate is not None]
        predicted = figures.predicted(drafter, length, acceptance)
        table.append(
            [
                *(drafter, str(length), f"{acceptance:.2f}"),
                f"{statistics.mean(accepted):.2f}" if accepted else "-",
                "same" if all(row["same_tokens"] for row in rows) else "DIFFER",
                *(spread(base), _format_share(bound, base), spread(other)),
                spread([1 / ratio for ratio in figures.ratios(DECODE, **chosen)]),
                f"{predicted:.2f}" if predicted else "-",
                _paper(figures.pair, drafter, length, acceptance),
            ]
        )
    return _markdown(table) if len(table) > 1 else []


def _paper(pair: str, *chosen: Any) -> str:
    """The speedup that Leviathan et al. (2023), Table 2, measured on a TPU v4."""
    known = {(name, length, alpha): found for name, _, length, alpha, found in TABLE}
    return str(known.get(chosen, "-")) if pair == "t5xxl" else "-"


def _failures(figures: Figures) -> list[str]:
    failed = [row for row in figures.rows if "failed" in row]
    names = [field.name for field in dataclasses.fields(Unit)]
    lines = [f"- {Unit(*(row[name] for name in names)).key}: {row['failed']}" for row in failed]
    return [""] * bool(lines) + lines


def _markdown(table: list[list[str]]) -> list[str]:
    """A table, with an empty line before it."""
    rule = ["---"] + ["---:"] * (len(table[0]) - 1)
    return ["", *(f"| {' | '.join(row)} |" for row in (table[0], rule, *table[1:]))]
