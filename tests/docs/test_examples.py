"""The Python of the README and of the tutorials runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import specjax
from specjax.contracts.registry import DRAFTERS, RULES, TASKS
from specjax.experiments.config.file import read_config
from specjax.experiments.config.validation import check_config
from specjax.experiments.train import data as train_data
from specjax.experiments.train import job as train
from specjax.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


def code(page: str, place: int = 0) -> str:
    """The first Python of a page, or another one."""
    text = (ROOT / page).read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[place]


@pytest.fixture
def tiny_pair(monkeypatch, pair):
    """What is loaded from the hub is the tiny pair: the target, then the drafter."""
    folders = iter((pair / "target", pair / "drafter"))
    load = specjax.load
    monkeypatch.setattr(specjax, "load", lambda name: load(next(folders)), raising=False)


@pytest.fixture
def own_names(monkeypatch):
    """Takes back what a test registers."""
    for registry in (DRAFTERS, RULES, TASKS):
        len(registry)  # all that is there, first
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


@pytest.mark.parametrize(
    "page",
    ["README.md", pytest.param("docs/tutorials/own_pair.md", marks=pytest.mark.slow)],
)
def test_the_example_prints_text(page, tiny_pair, capsys):
    exec(compile(code(page), page, "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_readme_has_five_lines():
    lines = [line for line in code("README.md").splitlines() if line]
    assert len(lines) == 5


def make_config(page: str, folder: Path):
    """The config that a tutorial writes, read from a file of its own."""
    file = folder / "mine.py"
    file.write_text(code(page), "utf-8")
    config = read_config(str(file))
    check_config(config)
    return config


def test_the_drafter_of_the_tutorial_is_the_one_that_the_contract_tests_decode_with(
    own_names, tmp_path
):
    config = make_config("docs/tutorials/own_drafter.md", tmp_path)
    assert specjax.strategy(**config.strategies.echo.to_dict()).drafter.spec.width == 2
    newcomer = (ROOT / "tests" / "support" / "last_token.py").read_text("utf-8")
    own = re.search(r"@DRAFTERS.*?(?=\n\n\n)", code("docs/tutorials/own_drafter.md"), re.DOTALL)[0]
    assert own.replace("echo", "last_token").replace("Echo", "LastToken") in newcomer


@pytest.mark.slow
def test_the_rule_of_the_tutorial_accepts_as_it_says(own_names, tmp_path, pair):
    config = make_config("docs/tutorials/own_rule.md", tmp_path)
    given = config.strategies.near_half.to_dict()
    near = specjax.strategy(**given)
    assert type(near.rule).__name__ == "Near" and not near.lossless
    with pytest.raises(UserError, match="rule is 'near'; temperature must be 0"):
        specjax.strategy(**given | {"temperature": 1.0})
    target, drafter = specjax.load(pair / "target"), specjax.load(pair / "drafter")
    prompts = [[5, 6, 7], [8, 9]]

    def decode(strategy):
        models = {"drafter": drafter}
        return specjax.Generator(target, models, strategy, max_new_tokens=8)(prompts)

    exact = decode(specjax.strategy(**given | {"share": 1.0}))
    assert exact.tokens == decode(specjax.autoregressive()).tokens
    assert exact.statistics.acceptance_rate < 1
    assert decode(specjax.strategy(**given | {"share": 0.0})).statistics.acceptance_rate == 1


def test_the_pair_of_the_tutorial_is_trained_on_the_text_that_it_writes(tmp_path, monkeypatch):
    page = "docs/tutorials/train_pair.md"
    monkeypatch.chdir(tmp_path)
    made: dict = {}
    exec(compile(code(page), page, "exec"), made)
    assert made["say"](100_978) == "one hundred thousand nine hundred seventy eight"
    file = tmp_path / "my_pair.py"
    file.write_text(code(page, 1), "utf-8")
    for place, model in ((f"{file}", "shape"), (f"{file}:drafter", "checkpoint")):
        config = read_config(place)
        check_config(config)
        train.check_train_fields(config)
        assert config.model[model] and len(train_data.load_texts(config).train) == 6000


def test_the_task_of_the_tutorial_reads_its_rows(own_names, tmp_path):
    config = make_config("docs/tutorials/own_task.md", tmp_path)
    task = TASKS[config.task].cls()
    assert task.prompt(task.example) == "Q: What is the capital of France?\nA:"
    assert task.reference(task.example) == "Paris"
