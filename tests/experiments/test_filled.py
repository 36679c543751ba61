"""Decode experiments in slots that are refilled: same texts and figures, resumed, in few bytes."""

from __future__ import annotations

import gc
import json
import tracemalloc
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import ROOT, command, run_refused
from ml_collections import ConfigDict
from sessions import make_session

from specjax.decoding.summary import summarize
from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec
from specjax.experiments.decode import filled, filled_results, filled_session, results
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.checks import check_decode
from specjax.experiments.decode.filled_log import LOG, LoggedRows, RowLog
from specjax.experiments.decode.filled_session import FilledSession
from specjax.experiments.decode.show import show
from specjax.experiments.pairs import load_pair
from specjax.experiments.workdir import read_finished
from specjax.metrics.metric import get_metric
from specjax.metrics.sums import add_sums
from specjax.metrics.traces import acceptance, arm_figures, collect_rounds, round_figures
from specjax.metrics.trees import by_rank
from specjax.pair import Pair
from specjax.runtime.errors import UserError

EXAMPLES, REPEATS, SLOTS = 11, 2, 4

ENTRY = {
    "baseline", "seconds", "tokens_per_second", "ms_per_token", "speedup", "occupancy",
    "occupancy_before_tail", "first_token_seconds", "last_token_seconds", "resumed_rows", "passes",
    "tokens", "acceptance_rate", "tokens_per_target_call", "calls", "layers_per_token",
    "fallback_percent", "rollback_percent", "handovers", "acceptance", "acceptance_by_rank", "arms",
    "rounds", "identical_to_target", "differing", "quality", "lossless",
}  # fmt: skip


def make_config(pair: Path, **changes) -> ConfigDict:
    fields = {
        "target": str(pair / "target"),
        "drafter": str(pair / "drafter"),
        "source_file": str(pair / "source.txt"),
        "reference_file": str(pair / "reference.txt"),
        "metric": "bleu",
        "examples": EXAMPLES,
        "max_new_tokens": 6,
        "batching": "filled",
        "batch_size": SLOTS,
        "repeats": REPEATS,
        "bucket": 64,
        "strategies": {"autoregressive": AUTOREGRESSIVE, "short": neural_spec("drafter", 2)},
    }
    return decode_config(**fields | changes)


@pytest.fixture(scope="module")
def models(pair) -> Pair:
    return load_pair(make_config(pair))


def run(config: ConfigDict, models: Pair, folder: Path) -> dict:
    folder.mkdir(exist_ok=True)
    return decode.run_pair(config, check_decode(config), models, folder)


def read_outputs(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "outputs.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def all_kinds(pair, models, tmp_path_factory) -> SimpleNamespace:
    """A filled run of all kinds of strategies, and what static batches of the same decode."""
    folder = tmp_path_factory.mktemp("filled")
    strategies = {
        "autoregressive": AUTOREGRESSIVE,
        "short": neural_spec("drafter", 2),
        "tree": {"drafter": "neural", "model": "drafter", "widths": (2, 1)},
        "sampled": neural_spec("drafter", 2, temperature=1.0),
    }
    return run_both(make_config(pair, strategies=strategies), models, folder)


def run_both(config: ConfigDict, models: Pair, folder: Path) -> SimpleNamespace:
    """A filled run, and what static batches of the same config decode."""
    content = run(config, models, folder)
    session = make_session(config, folder, models)
    session.config.repeats = 1
    static = decode.measure(session, session.batches())
    return SimpleNamespace(content=content, folder=folder, session=session, static=static)


@pytest.mark.slow
def test_texts_are_those_of_static_batches(all_kinds):
    rows = read_outputs(all_kinds.folder)
    names = list(all_kinds.static)
    expected = [(example, name) for example in range(EXAMPLES) for name in names]
    assert [(row["example"], row["strategy"]) for row in rows] == expected
    static = results.output_rows(
        all_kinds.session,
        all_kinds.static,
        {
            name: all_kinds.session.generators[name].prompts.texts(entry.tokens)
            for name, entry in all_kinds.static.items()
        },
    )
    for row, same in zip(rows, static, strict=True):
        assert {field: row[field] for field in same if field != "arms"} == {
            field: value for field, value in same.items() if field != "arms"
        }
        assert 0 < row["first_token_seconds"] <= row["last_token_seconds"]
    assert not (all_kinds.folder / LOG).exists()


@pytest.mark.slow
def test_figures_are_those_of_static_batches(all_kinds):
    session = all_kinds.session
    for name, entry in all_kinds.content["strategies"].items():
        assert set(entry) == ENTRY
        static, decoder = all_kinds.static[name], session.generators[name].decoder
        stats, rounds = summarize(decoder, static.traces), collect_rounds(static.traces)
        assert entry["tokens"] == stats.tokens and entry["calls"] == stats.calls
        assert entry["acceptance_rate"] == stats.acceptance_rate
        assert entry["tokens_per_target_call"] == stats.tokens_per_target_call
        assert entry["rounds"] == round_figures(rounds)
        whole, same = entry["acceptance"], acceptance(rounds)
        assert whole["by_position"] == same["by_position"] and whole["rate"] == same["rate"]
        # Float32 probabilities of batches of other sizes, which round otherwise.
        assert whole["analytic"] == pytest.approx(same["analytic"], rel=1e-5)
        texts = session.generators[name].prompts.texts(static.tokens)
        references = [example.reference for example in session.examples]
        assert entry["quality"] == pytest.approx(get_metric("bleu")(texts, references))
        same = results.identical(static, all_kinds.static["autoregressive"])
        assert entry["identical_to_target"] == (None if name == "sampled" else same)
    strategies = all_kinds.content["strategies"]
    parents = session.strategies["tree"].drafter.spec.parents
    assert strategies["tree"]["acceptance_by_rank"] == by_rank(
        all_kinds.static["tree"].traces, parents
    )


@pytest.mark.slow
def test_arms_are_those_of_the_examples(pair, models, tmp_path):
    arms = [("short", "autoregressive")[n % 2] for n in range(EXAMPLES)]
    (tmp_path / "arms.json").write_text(json.dumps(arms))
    chosen = {"drafter": "selected", "mode": "fixed", "arms": ("autoregressive", "short")}
    config = make_config(pair, repeats=1)
    config.strategies["chosen"] = {**chosen, "choices": str(tmp_path / "arms.json")}
    both = run_both(config, models, tmp_path)
    rounds = collect_rounds(both.static["chosen"].traces)
    entry = both.content["strategies"]["chosen"]
    assert entry["arms"] == arm_figures(rounds, ("autoregressive", "short"))
    assert entry["arms"]["short"]["texts"] == (EXAMPLES + 1) // 2
    rows = [row["tokens"] for row in read_outputs(tmp_path) if row["strategy"] == "chosen"]
    assert rows == both.static["chosen"].tokens


@pytest.mark.slow
def test_every_pass_has_its_speed_occupancy_and_times(all_kinds):
    for entry in all_kinds.content["strategies"].values():
        assert len(entry["passes"]) == REPEATS and entry["resumed_rows"] == 0
        for one in entry["passes"]:
            assert one["rows"] == EXAMPLES and one["tokens"] == entry["tokens"]
            assert one["tokens_per_second"] == pytest.approx(one["tokens"] / one["seconds"])
            assert 0 < one["occupancy"] <= 1 and 0 < one["occupancy_before_tail"] <= 1
            assert one["rounds"] * SLOTS * one["occupancy"] == pytest.approx(
                entry["rounds"]["count"]
            )
            first, last = one["first_token_seconds"], one["last_token_seconds"]
            assert 0 < first["median"] <= first["p95"] <= last["p95"] < one["seconds"]
            assert first["median"] <= last["median"] <= last["p95"]
    assert all_kinds.content["strategies"]["autoregressive"]["speedup"] == 1


@pytest.mark.slow
def test_the_table_the_report_and_the_csv_are_written(all_kinds, capsys):
    show(all_kinds.content, all_kinds.folder)
    printed = capsys.readouterr().out
    assert "tokens/s" in printed and "occupancy" in printed and "lossless*" in printed
    assert "Throughput" in (all_kinds.folder / "report.html").read_text()
    assert "first_token_seconds_p95" in (all_kinds.folder / "results.csv").read_text()
    assert "occupancy" in (all_kinds.folder / "table.md").read_text()
    config = ConfigDict(all_kinds.content["config"])
    assert read_finished(config, all_kinds.folder)["strategies"]["tree"]["tokens"] > 0


class Killed(Exception):
    pass


def kill(monkeypatch, name: str, after: int) -> None:
    """Lets a method of the log fail when it was called so many times."""
    method, calls = getattr(RowLog, name), []

    def call(*args):
        if len(calls) == after:
            raise Killed
        calls.append(args)
        return method(*args)

    monkeypatch.setattr(RowLog, name, call)


PASSES = 2 * REPEATS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "after", "rows"),
    [
        ("add", 0, 0),  # nothing is logged
        ("add", 2, 2 * SLOTS),  # in the first pass
        ("add", 4, EXAMPLES + SLOTS),  # in that of the second strategy
        ("finish", 3, PASSES * EXAMPLES),  # all rows are logged, the last figures are not
        ("sum_up", 0, PASSES * EXAMPLES),  # while results are written
    ],
)
def test_a_killed_run_goes_on_and_no_row_is_lost_or_twice(
    method, after, rows, pair, models, all_kinds, tmp_path, monkeypatch, capsys
):
    config, log, read = make_config(pair), tmp_path / LOG, []
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, method, after)
        run(config, models, tmp_path)
    assert len(read_log(log)) == rows
    with log.open("a") as file:
        file.write('{"strategy": "short", "pass": 0, "rows": [{"exam')  # a line that was cut short

    def read_rows(file, *more):
        read.extend(read_log(file))
        return LoggedRows(file, *more)

    monkeypatch.setattr(filled_results, "LoggedRows", read_rows)
    content = run(config, models, tmp_path)
    assert len(read) == len(set(read)) == PASSES * EXAMPLES
    texts = {folder: select_texts(folder, config) for folder in (tmp_path, all_kinds.folder)}
    assert texts[tmp_path] == texts[all_kinds.folder]
    for name, entry in content["strategies"].items():
        whole = all_kinds.content["strategies"][name]
        for field in ("tokens", "rounds", "quality", "calls", "acceptance_rate"):
            assert entry[field] == whole[field]
        for one in entry["passes"]:
            assert one["rows"] + one["resumed_rows"] == EXAMPLES
    resumed = sum(entry["resumed_rows"] for entry in content["strategies"].values())
    assert resumed == {"add": rows % EXAMPLES, "finish": EXAMPLES, "sum_up": 0}[method]
    assert ("leave out" in capsys.readouterr().out) == (resumed > 0)
    assert not log.exists()


def select_texts(folder: Path, config: ConfigDict) -> list[tuple[int, str, str]]:
    """Example, strategy and text of every output of the config's strategies."""
    rows = [(row["example"], row["strategy"], row["output"]) for row in read_outputs(folder)]
    return [row for row in rows if row[1] in config.strategies]


def read_log(file: Path) -> list[tuple[str, int, int]]:
    """Strategy, pass and example of every row."""
    lines = [json.loads(line) for line in file.read_text().splitlines()][1:]
    return [
        (line["strategy"], line["pass"], row["example"])
        for line in lines
        for row in line.get("rows", ())
    ]


@pytest.mark.slow
def test_a_log_of_another_run_is_not_read(pair, models, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill(patch, "add", 2)
        run(make_config(pair), models, tmp_path)
    content = run(make_config(pair, seed=1, repeats=1), models, tmp_path)
    assert all(entry["resumed_rows"] == 0 for entry in content["strategies"].values())


@pytest.mark.slow
def test_a_prompt_that_is_too_long_is_named_before_anything_is_decoded(
    pair, models, all_kinds, tmp_path, monkeypatch
):
    monkeypatch.setattr(filled, "measure", None)
    lengths = list(map(len, all_kinds.session.prompts))
    config = make_config(pair, max_prompt_tokens=max(lengths) - 1)
    with pytest.raises(UserError) as static:
        make_session(config, tmp_path, models)
    with pytest.raises(UserError) as refused:
        run(config, models, tmp_path)
    assert str(refused.value) == str(static.value)
    assert f"prompt {lengths.index(max(lengths))} has {max(lengths)}" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile_rounds": 2}, "must be 'static' with config.profile_rounds"),
        ({"batching": "endless"}, "batching is 'endless'; it must be one of static, filled"),
    ],
)
def test_what_slots_cannot_do_is_refused(pair, tmp_path, changes, message):
    flags = [f"--config.{name}={value}" for name, value in changes.items()]
    files = [f"--config.{name}={pair / name}" for name in ("target", "drafter")]
    source = f"--config.source_file={pair / 'source.txt'}"
    config = f"--config={ROOT / 'configs' / 'translate.py'}"
    done = command(
        config, f"--workdir={tmp_path / 'w'}", "--config.batching=filled", *files, source, *flags
    )
    run_refused(done.returncode, done.stderr, message)


def test_a_bandit_that_learns_from_batches_is_refused(pair):
    arms = {"drafter": "selected", "arms": ("autoregressive", "short"), "mode": "online"}
    config = make_config(pair)
    config.strategies["learns"] = ConfigDict({**arms, "bandit": "thompson"})
    with pytest.raises(UserError, match="with strategies.learns, which learns from the seconds"):
        check_decode(config)


def test_beam_searches_are_not_filled(tmp_path):
    done = command(
        f"--config={ROOT / 'configs' / 'beams.py'}",
        f"--workdir={tmp_path}",
        "--config.batching=filled",
    )
    run_refused(done.returncode, done.stderr, "it must be 'static' for beams")


@pytest.mark.slow
def test_a_filled_run_is_not_compared(all_kinds, tmp_path):
    done = command(
        f"--config={ROOT / 'configs' / 'compare.py'}",
        f"--config.runs={all_kinds.folder},{tmp_path}",
        f"--workdir={tmp_path / 'w'}",
    )
    run_refused(done.returncode, done.stderr, "config.batching 'filled'; it must be 'static'")


def test_later_turns_of_conversations_are_refused(pair, models, tmp_path):
    file = tmp_path / "question.jsonl"
    file.write_text('{"turns": ["how many", "apples"], "category": "qa"}\n')
    task = {"task": "mt_bench", "source_file": "", "reference_file": "", "metric": "none"}
    config = make_config(pair, **task, data={"path": str(file)})
    with pytest.raises(UserError, match="it must be 'static', or config.turns 1"):
        run(config, models, tmp_path)


def test_sums_of_parts_are_those_of_the_whole():
    one = {"calls": {"target": 2}, "tested": [3, 1], "rows": [[1], [2, 3]], "overlap": 0.5}
    other = {"calls": {"target": 1, "drafter": 4}, "tested": [1], "rows": [[1, 1]], "overlap": 1}
    assert add_sums(one, other) == {
        "calls": {"target": 3, "drafter": 4}, "tested": [4, 1], "rows": [[2, 1], [2, 3]],
        "overlap": 1.5,
    }  # fmt: skip


def repeat_lines(pair: Path, file: Path, count: int) -> ConfigDict:
    """The config of a run of so many prompts by the target alone."""
    lines = (pair / "source.txt").read_text("utf-8").splitlines()
    file.write_text("".join(f"{lines[n % len(lines)]}\n" for n in range(count)), "utf-8")
    fields = {"source_file": str(file), "reference_file": "", "metric": "none", "examples": 0}
    fields |= {"strategies": {"autoregressive": AUTOREGRESSIVE}, "max_new_tokens": 6}
    return make_config(pair, **fields, repeats=1)


class Live:
    """How many of some objects are held at once, at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def watch(self, given):
        self.now += 1
        self.most = max(self.most, self.now)
        weakref.finalize(given, self.end)
        return given

    def end(self) -> None:
        self.now -= 1


def test_few_examples_and_prompts_are_held(pair, models, tmp_path, monkeypatch):
    examples, entries = Live(), Live()
    stream, make_entry = filled_session.stream_checked, FilledSession.make_entry
    watched = lambda config: map(examples.watch, stream(config))  # noqa: E731
    monkeypatch.setattr(filled_session, "stream_checked", watched)
    monkeypatch.setattr(FilledSession, "make_entry", lambda *a: entries.watch(make_entry(*a)))
    content = run(repeat_lines(pair, tmp_path / "many.txt", 250), models, tmp_path)
    assert content["data"]["examples"] == 250
    # in slots, just ended, to be logged (up to twice the slots), waiting, and in the thread's hand
    assert entries.most <= 6 * SLOTS
    assert examples.most <= 2 * 64 + 3  # two blocks whose outputs are scored


@pytest.mark.slow
def test_memory_does_not_grow_with_the_prompts(pair, models, tmp_path):
    peaks = []
    for count in (500, 500, 2000):  # the first run compiles
        config = repeat_lines(pair, tmp_path / f"{count}.txt", count)
        gc.collect()
        tracemalloc.start()
        run(config, models, tmp_path / f"run{len(peaks)}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[2] - peaks[1]) / 1500 < 200, peaks  # bytes a prompt: a few numbers
