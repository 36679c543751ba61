"""The command line: nothing is left between calls, folders are checked, `only` chooses."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT, command, run_refused
from ml_collections import ConfigDict

from specjax.contracts.fields import get_config_fields
from specjax.decoding.strategy import speculative
from specjax.experiments import quickstart
from specjax.experiments.config import memory
from specjax.experiments.config.command_line import parse
from specjax.experiments.config.defaults import decode_config, make_config, neural_spec
from specjax.experiments.config.fields import generation_arguments
from specjax.experiments.config.file import read_config
from specjax.experiments.config.schema import SCHEMAS
from specjax.experiments.config.validation import check_config
from specjax.experiments.decode.strategies import BASELINE, check_models, load_strategies
from specjax.experiments.sweep.grid import base_config
from specjax.experiments.tune.space import make_space
from specjax.runtime.errors import TerminationRequest, UserError
from specjax.runtime.files import check_folder

TRANSLATE = str(ROOT / "configs" / "translate.py")
PLACES = sorted(str(file) for file in (ROOT / "configs").rglob("*.py"))
STRATEGIES = {
    "autoregressive": {"drafter": "none"},
    "sampled": {"drafter": "none", "temperature": 1.0},
    "short": neural_spec("drafter", 2),
    "long": neural_spec("drafter", 5),
    "chance": neural_spec("drafter", 3, temperature=1.0),
    "either": {"drafter": "selected", "arms": ("short", "long"), "mode": "random"},
}


@pytest.mark.parametrize("place", PLACES, ids=[Path(place).stem for place in PLACES])
def test_a_config_has_the_fields_of_its_experiment(place: str, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    check_config(read_config(place))


@pytest.mark.parametrize(
    "flags", [(), ("--dry_run", "--config.topology=v5e:2x4")], ids=["run", "plan"]
)
def test_a_run_and_a_plan_name_the_flag_of_their_workdir(flags: tuple[str, ...], tmp_path) -> None:
    (tmp_path / "file").write_text("no folder")
    place = f"--workdir={tmp_path / 'file'}"
    done = command(f"--config={ROOT / 'configs' / 'pair.py'}", "--config.target=x", place, *flags)
    run_refused(done.returncode, done.stderr, "--workdir", "file")


def test_nothing_is_left_of_an_earlier_call() -> None:
    first = parse(["specjax", f"--config={TRANSLATE}", "--config.batch_size=4", "--dry_run"])
    second = parse(["specjax", f"--config={TRANSLATE}"])
    assert (first.config.batch_size, first.dry_run) == (4, True)
    assert (second.config.batch_size, second.dry_run) == (1, False)
    assert second.workdir == Path("runs/translate")


def test_flags_and_fields_come_in_any_order_and_form() -> None:
    fields = ["--config.seed", "7", "--config.invariant"]
    made = parse(["specjax", *fields, "--workdir", "there", "--config", TRANSLATE])
    assert made.config.seed == 7 and made.config.invariant
    assert made.workdir == Path("there")


def test_a_run_that_was_asked_to_end_says_so_and_may_be_started_again(
    monkeypatch, tmp_path: Path
) -> None:
    def get_exit_code(*_: object) -> None:
        raise TerminationRequest(
            "training small stops as requested; the same command resumes from step 4"
        )

    monkeypatch.setattr(quickstart, "run", get_exit_code)
    done = command(f"--workdir={tmp_path}")
    assert (done.returncode, done.stderr.count("specjax: ")) == (143, 1)
    assert "the same command resumes from step 4" in done.stderr


def test_help_can_be_asked_for_twice() -> None:
    assert command("--help") == command("--help")
    assert "--workdir" in command("--help").stdout


@pytest.mark.parametrize(
    ("file", "fields", "others"),
    [
        (
            "translate",
            ("bucket=0 ", "strategies.*  ", "name='translation'"),
            ("optimizer", "runs="),
        ),
        ("training/distill", ("train.*  ", "optimizer.*  ", "batch_size="), ("only=", "runs=")),
        ("compare", ("runs=''  ", "seed=0 "), ("target=", "strategies")),
    ],
)
def test_help_is_short_and_of_the_config(file: str, fields: tuple, others: tuple) -> None:
    place = ROOT / "configs" / f"{file}.py"
    done = command(f"--config={place}", "--help")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) <= 80
    assert "--helpfull" in lines[-1]
    command_of_the_config = f"python -m specjax.main --config=configs/{file}.py"
    assert any(command_of_the_config in line for line in lines)
    shown = [line for line in lines if line.startswith("  ")]
    assert all(len(line) <= 100 for line in shown)
    for field in fields:
        assert any(line.startswith(f"  {field}") for line in shown), field
    for field in others:
        assert not any(line.startswith(f"  {field}") for line in shown), field


@pytest.mark.parametrize("experiment", sorted(SCHEMAS))
def test_help_has_words_for_most_fields_of_every_experiment(experiment: str) -> None:
    known = get_config_fields(SCHEMAS[experiment]).values()
    assert sum(bool(field.help) for field in known) >= 0.8 * len(known)


def test_help_of_a_config_that_is_not_there_is_refused() -> None:
    done = command("--config=nowhere.py", "--help")
    run_refused(done.returncode, done.stderr, "nowhere.py")


def test_drafters_may_be_added_on_the_command_line() -> None:
    place = f"--config={ROOT / 'configs' / 'translate.py'}"
    config = parse(
        ["x", place, "--config.drafters.small=a/b:int8", "--config.drafters.7=9",
         "--config.drafter_ways.small=2", "--config.prices.small=0.5",
         "--config.strategies.drafters.drafter=ngram"]
    ).config  # fmt: skip
    assert config.drafters.to_dict() == {"small": "a/b:int8", "7": "9"}
    assert config.drafter_ways.small == 2 and config.prices.small == 0.5
    assert config.strategies.drafters.drafter == "ngram"


def test_a_group_that_is_not_open_still_refuses_new_names() -> None:
    place = f"--config={ROOT / 'configs' / 'translate.py'}"
    with pytest.raises(UserError, match="config has no field 'mesh.more'"):
        parse(["x", place, "--config.mesh.more=2"])


def test_a_folder_that_can_be_used_is_not_made_and_keeps_what_it_holds(tmp_path) -> None:
    check_folder("--workdir", tmp_path / "new" / "deeper")
    assert not list(tmp_path.iterdir())
    (tmp_path / "results.json").write_text("kept")
    check_folder("--workdir", tmp_path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["kept"]


@pytest.mark.slow
@pytest.mark.parametrize("file", ("empty.py", "results.py"))
def test_a_process_of_its_own_ends_as_the_table_says(file: str, tmp_path) -> None:
    """One refusal of a config, and one of a disk without room, with exit code 2."""
    (tmp_path / "empty.py").write_text("")
    place = tmp_path / file if file == "empty.py" else TRANSLATE
    # Python would leave what it compiled of the config beside it.
    line = [sys.executable, "-B", "-m", "specjax.main"]
    line += [f"--config={place}", f"--workdir={tmp_path}"]

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, preexec_fn=no_room)
    words = ("empty.py", "get_config") if file == "empty.py" else ("--workdir", "too large")
    run_refused(done.returncode, done.stderr, *words)
    assert [each.name for each in tmp_path.iterdir()] == ["empty.py"]


def choose(only: str) -> list[str]:
    return list(load_strategies(decode_config(strategies=STRATEGIES, only=only)))


def test_only_keeps_the_baseline_and_what_samples_alike() -> None:
    assert choose("") == [BASELINE, "chance", "long", "sampled", "short", "either"]
    assert choose("long") == choose(" long ,autoregressive") == [BASELINE, "long"]
    assert choose("chance") == [BASELINE, "chance", "sampled"]
    assert choose(BASELINE) == [BASELINE]


def test_only_keeps_the_arms_of_what_chooses() -> None:
    assert choose("either") == [BASELINE, "long", "short", "either"]


def test_only_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="config.only has 'lang'; .* chance, either, long"):
        choose("short,lang")


@pytest.mark.slow
def test_a_dry_run_shows_only_what_was_chosen(capsys) -> None:
    done = command("--config.only=speculative_3", "--dry_run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("strategies:\n")[1].splitlines() == [
        "  autoregressive: drafter=none; greedy",
        "  speculative_3: drafter=neural, length=3, model=drafter; greedy",
    ]


def test_a_base_is_searched_and_swept_in_what_was_chosen() -> None:
    config = read_config(f"{ROOT / 'configs' / 'tune.py'}:{TRANSLATE}")
    config.base.update(target="t", drafter="d", only="lenient")
    assert set(base_config(config).strategies) == {"autoregressive", "lenient"}
    assert make_space(config).strategy == "lenient"
    config.strategy = "speculative_3"
    with pytest.raises(UserError, match="config.strategy is 'speculative_3'"):
        make_space(config)


def test_the_default_of_every_experiment_fits_its_own_schema() -> None:
    for name in SCHEMAS:
        made = make_config(name)
        assert made.experiment == name
        check_config(made)
        made.nonsense = 1
        with pytest.raises(UserError, match="config.nonsense is no field"):
            check_config(made)


def test_what_fits_to_the_byte_is_accepted(monkeypatch) -> None:
    monkeypatch.setattr(memory, "device_bytes", lambda: 2**30)
    memory.check_bytes({"weights": 2**29, "caches": 2**29}, "config.batch_size 1")
    with pytest.raises(UserError, match="config.batch_size 2 do not fit: .* 1.0 GiB .*which has 1"):
        memory.check_bytes({"weights": 2**29, "caches": 2**29 + 1}, "config.batch_size 2")


def test_a_machine_has_memory() -> None:
    assert 2**28 < memory.device_bytes() < 2**50


def test_a_table_may_not_be_called_as_a_model_is() -> None:
    config = ConfigDict({"a": {"drafter": "bigram", "length": 2}})
    strategies = load_strategies(decode_config(strategies=config))
    check_models(strategies, ("target", "drafter"))
    with pytest.raises(UserError, match="strategies.a reads a table called 'ngram'"):
        check_models(strategies, ("target", "ngram"))


def test_settings_of_generation_may_be_spelled_on_the_command_line() -> None:
    given = ("num_beams=1", "min_length=None", "stop_strings=['a', 'b c']", "bad_words_ids=[[3]]")
    flags = [f"--config.generation.{text}" for text in given]
    config = parse(["main", f"--config={TRANSLATE}", *flags]).config
    arguments = generation_arguments(config)
    assert arguments["generation"] == {
        "num_beams": 1, "min_length": None, "stop_strings": ["a", "b c"], "bad_words_ids": [[3]],
    }  # fmt: skip
    assert arguments["ignore_generation_config"] is False
    check_config(config)
    swept = parse(["main", "--config=configs/sweep.py", "--config.base.generation.num_beams=1"])
    assert swept.config.base.generation.num_beams == 1
    # A config without models has no such group.
    with pytest.raises(UserError, match="config has no field 'generation'"):
        parse(["main", "--config=configs/tokenizer.py", *flags])


def test_a_strategy_may_be_spelled_on_the_command_line() -> None:
    added = (
        "strategies.mine.drafter=neural",
        "strategies.mine.length=4",
        "strategies.mine.temperature=1",
        "strategies.speculative_3.confidence=0.4",
        "strategies.wide.drafter=cascade",
        "strategies.wide.drafters=('drafter', 'max_gram')",
        "strategies.wide.matrix=((2, 2), (0, 1))",
    )
    argv = ["specjax", "--config=configs/translate.py", *(f"--config.{field}" for field in added)]
    config = parse(argv).config
    made = load_strategies(config)
    assert made["mine"] == speculative(4, temperature=1.0)
    assert made["speculative_3"].numbers == (("confidence", 0.4),)
    assert made["wide"].drafter.matrix == ((2, 2), (0, 1))
    assert {*config.strategies} - {*parse(argv[:2]).config.strategies} == {"mine", "wide"}
