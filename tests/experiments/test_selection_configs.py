"""Configs of assistant selection: they build, are planned at full size, and name their arms."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import pytest
from ml_collections import ConfigDict

from specjax.decoding.strategy import autoregressive
from specjax.experiments.config.fields import check_fields, model_names
from specjax.experiments.decode.strategies import load_strategies
from specjax.experiments.recipes.selection import choices, parse_arms, parse_choices
from specjax.experiments.selection import data as select_data
from specjax.experiments.selection.policy import fit_of, make_reward
from specjax.runtime.errors import UserError
from specjax.selection import policy
from specjax.selection.fit import Fit
from specjax.selection.reward import Reward

ROOT = Path(__file__).parents[2] / "configs" / "selection"
NAMES = sorted(file.stem for file in ROOT.glob("*.py"))
JOBS = ("curve", "policy")
HERE = ("choose", "data", "data_multi30k", "mixed", "multi30k", *JOBS)
PAPERS = [name for name in NAMES if name not in HERE]
DATA = {
    # words, queries in all, parameters of arms (None: the target's)
    "data_t5xxl": ("gsm8k", 9000, {"none": 11.135e9, "small": 60.5e6, "xsum": 60.5e6}),
    "data_xsum": ("test", 200, {"flan_base": 247.6e6, "flan_small": 76.96e6, "small": 60.5e6}),
    "data_specbench": ("", 8080, {"llama_68m": 68.0e6, "vicuna_160m": 162.4e6}),
    "data_llama2_13b": ("triviaqa", 5000, {"none": 13.016e9, "exit_8": 2.866e9}),
}


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def get_config(name: str, words: str = "") -> ConfigDict:
    return module(name).get_config(*filter(None, [words]))


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_gives_the_command(name):
    words = " ".join(module(name).__doc__.split())
    assert "python -m specjax.main" in words and f"configs/selection/{name}.py" in words
    if name in PAPERS:
        assert f"--config=configs/selection/{name}.py --dry_run" in words
        assert "Resources" in words and "Not run here" in words


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAPERS if name.startswith("data_")])
def test_offline_data_are_planned_at_full_size(name, capsys):
    words, count, sizes = DATA[name]
    config = get_config(name, words)
    select_data.plan(config)
    assert sum(task.examples for task in config.tasks.values()) == count
    arms = select_data.load_arms(config, select_data.describe_pair(config))
    for arm, size in sizes.items():
        assert arms[arm].parameters == pytest.approx(size, rel=0.02), arm
    assert "timed: 3 decodes" in capsys.readouterr().out or words != "test"


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("data") and n not in JOBS])
def test_a_decode_has_every_arm_alone_and_every_way_of_choosing(name, tmp_path):
    made = get_config(name).strategies
    arms = {name for name, spec in made.items() if spec.drafter not in ("selected", "switched")}
    names = tuple(sorted(arms - {"autoregressive"}))
    shape = policy.Policy(names, policy.ENCODER_MEAN, 4, hidden=2)
    policy.save(tmp_path / "policy", shape, shape.init(jax.random.key(0)))
    settings = f"policy={tmp_path / 'policy'},oracle={names[0]},temperature=0.9,length=5"
    config = get_config(name, f"none,drafter=;{settings}" if name == "choose" else settings)
    ways = {"policy_greedy", "policy_dynamic", "oracle", "random", "online"}
    ways |= {"switched"} & set(made)
    assert set(config.strategies) == {"autoregressive", *names, *ways}
    if name in PAPERS:
        check_fields(config)
        assert set(model_names(config)) - {"target"} <= arms
    strategies = load_strategies(config)
    for way in ways:
        assert strategies[way].drafter.names == names
        assert strategies[way].settings == autoregressive(temperature=0.9).settings
    assert all(strategies[n].drafter.spec.width == (0 if n == "none" else 5) for n in names)


def test_the_arms_of_offline_data_are_those_of_the_decode():
    pairs = (
        ("data_multi30k", "multi30k"), ("data", "choose"), ("data_llama2_13b", "llama2_13b"),
        ("data_specbench", "specbench"),
    )  # fmt: skip
    for first, second in (*pairs, ("data_t5xxl", "t5xxl")):
        words = "gsm8k" if first == "data_t5xxl" else ""
        offline, decode = get_config(first, words).strategies, get_config(second).strategies
        assert set(offline) <= set(decode), first
        for arm in offline:
            alike = ("drafter", "model", "exit", "length")
            assert all(offline[arm].get(f) == decode[arm].get(f) for f in alike), (first, arm)


def test_test_queries_are_timed_and_training_queries_are_not():
    train, test = get_config("data_multi30k"), get_config("data_multi30k", "test_sampled")
    assert train.repeats == 0 and test.repeats == 3
    assert sum(task.examples for task in train.tasks.values()) <= 5000
    assert {task.data.split for task in test.tasks.values()} == {"test"}
    assert {spec.temperature for spec in test.strategies.values()} == {1.0}
    assert set(train.strategies) == set(test.strategies)
    with pytest.raises(UserError, match="the split is 'all'; it must be one of train, test"):
        get_config("data_multi30k", "all")


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_the_settings_of_the_paper(name):
    config = get_config(name)
    assert (make_reward(config), fit_of(config), config.hidden) == (Reward(), Fit(), 512)


def test_arms_and_settings_are_spelled_in_flags():
    drafters, arms = parse_arms("none,small=a/b,exit=2", temperature=0.5, length=3)
    assert drafters == {"small": "a/b"}
    assert arms == {
        "none": {"drafter": "none", "temperature": 0.5},
        "small": {"drafter": "neural", "model": "small", "length": 3, "temperature": 0.5},
        "exit_2": {"drafter": "early_exit", "exit": 2, "length": 3, "temperature": 0.5},
    }
    assert "policy_greedy" not in choices(arms) and "oracle" not in choices(arms)
    _, strategies, more = parse_choices("task=xsum,length=2", "none,a=x", "task", task="gsm8k")
    assert more == {"task": "xsum"} and strategies["a"]["length"] == 2
    for words in ("drafter", "exit=two", "=x"):
        with pytest.raises(UserError, match="each must be name=directory"):
            parse_arms(words)
    for words in ("color=red", "length=long", "task=xsum"):
        with pytest.raises(UserError, match="settings are .*; they are policy, oracle"):
            parse_choices(words, "none,a=x")
