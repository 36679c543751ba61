"""Small models compiled for TPU topologies: nothing is copied that need not be."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
from pathlib import Path

import jax
import pytest
from command import command, run_refused
from sessions import plan_of_models

from specjax.accelerators.program import Audit, Memory, audit_program, measure_memory
from specjax.accelerators.topology import Topology, describe_topology
from specjax.decoding.strategy import autoregressive, speculative
from specjax.experiments.config.defaults import decode_config, train_config
from specjax.experiments.decode.on_topology import compile_strategy, table
from specjax.experiments.decode.planning import show_plan
from specjax.experiments.decode.programs import lowered_decode, lowered_filling
from specjax.experiments.train.job import make_setup
from specjax.experiments.train.on_topology import lowered_step
from specjax.hf.families.family import get_family
from specjax.models.base import LanguageModel
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.runtime.errors import UserError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason="libtpu is not installed: pip install 'jax[tpu]' compiles for TPUs without one",
    ),
]

HEADS, WAYS, PROMPT, NEW_TOKENS, LENGTH, WINDOW = 8, 4, 48, 32, 3, 21
LONG, SLOTS = 8192, 24
LAYERS = {"target": 3, "drafter": 1}
STRATEGIES = {"autoregressive": autoregressive(), "speculative": speculative(LENGTH)}


def t5(layers: int) -> T5:
    return T5(
        T5Config(
            vocab_size=1024, d_model=256, d_kv=64, d_ff=512, num_heads=HEADS, num_layers=1,
            num_decoder_layers=layers, dtype="bfloat16",
        )
    )  # fmt: skip


def llama(layers: int, kv_heads: int = HEADS, windows: tuple[int, ...] = ()) -> Causal:
    return Causal(
        CausalConfig(
            family="llama", vocab_size=1024, d_model=256, d_ff=512, num_layers=layers,
            num_heads=HEADS, num_kv_heads=kv_heads, d_head=64, max_positions=256, rope=Rope(64),
            eos=(1,), dtype="bfloat16", windows=windows,
        )
    )  # fmt: skip


MODELS = {
    "t5": t5,
    "llama": llama,
    "grouped": lambda layers: llama(layers, WAYS),
    "mistral": lambda layers: llama(layers, windows=(WINDOW,) * layers),
}
SUMMED = {"t5": 3, "llama": 2, "grouped": 2, "mistral": 2}
"""All-reduces of a decoder layer: one behind each attention, one behind the feed-forward."""
LOOPS = {"autoregressive": 0, "speculative": 2}
"""In a round: drafting and catching up; none over tokens that are fed together."""
OTHERS = 3
"""Of the embedding, and of the largest logit and its place."""


@pytest.fixture(scope="module", params=["v5e:2x2", "v4:2x2x1"])
def topology(request) -> Topology:
    return describe_topology(request.param)


def decode(
    topology: Topology, kind: str, name: str, prompt: int = PROMPT
) -> tuple[set[int], Memory, Audit]:
    """Slots that caches of a decode may have, and memory and audit of its program."""
    models: dict[str, LanguageModel] = {k: MODELS[kind](n) for k, n in LAYERS.items()}
    config = decode_config(
        dtype="bfloat16", max_prompt_tokens=prompt, max_new_tokens=NEW_TOKENS,
        mesh={"data": 1, "model": WAYS}, strategies={"any": {"drafter": "none"}},
    )  # fmt: skip
    mesh = topology.mesh(config.mesh.to_dict())
    planned = dataclasses.replace(plan_of_models(config, **models), strategies=STRATEGIES)
    decoder, lowered = lowered_decode(planned, name, mesh)
    program = lowered.compile()
    slots = {prompt, decoder.buffer(prompt), WINDOW + decoder.ahead}
    return slots, measure_memory(program), audit_program(program.as_text())


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_decode_copies_no_weight_and_no_cache(topology: Topology, kind: str, name: str) -> None:
    slots, _, found = decode(topology, kind, name)
    weights = [copy.source for copy in found.copies if copy.source.startswith("params")]
    # T5's table of position biases (512 bytes) is looked up once for each text.
    assert {*weights} <= {source for source in weights if source.endswith("bias']['table']")}
    moved = [copy for copy in found.copies if copy.in_loop and len(copy.dims) == 4]
    assert not [copy for copy in moved if slots & {*copy.dims}]
    assert found.collectives == {"all-reduce": SUMMED[kind] * LAYERS["target"] + OTHERS}
    assert found.wide_products == 0
    assert found.loops == LOOPS[name]


@pytest.mark.parametrize("kind", ["t5", "llama", "mistral"])
def test_rounds_behind_a_long_prompt_copy_no_cache(topology: Topology, kind: str) -> None:
    """Nor does reading it take the scores of one head."""
    slots, memory, found = decode(topology, kind, "speculative", LONG)
    assert memory.temporaries < LONG * LONG
    moved = [copy for copy in found.copies if copy.in_loop and len(copy.dims) == 4]
    assert not [copy for copy in moved if slots & {*copy.dims}]


@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_programs_of_slots_take_the_place_of_their_state(topology: Topology, kind: str) -> None:
    """A plan has one line for each; a refill copies no cache of all slots."""
    models: dict[str, LanguageModel] = {k: MODELS[kind](n) for k, n in LAYERS.items()}
    config = decode_config(
        dtype="bfloat16", max_prompt_tokens=PROMPT, max_new_tokens=NEW_TOKENS, batching="filled",
        batch_size=SLOTS, mesh={"data": 1, "model": WAYS}, strategies={"any": {"drafter": "none"}},
    )  # fmt: skip
    planned = dataclasses.replace(plan_of_models(config, **models), strategies=STRATEGIES)
    mesh = topology.mesh(config.mesh.to_dict())
    entry = compile_strategy(planned, "speculative", mesh, show_plan(planned), topology)
    others = entry["programs"]
    for one in (entry, others["fill"]):
        assert one["memory"]["outputs"] - one["memory"]["aliased"] < 0.01 * one["memory"]["outputs"]
    assert others["take"]["memory"]["temporaries"] < 0.1 * entry["memory"]["outputs"]
    assert all(one["fits"] for one in (entry, *others.values()))
    lines = table({"speculative": entry | {"speedup": None}}).splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "speculative", "speculative: fill", "speculative: take"
    ]  # fmt: skip
    filling = lowered_filling(planned, "speculative", mesh)[1]["fill"].compile()
    found = audit_program(filling.as_text(), rounds=False)
    assert not [copy for copy in found.copies if len(copy.dims) == 4 and SLOTS in copy.dims]


@pytest.mark.parametrize("kind", ["t5", "llama"])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_training_step_takes_the_place_of_its_state(
    topology: Topology, kind: str, sharded: bool
) -> None:
    """What is donated is used, and gradients are summed over the rows, where each part lies."""
    config = train_config(
        model={"shape": shape_words(kind)}, mesh={"data": WAYS, "model": 1}, dtype="bfloat16",
        batch_size=8, max_prompt_tokens=PROMPT, max_output_tokens=PROMPT, fully_sharded=sharded,
    )  # fmt: skip
    lowered = lowered_step(config, make_setup, topology.mesh(config.mesh.to_dict()))
    state = lowered.args_info[0][0]
    held = sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state))
    held /= WAYS if sharded else 1
    program = lowered.compile()
    memory = measure_memory(program)
    assert memory.aliased >= held
    assert memory.arguments < 1.2 * held
    found = audit_program(program.as_text(), rounds=False).collectives
    assert "all-reduce" in found
    assert ("all-gather" in found) == ("reduce-scatter" in found) == sharded


def shape_words(kind: str) -> dict:
    """A model as `config.model.shape` spells it."""
    model = MODELS[kind](2)
    words, _ = get_family(model).config_to_hf(model.config)
    return {**words, "dropout_rate": 0.0} if kind == "t5" else words


def test_the_command_line_prints_a_table_and_writes_a_plan(tmp_path: Path) -> None:
    for name, layers in LAYERS.items():
        model = t5(layers)
        words, generation = get_family(model).config_to_hf(model.config)
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(words))
        (tmp_path / name / "generation_config.json").write_text(json.dumps(generation))
    done = command(
        "--config=configs/translate.py", "--dry_run", "--config.topology=v5e:2x2",
        f"--config.target={tmp_path}/target", f"--config.drafter={tmp_path}/drafter",
        "--config.mesh.model=4", "--config.dtype=bfloat16", "--config.only=speculative_3",
        "--config.acceptance=0.8", f"--workdir={tmp_path}/out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    entry = plan["strategies"]["speculative_3"]
    assert plan["devices"] == 4 and entry["fits"] is True
    assert entry["tokens_per_round"] == pytest.approx(1 + 0.8 + 0.8**2 + 0.8**3)
    assert entry["speedup"] > 0 and entry["memory"]["arguments"] > 0
    assert f"{entry['round']['ms']:.2f}" in done.stdout
    refusals = command(*done_flags(tmp_path), "--config.mesh.model=2")
    run_refused(refusals.returncode, refusals.stderr, "config.mesh", "2 devices", "has 4")


def done_flags(folder: Path) -> tuple[str, ...]:
    """A plan for a mesh that the topology does not have."""
    return (
        "--config=configs/translate.py", "--dry_run", "--config.topology=v5e:2x2",
        f"--config.target={folder}/target", f"--config.drafter={folder}/drafter",
        f"--workdir={folder}/out",
    )  # fmt: skip


def test_a_shape_that_libtpu_does_not_know_is_refused() -> None:
    with pytest.raises(UserError, match="'v5e:3x3'; libtpu knows no such"):
        describe_topology("v5e:3x3")
