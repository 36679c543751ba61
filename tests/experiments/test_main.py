"""The main job end to end on a tiny pair, and one clear sentence for every mistake."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import ROOT, Done, command, run_refused

from specjax.experiments.config.command_line import parse
from specjax.experiments.decode.show import show
from specjax.hf.tokenizer import train_tokenizer
from specjax.reporting import paper
from specjax.reporting.summary import verbosity

ENTRY = {
    "tokens", "seconds", "ms_per_token", "ms_per_token_median", "speedup", "speedup_predicted",
    "acceptance_rate", "tokens_per_target_call", "calls", "fallback_percent", "rollback_percent",
    "standardized_walltime_improvement", "identical_to_target", "lossless", "quality",
    "acceptance", "rounds", "time", "predicted", "operations",
}  # fmt: skip


def flags(pair: Path, workdir: Path, **changes: str) -> list[str]:
    fields = {
        "target": pair / "target",
        "drafter": pair / "drafter",
        "source_file": pair / "source.txt",
        "reference_file": pair / "reference.txt",
        "examples": 3,
        "max_new_tokens": 6,
        "repeats": 1,
        "bucket": 64,
    } | changes
    config = [f"--config.{name}={value}" for name, value in fields.items()]
    return [f"--config={ROOT / 'configs' / 'translate.py'}", f"--workdir={workdir}", *config]


@pytest.fixture(scope="module")
def finished(pair, tmp_path_factory) -> tuple[Done, Path]:
    workdir = tmp_path_factory.mktemp("work") / "run"
    return command(*flags(pair, workdir, batch_size="2")), workdir


def test_the_main_job_ends_well_and_prints_one_table(finished):
    done, _ = finished
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ms/token") == 1
    assert "metric: nrefs:1|case:mixed" in done.stdout
    assert done.stdout.count("speculative_3") == 1
    assert done.stdout.count("lossless*") == 1
    assert "\r" not in done.stdout + done.stderr and "\x1b" not in done.stdout + done.stderr


def test_verbose_prints_every_figure_before_the_table(finished, capsys):
    results = json.loads((finished[1] / "results.json").read_text())
    assert not parse(["specjax"]).verbose
    with verbosity(parse(["specjax", "--verbose"]).verbose):
        show(results, finished[1])
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("near ties", "theorem 3.8", "L/out %", "SWI"))
    assert shown.endswith(finished[0].stdout)


def test_tables_lie_beside_the_results(finished):
    strategies = json.loads((finished[1] / "results.json").read_text())["strategies"]
    with (finished[1] / "results.csv").open(newline="") as file:
        assert [row["strategy"] for row in csv.DictReader(file)] == list(strategies)
    assert (finished[1] / "table.tex").read_text().count(r" \\") == len(strategies) + 2
    assert (finished[1] / "table.md").read_text().count("\n| ") == len(strategies) + 2


def test_results_have_the_stable_schema(finished):
    results = json.loads((finished[1] / "results.json").read_text())
    assert set(results) == {
        "environment", "config", "files", "data", "models", "strategies", "costs", "roofline",
        "texts", "groups", "evaluation",
    }  # fmt: skip
    assert results["data"] == {"name": "translation", "examples": 3, "metric": "bleu"}
    assert {"parameters", "step_ms"} == set(results["models"]["target"])
    assert "autoregressive" in results["strategies"]
    for entry in results["strategies"].values():
        assert set(entry) >= ENTRY
        assert set(entry["quality"]) == {"bleu"}


def test_the_parts_of_a_strategy_s_figures_agree(finished):
    results = json.loads((finished[1] / "results.json").read_text())
    for entry in results["strategies"].values():
        rounds, spent = entry["rounds"], entry["time"]
        committed = sum(int(k) * n for k, n in rounds["tokens_per_round"].items())
        assert committed == entry["tokens"]
        assert sum(rounds["stop_reasons"].values()) == rounds["count"] == entry["calls"]["target"]
        assert entry["acceptance"]["rate"] in (entry["acceptance_rate"], None)
        parts = [spent[part] for part in ("target", "drafter", "rest", "fixed")]
        assert sum(parts) == pytest.approx(spent["total"]) == entry["seconds"]
        assert (spent["drafter"] > 0) == ("drafter" in entry["calls"])
        predicted = entry["predicted"]
        assert predicted["with_v"] == entry["speedup_predicted"]
        # A busy machine may have left no loop whose times make sense (tests/measuring).
        assert predicted["priced"] in ("in place", "alone") and predicted["round_ms"] > 0
        assert set(entry["operations"]) == {"total", *entry["calls"]}


def test_accepted_lengths_agree_with_the_rounds(finished):
    results = json.loads((finished[1] / "results.json").read_text())
    for name, entry in results["strategies"].items():
        found = results["evaluation"][name]["overall"]
        assert results["evaluation"][name]["categories"] == {}
        rounds = entry["rounds"]
        assert (found["rounds"], found["tokens"]) == (rounds["count"], entry["tokens"])
        pooled = found["without_prefill"]["pooled"]["value"]
        assert pooled == pytest.approx(entry["tokens"] / rounds["count"])
        steps = {str(one["length"]): one["steps"] for one in found["without_prefill"]["by_length"]}
        assert steps["1"] == rounds["count"]
        # Rows of a batch share their seconds.
        assert found["speedup"]["value"] is found["tokens_per_second"] is None


def test_the_run_becomes_the_table_of_a_paper(finished, capsys):
    assert paper.main(["paper", str(finished[1]), "--convention=speed_bench"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "SPEED-Bench" in lines[0] and lines[2] == "| strategy | translation |"
    assert "| autoregressive | 1.00 |" in lines


def test_costs_and_rooflines_cover_every_model_and_width(finished):
    results = json.loads((finished[1] / "results.json").read_text())
    costs = results["costs"]["greedy"]
    assert costs["target"]["c"] == 1.0 and set(costs["drafter"]["v"]) == {"1", "2"}
    widths = {str(spec.get("length", 0) + 1) for spec in results["config"]["strategies"].values()}
    assert set(costs["target"]["step_ms"]) == widths
    for name, model in results["models"].items():
        assert model["step_ms"] == costs[name]["step_ms"]["1"]
        assert results["roofline"][name]["measured_ms"] == model["step_ms"]


def test_colored_texts_spell_the_outputs(finished):
    texts = json.loads((finished[1] / "results.json").read_text())["texts"]
    rows = [json.loads(line) for line in (finished[1] / "outputs.jsonl").read_text().splitlines()]
    outputs = {(row["source"], row["strategy"]): row["output"] for row in rows}
    assert len(texts) == 5
    for text in texts:
        kept = [
            *("".join(r["drafted"][: r["accepted"]]) + (r["next"] or "") for r in text["rounds"])
        ]
        spelled = "".join(kept).replace("</s>", "").strip()
        assert spelled == outputs[text["source"], text["strategy"]]


def test_lossless_greedy_strategies_are_identical_to_the_target(finished):
    strategies = json.loads((finished[1] / "results.json").read_text())["strategies"]
    greedy = [
        e for e in strategies.values() if e["lossless"] and e["identical_to_target"] is not None
    ]
    assert len(greedy) >= 5
    assert all(entry["identical_to_target"] == 1.0 for entry in greedy)
    assert all(entry["differing"] == entry["near_ties"] == 0 for entry in greedy)
    for name in ("speculative_sampling", "lenient"):
        assert strategies[name]["differing"] is strategies[name]["near_ties"] is None
    assert strategies["speculative_sampling"]["identical_to_target"] is None


def test_outputs_and_traces_hold_every_example_of_every_strategy(finished):
    rows = [json.loads(line) for line in (finished[1] / "outputs.jsonl").read_text().splitlines()]
    strategies = json.loads((finished[1] / "results.json").read_text())["strategies"]
    assert len(rows) == 3 * len(strategies)
    with np.load(finished[1] / "trace.npz") as trace:
        for name, entry in strategies.items():
            assert trace[f"{name}/committed"].sum() == entry["tokens"]
            assert trace[f"{name}/committed"].shape[0] == 3
            seconds = trace[f"{name}/seconds"]  # of batches, two of them
            assert seconds.shape == (2, 1) and seconds.sum() == pytest.approx(entry["seconds"])


def test_a_run_can_be_compared_with_a_copy_of_it(finished, tmp_path):
    copy = shutil.copytree(finished[1], tmp_path / "copy")
    config = ROOT / "configs" / "compare.py"
    done = command(
        f"--config={config}", f"--config.runs={finished[1]},{copy}", f"--workdir={tmp_path / 'out'}"
    )
    assert done.returncode == 0, done.stderr
    strategies = json.loads((copy / "results.json").read_text())["strategies"]
    with (tmp_path / "out" / "compare.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == str(copy)]
    for row in rows:
        entry = strategies[row["strategy"]]
        assert float(row["ms_per_token"]) == pytest.approx(entry["ms_per_token"])
        assert float(row["bleu"]) == pytest.approx(entry["quality"]["bleu"])
        assert (float(row["speed_ratio"]), float(row["bleu_difference"])) == (1, 0)
    assert len(rows) == len(strategies)


def test_the_report_is_self_contained(finished):
    page = (finished[1] / "report.html").read_text()
    assert "<svg " in page and "<h2>Why not faster?</h2>" in page
    assert "http://" not in page and "https://" not in page


MISTAKES = {
    "a mistyped field": ({"exampels": "3"}, "exampels"),
    "a missing source file": ({"source_file": "nowhere.txt"}, "nowhere.txt"),
    "a missing model": ({"target": "./nowhere"}, "nowhere"),
    "a draft length of 0": ({"strategies.speculative_3.length": "0"}, "speculative_3.length"),
    "lenience out of range": ({"strategies.lenient.lenience": "1.5"}, "lenient.lenience"),
    "a prompt that is too long": ({"max_prompt_tokens": "4"}, "max_prompt_tokens"),
    "a batch size of 0": ({"batch_size": "0"}, "batch_size"),
    "a negative profile": ({"profile_rounds": "-1"}, "profile_rounds"),
    "a wrong type": ({"batch_size": "many"}, "batch_size"),
    "an unknown metric": ({"metric": "meteor"}, "metric"),
    "an unknown dtype": ({"dtype": "int7"}, "dtype"),
    "no target": ({"target": ""}, "config.target"),
}


@pytest.mark.parametrize(("changes", "named"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_in_one_sentence(changes, named, pair, tmp_path):
    done = command(*flags(pair, tmp_path, **changes))
    run_refused(done.returncode, done.stderr, named)


def test_an_empty_data_set_is_refused(pair, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    done = command(*flags(pair, tmp_path, source_file=tmp_path / "empty.txt"))
    run_refused(done.returncode, done.stderr, "empty.txt")


def test_a_missing_config_is_refused():
    done = command("--config=nowhere.py")
    run_refused(done.returncode, done.stderr, "nowhere.py")


def test_a_drafter_with_another_tokenizer_is_refused(pair, tmp_path):
    other = tmp_path / "drafter"
    shutil.copytree(pair / "drafter", other)
    train_tokenizer(["quite another text"], 60).save_pretrained(other)
    done = command(*flags(pair, tmp_path, drafter=other))
    run_refused(done.returncode, done.stderr, "another tokenizer")


def test_a_process_ends_with_the_code_of_its_refusal():
    line = [sys.executable, "-m", "specjax.main", "--config=nowhere.py"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    run_refused(done.returncode, done.stderr, "nowhere.py")


def test_full_help_names_the_flags_and_what_configs_may_name():
    done = command("--helpfull")
    assert done.returncode == 0
    assert "--config" in done.stdout and "--workdir" in done.stdout
    assert "cross_entropy: " in done.stdout and "divergence: " in done.stdout
    assert "gsm8k: " in done.stdout and "rouge: " in done.stdout
