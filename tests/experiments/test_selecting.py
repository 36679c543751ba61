"""Decode experiments that choose among strategies: refusals, runs, what they leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from sessions import plan_of_models
from tiny import write_pair

from specjax.data.batching import make_batch
from specjax.experiments.config.choosing import selection_trees
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.arm_selection import OnlineBandit, make_arm_selector, read_arms
from specjax.experiments.decode.planning import show_plan
from specjax.experiments.decode.strategies import load_strategies
from specjax.experiments.sweep.grid import keep_strategies
from specjax.models.t5 import T5, T5Config
from specjax.runtime.errors import UserError
from specjax.selection import policy, switching
from specjax.selection.arms import ARM
from specjax.selection.choosing import ByChance, ByPolicy, ByRule, Given

WIDTH = 24  # of the target of tiny.write_pair
ARMS = ("autoregressive", "copy", "neural")
PLAIN = {
    "autoregressive": {"drafter": "none"},
    "neural": {"drafter": "neural", "length": 3},
    "copy": {"drafter": "prompt_lookup", "length": 2, "reader": "fitted"},
    "hot": {"drafter": "neural", "length": 2, "temperature": 1.0},
    "lossy": {"drafter": "neural", "length": 2, "rule": "lenient", "lenience": 0.5},
}
COSTS = (0.0, 0.0, 0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with policies of random weights, for this and for another target."""
    folder = tmp_path_factory.mktemp("selecting")
    for name, width in (("policy", WIDTH), ("narrow", 8)):
        shape = policy.Policy(ARMS, policy.ENCODER_MEAN, width, hidden=8)
        policy.save(folder / name, shape, shape.init(jax.random.key(0)))
    return folder


def load_strategy(folder: Path, spec: dict):
    """The strategy that a spec spells; its policy is one of the folder."""
    spec = {f: str(folder / v) if f == "policy" else v for f, v in spec.items()}
    config = ConfigDict({"strategies": {**PLAIN, "chosen": spec}})
    return load_strategies(config)["chosen"]


def test_every_mode_has_its_chooser(folder):
    arms = ("neural", "autoregressive")
    for spec, kind in (
        ({"policy": "policy"}, ByPolicy),
        ({"policy": "policy", "mode": "dynamic"}, ByPolicy),
        ({"arms": arms, "mode": "random"}, ByChance),
        ({"arms": arms, "mode": "fixed", "choices": "neural"}, Given),
        ({"arms": arms, "mode": "online", "bandit": "thompson", "spread": 0.5}, ByRule),
    ):
        made = load_strategy(folder, {"drafter": "selected", **spec})
        assert isinstance(made.drafter.chooser, kind)
        assert made.drafter.names == spec.get("arms", ARMS)
        assert made.target_widths == ((0, 1, 2, 3) if "policy" in spec else (0, 3))
        assert made.lossless and made.greedy


def test_switched_has_the_numbers_of_its_fields(folder):
    made = load_strategy(
        folder,
        {"drafter": "switched", "policy": "policy", "costs": COSTS, "bandit": "thompson",
         "lengths": (2,), "discount": 0.5},
    )  # fmt: skip
    assert made.drafter.thompson and made.drafter.logits is policy.logits
    assert made.drafter.choices == ((0, 0), (1, 2), (2, 2))
    numbers = made.options().numbers
    assert numbers["costs"].tolist() == pytest.approx(COSTS)
    assert (numbers["discount"], numbers["trust"]) == (0.5, switching.DEFAULTS["trust"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "arms is (); without a policy it must name at least two strategies"),
        ({"arms": ARMS}, "policy is missing; mode 'greedy' needs it"),
        ({"arms": ("neural", "copy"), "policy": "policy"},
         "arms is neural, copy; the policy chooses among autoregressive, copy, neural"),
        ({"arms": ("neural", "no")}, "arm 'no' is not a strategy of the config; allowed are"),
        ({"arms": ("neural", "hot"), "mode": "random"}, "samples with temperature"),
        ({"arms": ("neural", "lossy"), "mode": "random"}, "arm 'lossy' is not lossless"),
        ({"policy": "policy", "mode": "best"}, "mode is 'best'; it must be one of greedy"),
        ({"policy": "nowhere"}, "is not a folder with policy.json"),
        ({"arms": ARMS, "mode": "fixed"}, "choices is ''; mode 'fixed' needs it"),
        ({"policy": "policy", "choices": "copy"}, "choices is 'copy'; mode 'fixed' needs it"),
        ({"policy": "policy", "spread": 1.0}, "spread does not apply to mode 'greedy'"),
        ({"policy": "policy", "length": 3}, "length does not apply to drafter 'selected'"),
        ({"drafter": "switched", "arms": ARMS}, "costs is missing"),
        ({"drafter": "switched", "arms": ARMS, "costs": (0.1,)}, "one number for each arm"),
        ({"drafter": "switched", "arms": ARMS, "costs": COSTS, "prior": 2.0}, "without policy"),
        ({"drafter": "switched", "arms": ARMS, "costs": (0, -1, 0)}, "costs is (0, -1, 0)"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_in_one_sentence(folder, spec, message):
    with pytest.raises(UserError) as error:
        load_strategy(folder, {"drafter": "selected", **spec})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def small(width: int = WIDTH) -> T5:
    shape = {"d_kv": 4, "d_ff": 16, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
    return T5(T5Config(vocab_size=11, d_model=width, **shape))


def test_a_sweep_of_a_choice_keeps_its_arms(folder):
    chosen = {"drafter": "selected", "policy": str(folder / "policy")}
    specs = ConfigDict({**PLAIN, "chosen": chosen})
    assert set(keep_strategies(specs, ["chosen"])) == {"chosen", *ARMS}


def test_a_policy_for_another_target_is_refused(folder):
    strategies = {"chosen": load_strategy(folder, {"drafter": "selected", "policy": "narrow"})}
    with pytest.raises(UserError, match=r"strategies\.chosen: the target gives embeddings .* 24;"):
        selection_trees(strategies, small())


def test_given_arms_are_one_or_those_of_a_file(folder):
    file = folder / "choices.json"
    file.write_text(json.dumps(["copy", "neural", "copy"]), "utf-8")
    assert read_arms("choices", "neural", ARMS, 3).tolist() == [2, 2, 2]
    assert read_arms("choices", str(file), ARMS, 2).tolist() == [1, 2]
    for choices, message in (("no", "it must be an arm"), (str(file), "each of the 4 examples")):
        with pytest.raises(UserError, match=message):
            read_arms("choices", choices, ARMS, 4)
    made = load_strategy(
        folder, {"drafter": "selected", "arms": ARMS, "mode": "fixed", "choices": "x"}
    )
    found = make_arm_selector("chosen", SimpleNamespace(choices=str(file)), made, {}, 3)
    batch = make_batch([[3]], 2, first=2, pad=0, bucket=1, limit=1)
    arms = found.run_arguments(0, batch)["rows"]["arms"]
    assert arms.tolist() == [1, 1]  # the last row is padding


def test_an_online_bandit_comes_to_choose_the_faster_arm(folder):
    spec = {"drafter": "selected", "arms": ("neural", "autoregressive"), "mode": "online"}
    made = load_strategy(folder, {**spec, "context": 4, "spread": 0.5})
    chooser, trees = made.drafter.chooser, selection_trees({"chosen": made}, small())
    found = make_arm_selector("chosen", None, made, trees, 40)
    assert isinstance(found, OnlineBandit)
    keys = jax.random.split(jax.random.key(0), 1)
    batch = make_batch([[3]], 1, first=0, pad=0, bucket=1, limit=10)
    arms = []
    for embedding in np.random.default_rng(0).normal(size=(40, 1, WIDTH)).astype(np.float32):
        tree = found.run_arguments(0, batch)["trees"]
        arm = chooser.choose(tree, embedding, None, keys, 2)
        seconds = 1.0 if int(arm[0]) == 0 else 0.5
        generation = SimpleNamespace(
            begin=np.array([1]), length=np.array([11]),
            memory=SimpleNamespace(embedding=jnp.asarray(embedding)),
            trace=SimpleNamespace(column={ARM: np.asarray(arm)[:, None]}.__getitem__),
        )  # fmt: skip
        found.learn(0, batch, found.lesson(generation, seconds))
        arms.append(int(arm[0]))
    assert arms[0] == 0 and arms[20:] == [1] * 20
    anew = found.run_arguments(1, batch)["trees"]["bandit:chosen"]["state"]
    assert not np.any(anew.total)


def experiment(folder: Path, **changes) -> ConfigDict:
    chosen = {
        "online": {"drafter": "selected", "arms": ARMS, "mode": "online"},
        "policy": {"drafter": "selected", "policy": str(folder / "policy")},
        "switched": {"drafter": "switched", "arms": ARMS, "costs": COSTS},
    }
    plain = {name: PLAIN[name] for name in ARMS}
    return decode_config(
        target=str(folder / "target"),
        drafter=str(folder / "drafter"),
        source_file=str(folder / "source.txt"),
        reference_file=str(folder / "reference.txt"),
        examples=3,
        max_new_tokens=6,
        repeats=1,
        bucket=64,
        strategies={**plain, **chosen},
        **changes,
    )


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2])
def test_an_experiment_says_which_arm_each_text_took(folder, tmp_path, batch_size):
    write_pair(folder)
    entries = decode.run(experiment(folder, batch_size=batch_size), tmp_path)["strategies"]
    lines = [json.loads(line) for line in (tmp_path / "outputs.jsonl").open(encoding="utf-8")]
    for name, entry in entries.items():
        assert entry["identical_to_target"] == 1.0
        own = [line for line in lines if line["strategy"] == name]
        if name in ARMS:
            assert entry["arms"] is None and "arms" not in own[0]
            continue
        assert entry["speedup_predicted"] is None
        assert sum(arm["texts"] for arm in entry["arms"].values()) == 3
        assert sum(arm["tokens"] for arm in entry["arms"].values()) == entry["tokens"]
        assert list(entry["arms"]) == list(ARMS)
        for arm, figures in entry["arms"].items():
            assert figures["rounds"] == sum(line["arms"].get(arm, 0) for line in own)
        if name != "switched":
            assert all(len(line["arms"]) == 1 for line in own)
    drafted = entries["policy"]["arms"]["autoregressive"]["drafted"]
    assert drafted == 0


@pytest.mark.slow
def test_an_experiment_that_chooses_is_planned(folder, capsys):
    config = experiment(folder)
    fixed = {"drafter": "selected", "arms": ARMS, "mode": "fixed", "choices": "copy"}
    config.strategies.fixed = ConfigDict(fixed)
    show_plan(plan_of_models(config, target=small(), drafter=small(12)))
    assert "switched: drafter=switched, arms=" in capsys.readouterr().out
