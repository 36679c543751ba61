"""Training on eight simulated devices ends where training on one does."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.sharding import PartitionSpec

from specjax.models.t5 import T5, T5Config
from specjax.parallel.sharding import full_spec

SCRIPT = Path(__file__).with_name("eight_trainers.py")

TINY = T5(
    T5Config(
        vocab_size=64, d_model=24, d_kv=4, d_ff=48, num_heads=8, num_layers=1, num_decoder_layers=1
    )
)
Cases = dict[str, list[dict[str, Any]]]


def case(data: int, model: int, **more: Any) -> dict[str, Any]:
    return {"data": data, "model": model, **more}


CASES: Cases = {
    "8x1": [case(8, 1)],
    "4x2": [case(4, 2)],
    "2x4": [case(2, 4)],
    "1x8": [case(1, 8)],
    "8x1, fully sharded": [case(8, 1, sharded=True)],
    "2x4, fully sharded": [case(2, 4, sharded=True)],
    "2x4, fully sharded, cut in four": [case(2, 4, sharded=True, accumulate=4)],
    "teacher": [case(4, 2, sharded=True, objective="distillation")],
    "heads": [case(4, 2, sharded=True, objective="blockwise")],
    "eagle": [case(4, 2, objective="eagle")],
    "eagle, fully sharded": [case(2, 4, sharded=True, objective="eagle")],
    "dflash": [case(2, 4, objective="dflash")],
    "dflash, fully sharded": [case(4, 2, sharded=True, accumulate=2, objective="dflash")],
    "medusa": [case(2, 4, objective="medusa")],
    "medusa, fully sharded": [case(4, 2, sharded=True, objective="medusa")],
    "hydra, fully sharded": [case(2, 4, sharded=True, objective="hydra")],
    "another mesh": [case(2, 4), case(4, 2)],
    "whole again": [case(8, 1, sharded=True), case(2, 4)],
    "fully sharded later": [case(1, 1), case(2, 4, sharded=True)],
}


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What the script says of the cases whose tests run: a part of the tests needs a few."""
    ours = [item for item in request.session.items if item.path == request.path]
    named = {item.callspec.params["name"] for item in ours if hasattr(item, "callspec")}
    cases = {name: case for name, case in CASES.items() if name in named}
    eight = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    flags = {"XLA_FLAGS": eight, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(cases)],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert not done.returncode, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found.keys() == cases.keys()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_mesh_trains_the_same_parameters(found: dict[str, dict[str, Any]], name: str) -> None:
    result = found[name]
    # Sums in another order; Adam makes steps of the rate (1e-2) of the smallest difference in a
    # gradient near zero, so a few parameters may be off by a part of it.
    assert result["distance"] < 2e-3
    np.testing.assert_allclose(result["losses"], result["expected"], rtol=1e-4)
    assert math.isclose(result["losses"][0], result["expected"][0], rel_tol=1e-6)


def ways(last: dict[str, Any]) -> int:
    """Over how many devices a weight is split."""
    return last["model"] * (last["data"] if last.get("sharded") else 1)


HEADS = {"medusa", "hydra"}
ON_TARGET = {"eagle", "dflash", *HEADS}
SPLIT = [name for name, case in CASES.items() if case[-1].get("objective") not in ON_TARGET]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_device_holds_its_part_of_a_weight(found: dict[str, dict[str, Any]], name: str) -> None:
    last = CASES[name][-1]
    # Heads alone are whole on every device unless they are fully sharded: they are small.
    whole = last.get("objective") in HEADS and not last.get("sharded")
    assert found[name]["share"] == (1.0 if whole else 1 / ways(last))


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLIT)
def test_a_device_holds_its_part_of_the_state(found: dict[str, dict[str, Any]], name: str) -> None:
    """Parameters and both moments of Adam, of models that every axis of the mesh divides."""
    result = found[name]
    # Norms, and T5's tables of position biases under `model` alone, are whole.
    assert result["held"] < 1.25 * result["held alone"] / ways(CASES[name][-1])


def test_the_largest_axis_that_is_whole_is_split_over_the_rows_devices() -> None:
    def spec(where: tuple[str, ...], *shape: int, data: int = 4, model: int = 2) -> PartitionSpec:
        return full_spec(where, shape, TINY, data, model)

    assert spec(("q", "kernel"), 24, 32) == PartitionSpec("data", "model")
    assert spec(("o", "kernel"), 32, 24) == PartitionSpec("model", "data")
    assert spec(("q", "kernel"), 24, 32, model=3) == PartitionSpec(None, "data"), "no heads of 3"
    assert spec(("q", "kernel"), 24, 32, data=5) == PartitionSpec(None, "model")
    assert spec(("table",), 32, 8) == PartitionSpec("data", None)
    assert spec(("norm", "scale"), 24) == PartitionSpec(None), "vectors are whole"
    assert spec(("head_1", "up", "kernel"), 24, 7) == PartitionSpec("data", None)
