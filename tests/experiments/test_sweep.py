"""Sweeps: points, errors at the door, reuse of models and programs, resumption, what is left."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from command import ROOT, command
from ml_collections import ConfigDict
from pairs import pair_fields

from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    SAMPLED,
    decode_config,
    neural_spec,
    sweep_config,
)
from specjax.experiments.config.file import read_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode import results
from specjax.experiments.sweep import job as sweep
from specjax.experiments.sweep.grid import parse_grid, points
from specjax.runtime.errors import UserError

COMPILED = "/jax/core/compile/backend_compile_duration"
LENIENCE = "strategies.lenient.lenience"
LEVELS = (0.001, 0.5, 1.0)


def base(pair: Path, **changes) -> ConfigDict:
    lenient = neural_spec("drafter", 2, rule="lenient", lenience=0.3, temperature=1.0)
    fields = {
        **pair_fields(pair),
        "examples": 2,
        "max_new_tokens": 6,
        "repeats": 1,
        "bucket": 64,
        "strategies": {"autoregressive": AUTOREGRESSIVE, "lenient": lenient},
    }
    return decode_config(**fields | changes)


def rows(workdir: Path) -> list[dict]:
    return [json.loads(line) for line in (workdir / "sweep.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def swept(pair, tmp_path_factory) -> tuple[ConfigDict, Path, dict[str, list]]:
    """A sweep that was interrupted in its third point, then run again; what each call did."""
    config = sweep_config(base(pair), {LENIENCE: LEVELS, "drafter": _drafters(pair)})
    workdir = tmp_path_factory.mktemp("sweep")
    seen: dict[str, list] = {"loads": [], "first": [], "second": [], "compiled": []}
    load, finish = sweep.load_pair, decode.finish
    calls = seen["first"]

    def note_load(config):
        seen["loads"].append(Path(config.drafter).name)
        return load(config)

    def note_finish(job, folder):
        calls.append(folder.name)
        if calls is seen["first"] and len(calls) == 3:
            (folder / "outputs.jsonl").write_text("half a li")
            raise KeyboardInterrupt
        before = len(seen["compiled"])
        made = finish(job, folder)
        seen[folder.name] = len(seen["compiled"]) - before
        return made

    def note_compile(name, seconds, **_):
        if name == COMPILED:
            seen["compiled"].append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note_compile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "load_pair", note_load)
        patch.setattr(decode, "finish", note_finish)
        patch.setattr(results, "write_report", lambda *_: None)  # seconds of drawing each
        with pytest.raises(KeyboardInterrupt):
            sweep.run(config, workdir)
        seen["interrupted"] = rows(workdir)
        calls = seen["second"]
        sweep.run(config, workdir)
    jax.monitoring.unregister_event_duration_listener(note_compile)
    return config, workdir, seen


def _drafters(pair: Path) -> tuple[str, ...]:
    return str(pair / "drafter"), str(pair / "nowhere")


@pytest.mark.slow
def test_calls_are_timed_under_the_sampling_of_their_strategies(swept):
    found = json.loads(next(swept[1].rglob("results.json")).read_text())
    assert {name: set(each) for name, each in found["costs"].items()} == {
        "greedy": {"target"}, "T=1": {"target", "drafter"},
    }  # fmt: skip
    sampled = found["costs"]["T=1"]["drafter"]["step_ms"]["1"]
    assert found["models"]["drafter"]["step_ms"] == sampled > 0


@pytest.mark.slow
def test_an_interrupted_point_runs_again_and_finished_ones_do_not(swept):
    _, _, seen = swept
    assert [row["point"] for row in seen["interrupted"]] == seen["first"][:2]
    assert seen["second"] == seen["first"][2:]


@pytest.mark.slow
def test_points_of_the_same_models_load_them_once(swept):
    _, _, seen = swept
    # Once a call; nothing is loaded for the points whose drafter is missing.
    assert seen["loads"] == ["drafter", "drafter"]


@pytest.mark.slow
def test_a_threshold_is_swept_without_compiling_again(swept):
    _, _, seen = swept
    first, second = seen["first"][:2]
    assert seen[first] > 0
    assert seen[second] == 0


@pytest.mark.slow
def test_a_failed_point_is_recorded_and_the_others_go_on(swept):
    _, workdir, _ = swept
    failed = [row for row in rows(workdir) if row["error"]]
    assert len(rows(workdir)) == 6 and len(failed) == 3
    assert all("nowhere" in row["fields"]["drafter"] for row in failed)
    assert all("nowhere" in row["error"] and not row["strategies"] for row in failed)


@pytest.mark.slow
def test_a_row_holds_what_the_results_of_its_run_say(swept):
    _, workdir, _ = swept
    for row in rows(workdir)[:3]:
        made = json.loads((workdir / "runs" / row["point"] / "results.json").read_text())
        assert made["config"]["strategies"]["lenient"]["lenience"] == row["fields"][LENIENCE]
        entry = row["strategies"]["lenient"]
        assert entry == {field: made["strategies"]["lenient"][field] for field in entry}


@pytest.mark.slow
def test_more_lenience_accepts_more(swept):
    """Lenience divides the drafter's probability, so acceptance grows as it falls."""
    _, workdir, _ = swept
    rates = [row["strategies"]["lenient"]["acceptance_rate"] for row in rows(workdir)[:3]]
    assert rates[0] > rates[2]


@pytest.mark.slow
def test_table_and_plots_hold_every_run_and_strategy(swept):
    _, workdir, _ = swept
    with (workdir / "sweep.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 3 * 2
    assert {line[LENIENCE] for line in lines} == {str(level) for level in LEVELS}
    assert any(line["front_bleu"] == "True" for line in lines)
    assert (workdir / "plots" / "pareto_bleu.png").stat().st_size > 5000
    assert (workdir / "plots" / "pareto_bleu.pdf").stat().st_size > 5000


@pytest.mark.slow
def test_a_changed_base_makes_finished_points_run_again(swept):
    config, workdir, _ = swept
    point = points(config)[0]
    folder = workdir / "runs" / point.name
    assert sweep.read_finished(point, folder) is not None
    other = config.copy_and_resolve_references()
    other.base.examples = 1
    assert sweep.read_finished(points(other)[0], folder) is None


def test_all_combinations_are_named_apart_and_grouped_by_models(pair):
    grid = {LENIENCE: (0.25, 0.5), "drafter": ("a/x", "b/x"), "seed": (0, 1)}
    found = points(sweep_config(base(pair), grid))
    assert len({point.name.lower() for point in found}) == len(found) == 8
    assert [point.config.drafter for point in found] == ["a/x"] * 4 + ["b/x"] * 4
    assert [point.config.seed for point in found] == [0, 0, 1, 1] * 2
    assert [p.config.strategies.lenient.lenience for p in found] == [0.25, 0.5] * 4


def test_a_field_that_a_strategy_does_not_spell_can_be_swept(pair):
    found = points(sweep_config(base(pair), {"strategies.lenient.confidence": (0.2, 0.4)}))
    assert [point.config.strategies.lenient.confidence for point in found] == [0.2, 0.4]
    assert "confidence" not in base(pair).strategies.lenient


def test_only_named_strategies_and_their_baselines_are_decoded(pair):
    made = base(pair)
    made.strategies.update(other=neural_spec("drafter", 3), sampled=SAMPLED)
    for named, baseline in (("other", "autoregressive"), ("lenient", "sampled")):
        found = points(sweep_config(made, {"seed": (0,)}, strategies=(named,)))
        assert set(found[0].config.strategies) == {named, baseline}


def test_the_grid_can_be_spelled_in_a_flag():
    found = parse_grid(["strategies.lenient.lenience=0.1,1", "target=a,b"])
    assert found == {"strategies.lenient.lenience": (0.1, 1), "target": ("a", "b")}


MISTAKES = {
    "an unknown field": ({"exampels": (1,)}, "config.grid.exampels is not a field"),
    "an unknown strategy": ({"strategies.nope.length": (1,)}, "strategies.nope.length is not"),
    "an unknown field of a strategy": (
        {"strategies.lenient.size": (1,)},
        "lenient.size does not apply",
    ),
    "no fields": ({}, "config.grid is empty"),
    "no values": ({"seed": ()}, r"config.grid.seed is \(\)"),
    "a wrong type": (
        {"seed": ("a",)},
        "config.grid.seed is 'a'; it must be an integer",
    ),
    "a boolean for a number": ({"seed": (True,)}, "is True; it must be an integer of at least 0"),
    "a wrong type in a strategy": ({LENIENCE: ("a",)}, "lenience is 'a'; it must be a number"),
    "a value out of range": ({LENIENCE: (0.5, 2.0)}, "lenience is 2.0; it must be a number in"),
    "the same value twice": ({"seed": (1, 1)}, "its values must differ"),
    "one number in two forms": ({"least_shared": (0, 0.0)}, "its values must differ"),
    "a number of a strategy twice": (
        {"strategies.lenient.lenience": (1, 1.0)},
        "its values must differ",
    ),
    "a group of fields": ({"data": ("a",)}, "config.grid.data is a group"),
}


@pytest.mark.parametrize(("grid", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_bad_grid_is_refused_in_one_sentence(grid, message, pair, tmp_path):
    with pytest.raises(UserError, match=message) as refusal:
        sweep.run(sweep_config(base(pair), grid), tmp_path / "out")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_a_bad_base_is_refused(pair):
    with pytest.raises(UserError, match="nowhere.py"):
        sweep_config("nowhere.py", {"seed": (1,)})
    with pytest.raises(UserError, match="'decode'"):
        points(sweep_config(str(ROOT / "configs" / "ngram.py"), {"seed": (1,)}))
    with pytest.raises(UserError, match="strategies has 'nope'"):
        points(sweep_config(base(pair), {"seed": (1,)}, strategies=("nope",)))


def test_the_dry_run_prints_the_points(pair, capsys):
    sweep.plan(sweep_config(base(pair), {LENIENCE: (0.1, 0.5), "seed": (0, 1)}))
    printed = capsys.readouterr().out
    assert "4 runs; models are loaded 1 time(s)" in printed
    assert "seed=1,lenient.lenience=0.5" in printed


def test_the_config_in_the_box_plans_its_points(capsys):
    words = f"{ROOT / 'configs' / 'translate.py'}"
    config = read_config(f"{ROOT / 'configs' / 'sweep.py'}:{words}")
    config.base.target, config.base.drafter = "target", "drafter"
    sweep.plan(config)
    assert "14 runs" in capsys.readouterr().out


def test_the_main_job_takes_base_and_grid_from_its_flags(monkeypatch):
    monkeypatch.chdir(ROOT)
    place = "configs/sweep.py:configs/translate.py;strategies.speculative_3.length=1,2;seed=0,1"
    flags = [f"--config={place}", "--config.base.target=x", "--config.base.drafter=y", "--dry_run"]
    done = command(*flags)
    assert done.returncode == 0, done.stderr
    assert "seed=1,speculative_3.length=2" in done.stdout


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(pair, tmp_path):
    """SIGKILL when the first run is done and the second has begun."""
    config = base(pair)
    grid = "strategies.lenient.lenience=" + ",".join(map(str, LEVELS))
    (tmp_path / "base.py").write_text(
        "import json\nfrom ml_collections import ConfigDict\n"
        f"def get_config():\n    return ConfigDict(json.loads({config.to_json()!r}))\n"
    )
    place = f"--config={ROOT / 'configs' / 'sweep.py'}:{tmp_path / 'base.py'};{grid}"
    line = [sys.executable, "-m", "specjax.main", place, f"--workdir={tmp_path / 'out'}"]
    runs = tmp_path / "out" / "runs"
    started = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.DEVNULL)
    while not (runs / "lenient.lenience=0.5").exists():
        assert started.poll() is None
        time.sleep(0.05)
    started.kill()
    assert started.wait() == -signal.SIGKILL
    first = runs / "lenient.lenience=0.001" / "results.json"
    written = first.stat().st_mtime_ns
    assert [row["point"] for row in rows(tmp_path / "out")] == ["lenient.lenience=0.001"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [row["error"] for row in rows(tmp_path / "out")] == [None] * 3
    assert first.stat().st_mtime_ns == written
