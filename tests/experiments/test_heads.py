"""A decode experiment with parallel heads from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from ml_collections import ConfigDict
from parallel_heads import random_heads
from sessions import plan_of_models
from tiny import write_pair

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.planning import show_plan
from specjax.hf import heads
from specjax.models.t5 import T5, T5Config
from specjax.runtime.errors import UserError

WIDTH = 12  # of the drafter of tiny.write_pair


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> ConfigDict:
    """A config whose models are not there yet."""
    folder = tmp_path_factory.mktemp("pair")
    heads.save(random_heads(3, WIDTH, seed=0), folder / "heads.safetensors")
    return decode_config(
        target=str(folder / "target"),
        drafter=str(folder / "drafter"),
        heads=str(folder / "heads.safetensors"),
        source_file=str(folder / "source.txt"),
        reference_file=str(folder / "reference.txt"),
        examples=2,
        max_new_tokens=6,
        repeats=1,
        bucket=64,
        strategies={"parallel": {"drafter": "medusa", "length": 3}},
    )


def plan(config: ConfigDict) -> None:
    shape = {"d_kv": 4, "d_ff": 16, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
    model = T5(T5Config(vocab_size=11, d_model=WIDTH, **shape))
    show_plan(plan_of_models(config, target=model, drafter=model))


@pytest.mark.slow
def test_an_experiment_decodes_with_the_heads_of_its_config(config, tmp_path):
    write_pair(Path(config.target).parent)
    entry = decode.run(config, tmp_path)["strategies"]["parallel"]
    assert entry["lossless"] and entry["identical_to_target"] == 1.0
    assert entry["calls"]["drafter"] == entry["calls"]["target"] > 0


def test_an_experiment_with_heads_is_planned_from_their_shapes(config, capsys):
    plan(config)
    assert "parallel: drafter=medusa, length=3; greedy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("heads", "", "config.heads is empty"),
        ("heads", "nowhere", "nowhere' is not a readable"),
        ("length", 4, "length is 4; 'heads' holds 3 heads"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(config, field, value, named):
    changed = config.copy_and_resolve_references()
    (changed.strategies.parallel if field == "length" else changed)[field] = value
    with pytest.raises(UserError, match=named):
        plan(changed)
