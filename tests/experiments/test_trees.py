"""Trees in a decode experiment: acceptance is measured by rank, and shapes follow from it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from tiny import write_pair

from specjax.contracts.registry import DRAFTERS
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.strategies import load_strategies
from specjax.experiments.recipes.trees import DEEPEST, HEADS, KINDS, SIZES, repeat_last_level
from specjax.runtime.errors import UserError
from specjax.theory.trees import best, expected_tokens

FILE = Path(__file__).parents[2] / "configs" / "trees.py"
TABLE = [[0.5, 0.2, 0.1], [0.6, 0.1, 0.0]]


def get_config(words: str) -> ConfigDict:
    spec = importlib.util.spec_from_file_location("trees", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(words)


def write_tree(file: Path, entry: dict) -> str:
    file.write_text(json.dumps({"strategies": {"wide": entry}}), "utf-8")
    return str(file)


@pytest.mark.parametrize("heat", ["0", "0.7"])
def test_the_default_shapes_have_their_nodes(heat):
    strategies = load_strategies(get_config(heat))
    for nodes in SIZES:
        drafter = strategies[f"tree_{nodes}"].drafter
        assert drafter.spec.width == nodes and drafter.shape.levels <= DEEPEST
    assert strategies["likeliest_16"].drafter.spec.width == 16
    assert strategies["chain_5"].temperature == float(heat)
    assert ("sampled" in strategies) == ("tree_16_traversal" in strategies) == (heat != "0")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heat", ["0", "1"])
def test_chains_and_trees_are_of_one_kind(kind, heat):
    strategies = load_strategies(get_config(f"{heat},{kind}"))
    names = {DRAFTERS.get_name(type(s.drafter)) for s in strategies.values()} - {"none"}
    assert names == {KINDS[kind].drafter}
    assert list(load_strategies(get_config(f"{heat},{kind},wide")))[-1] == "wide"
    if kind in ("medusa", "hydra"):
        shapes = [s.drafter.shape for name, s in strategies.items() if name.startswith("tree")]
        assert max(shape.levels for shape in shapes) == HEADS
        assert strategies["chain_4"].drafter.length == HEADS


def test_shapes_follow_from_a_run(tmp_path):
    file = write_tree(tmp_path / "results.json", {"acceptance_by_rank": {"rate": TABLE}})
    strategies = load_strategies(get_config(f"0,{file}"))
    table = repeat_last_level(TABLE)
    assert table.shape == (DEEPEST, 3) and table[-1].tolist() == TABLE[-1]
    for nodes in (4, 32):
        parents = strategies[f"tree_{nodes}"].drafter.parents
        most = expected_tokens(table, best(table, nodes))
        assert expected_tokens(table, parents) == pytest.approx(most)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({}, "has no acceptance by rank of 'wide'; configs/trees.py:0,wide measures it"),
        ({"acceptance_by_rank": None}, "has no acceptance by rank"),
        ({"acceptance_by_rank": {"rate": [[0.9, 0.9]]}}, "has no acceptance by rank"),
        ({"acceptance_by_rank": {"rate": "much"}}, "has no acceptance by rank"),
        ({"acceptance_by_rank": {"rate": [[0.0, 0.0]]}}, "no node of 'wide' was accepted in "),
    ],
)
def test_a_run_without_it_is_refused(entry, said, tmp_path):
    with pytest.raises(UserError, match=said):
        get_config(f"0,{write_tree(tmp_path / 'results.json', entry)}")


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="'nowhere.json' is no file; it must be 'wide', the"):
        get_config("0,nowhere.json")


@pytest.mark.slow
def test_a_run_of_the_wide_tree_measures_what_the_next_one_takes(tmp_path):
    write_pair(tmp_path)
    config = get_config("0,wide")
    config.update(target=str(tmp_path / "target"), drafter=str(tmp_path / "drafter"))
    config.update(source_file=str(tmp_path / "source.txt"), prefix="")
    config.update(examples=3, max_new_tokens=6, repeats=1, bucket=64)
    config.strategies.few = {"drafter": "neural", "widths": (3, 2), "nodes": 4}
    entries = decode.run(config, tmp_path / "run")["strategies"]
    wide, few = entries["wide"], entries["few"]
    assert wide["identical_to_target"] == few["identical_to_target"] == 1.0
    assert wide["acceptance_by_rank"]["tried"][0][0] > 0
    assert few["acceptance_by_rank"] is None  # of every round another tree
    assert entries["autoregressive"]["acceptance_by_rank"] is None
    rounds = wide["calls"]["target"]
    assert rounds < wide["calls"]["drafter"] <= 4 * rounds  # fewer at the end of a text
    assert wide["time"]["drafter"] > 0
    assert entries["wide"]["speedup_predicted"] == wide["predicted"]["with_v"] > 0
    assert few["predicted"]["with_v"] > 0 and few["predicted"]["theorem_3_8"] is None
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["strategies"]["wide"]["acceptance_by_rank"] == wide["acceptance_by_rank"]
