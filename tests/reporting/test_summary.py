"""The one table of a run: sorted, marked, plain in a file, drawn on a terminal; and its exports."""

from __future__ import annotations

import contextlib
import copy
import csv
import io

import pytest
import synthetic

from specjax.reporting import exports, html_tables
from specjax.reporting import summary as terminal
from specjax.reporting.summary import NOTE, Table, fastest_lossless, summary
from specjax.reporting.table import align_columns

NASTY = r"50% of_a & $b$ {c} ~ ^ \d | *e* <f> `g` #1"


@pytest.fixture(scope="module")
def results() -> dict:
    found = synthetic.results()
    found["strategies"]["speculative_3"].update(speedup_low=1.9, speedup_high=2.04)
    return found


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_rows_are_sorted_by_speed_and_have_the_promised_columns(results):
    table = summary(results["strategies"])
    assert table.head == [
        "strategy", "bleu", "ms/token", "speedup", "accepted", "tokens/call", "outputs",
    ]  # fmt: skip
    times = [float(row[2]) for row in table.rows]
    assert times == sorted(times) and len(times) == len(synthetic.STRATEGIES)


def test_the_fastest_lossless_strategy_alone_is_marked(results):
    strategies = {n: copy.deepcopy(results["strategies"][n]) for n in ("speculative_3", "lenient")}
    strategies["lenient"]["ms_per_token"] = strategies["speculative_3"]["ms_per_token"] / 2
    table = summary(strategies)
    assert [(row[0], row[-1]) for row in table.rows] == [
        ("lenient", "lossy"),
        ("speculative_3", "lossless*"),
    ]
    assert fastest_lossless(strategies) == "speculative_3"
    assert fastest_lossless({"lenient": strategies["lenient"]}) is None


def test_a_speedup_has_its_interval_where_there_is_one(results):
    rows = {row[0]: row for row in summary(results["strategies"]).rows}
    assert rows["speculative_3"][3].endswith("±0.07")
    assert "±" not in rows["bigram"][3]


def test_without_drafts_and_without_a_metric_nothing_is_made_up(results):
    strategies = {"autoregressive": results["strategies"]["autoregressive"] | {"quality": {}}}
    table = summary(strategies)
    assert "bleu" not in table.head
    assert table.rows[0][table.head.index("accepted")] == "-"


def test_a_file_gets_plain_text(results, monkeypatch):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        terminal.show(summary(results["strategies"]))
    table = summary(results["strategies"])
    assert out.getvalue() == align_columns(table.head, table.rows) + f"\n{NOTE}\n"
    assert "\x1b" not in out.getvalue()


def test_a_terminal_gets_colors_and_every_cell(results, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    table = summary({"a [bold]name[/bold]": results["strategies"]["speculative_3"]})
    with contextlib.redirect_stdout(out):
        terminal.show(table)
    assert "\x1b[" in out.getvalue()
    for text in (*table.head, *table.rows[0]):
        assert text in out.getvalue()


def test_a_narrow_terminal_wraps_words_and_cuts_no_figure(results, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # no colors
    out = Terminal()
    table = summary(results["strategies"])
    with contextlib.redirect_stdout(out):
        terminal.show(table)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for row in table.rows:
        if len(row[0]) <= 16:
            assert any({row[0], row[2]} <= set(line.split()) for line in lines), row
    assert "±0.07" in out.getvalue() and "lossless*" in out.getvalue()


def test_details_are_printed_on_demand_only():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        terminal.details("one")
        with terminal.verbosity(True):
            terminal.details("two")
        terminal.details("three")
    assert out.getvalue() == "two\n\n"


def test_the_csv_has_a_row_for_each_strategy_and_names_with_units(results, tmp_path):
    exports.write_tables(results, tmp_path)
    with (tmp_path / exports.CSV).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["strategy"] for row in rows] == list(results["strategies"])
    for row in rows:
        entry = results["strategies"][row["strategy"]]
        assert float(row["ms_per_token"]) == entry["ms_per_token"]
        assert float(row["bleu"]) == entry["quality"]["bleu"]
        assert float(row["flops_per_token"]) == entry["operations"]["total"]["flops"]
        assert (row["data"], row["batch_size"]) == ("Multi30k <test>", "1")


def test_a_note_stands_below_the_tables(results):
    table = summary(results["strategies"])
    assert exports.markdown(table, "").endswith("\n\n\\* the fastest lossless strategy\n")
    note = r"\multicolumn{7}{l}{* the fastest lossless strategy} \\"
    assert exports.latex(table, "").splitlines()[-2] == note
    assert r"$\pm$0.07" in exports.latex(table, "")


def test_latex_is_escaped_and_balanced():
    made = exports.latex(Table(["strategy", "bleu"], [[NASTY, "3"]]), "a\ntitle")
    assert made.splitlines()[0] == r"% a title; needs \usepackage{booktabs}"
    assert made.count("{") == made.count("}") and r"\toprule" in made
    row = next(line for line in made.splitlines() if "50" in line)
    assert row == (
        r"50\% of\_a \& \$b\$ \{c\} \textasciitilde{} \textasciicircum{} \textbackslash{}d"
        r" \textbar{} *e* \textless{}f\textgreater{} `g` \#1 & 3 \\"
    )


def test_markdown_is_escaped_and_keeps_its_columns():
    made = exports.markdown(Table(["strategy", "bleu"], [[NASTY, "3"]]), "title")
    title, blank, head, rule, row = made.splitlines()
    assert (title, blank, head, rule) == ("title", "", "| strategy | bleu |", "| --- | ---: |")
    assert row.replace("\\|", "").count("|") == 3
    assert r"\<f\>" in row and r"\*e\*" in row and r"\`g\`" in row


def test_the_report_has_what_only_some_runs_print():
    figures = dict.fromkeys(("texts", "rounds", "tokens", "drafted", "accepted"), 1234)
    arms = {"one": {"arms": {"exit <1>": figures | {"accept_rate": 0.5}}}, "other": {"arms": None}}
    table = html_tables.arms_table(arms)
    assert "exit &lt;1&gt;" in table and "1,234" in table and "0.500" in table
    group = {
        "examples": 3, "tokens": 70, "ms_per_token": None, "speedup": None, "accept_rate": 0.25,
        "tokens_per_round": 1.5,
    }  # fmt: skip
    table = html_tables.groups_table({"one": {"qa": group}, "other": {"qa": group}})
    assert table.count("<tr>") == 3 and "0.250" in table
    assert html_tables.arms_table({"other": {"arms": None}}) == html_tables.groups_table({}) == ""


def test_the_report_has_accepted_lengths_by_category_with_their_intervals():
    counts = {"requests": 12, "rounds": 1234, "tokens": 4000}
    known = {"value": 3.2415, "low": 3.0, "high": 3.5}
    unknown = {"value": 2.5, "low": None, "high": None}
    lengths = {"pooled": known, "per_request": unknown}
    figures = counts | {
        "without_prefill": lengths, "with_prefill": lengths,
        "verify_rate": {"value": None, "low": None, "high": None},
    }  # fmt: skip
    found = html_tables.accepted_lengths_table(
        {"one": {"overall": figures, "categories": {"qa": figures}}}
    )
    assert found.count("<tr>") == 3 and "3.241 [3.000, 3.500]" in found and "1,234" in found
    assert html_tables.accepted_lengths_table({}) == ""
