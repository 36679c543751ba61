"""The same tokens on eight simulated devices as on one, and weights and caches truly split."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import draw_weights, without_encoder
from jax.sharding import PartitionSpec as P
from slow_cases import mark_slow

import specjax
from specjax.hf import huggingface
from specjax.hf.descriptions import describe
from specjax.hf.families.dflash_published import PublishedDFlash
from specjax.hf.families.family import get_family
from specjax.hf.huggingface import parse_config
from specjax.hf.tensors import flat_shapes, open_parameter, tensor_places
from specjax.models.assistant import Assistant
from specjax.models.causal import Causal, CausalConfig
from specjax.models.dflash import DFlash
from specjax.models.experts import Groups, Mixture
from specjax.models.gated_delta import GatedDelta
from specjax.models.latent_attention import Latent
from specjax.models.positions import Rope
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config
from specjax.models.t5gemma import Stack, T5Gemma, T5GemmaConfig
from specjax.models.t5gemma2 import T5Gemma2, T5Gemma2Config
from specjax.parallel.mesh import axes_over, axis_sizes
from specjax.parallel.sharding import logical_axes, parameter_spec, split_spec

SCRIPT = Path(__file__).with_name("eight_devices.py")

LLAMA = {
    "family": "llama", "vocab_size": 64, "d_model": 32, "d_ff": 48, "num_layers": 2,
    "num_heads": 8, "d_head": 4, "max_positions": 64, "rope": Rope(4), "eos": (1,),
}  # fmt: skip
HYBRID = CausalConfig(
    **LLAMA | {"family": "qwen3_5_text", "num_layers": 2}, num_kv_heads=2, qk_norm=True,
    recurrences=(GatedDelta(4, 8, 4, 8), None), gated_attention=True, unit_offset=True,
)  # fmt: skip
MODELS = {
    "t5": T5(
        T5Config(
            vocab_size=64, d_model=24, d_kv=4, d_ff=48, num_heads=8, num_layers=2,
            num_decoder_layers=2,
        )
    ),
    "llama": Causal(CausalConfig(**LLAMA, num_kv_heads=8)),
    "grouped": Causal(CausalConfig(**LLAMA, num_kv_heads=2, tied=True)),
    "mixed": Causal(
        CausalConfig(
            **LLAMA | {"family": "qwen2_moe"},
            num_kv_heads=8,
            mixtures=(Mixture(4, 2, 48, shared=24, gated_shared=True),) * 2,
        )
    ),
    "latent": Causal(
        CausalConfig(
            **LLAMA | {"family": "deepseek_v3", "d_head": 10, "rope": Rope(4, interleaved=True)},
            num_kv_heads=1,
            latent=Latent(rank=6, rotated=4, plain=4, value=4, query_rank=8),
            query_scale=8**-0.5,
            mixtures=(
                None,
                Mixture(
                    4, 2, 24, shared=24, scoring="sigmoid", corrected=True, groups=Groups(2, 1, 2)
                ),
            ),
        )
    ),
    "hybrid": Causal(HYBRID),
    "six": T5(
        T5Config(
            vocab_size=64, d_model=24, d_kv=4, d_ff=48, num_heads=6, num_layers=1,
            num_decoder_layers=2,
        )
    ),
    "t5gemma": T5Gemma(
        T5GemmaConfig(
            64, Stack(24, 32, 1, 16, 8, 4, Rope(4), (3,), query_scalar=4.0, softcap=3.0),
            Stack(32, 48, 2, 8, 8, 4, Rope(4), (4, 0), query_scalar=4.0, softcap=3.0),
        )
    ),
    "t5gemma2": T5Gemma2(
        T5Gemma2Config(
            64, Stack(32, 32, 1, 16, 8, 4, Rope(4), (3,), 4.0, sliding_rope=Rope(4, 50.0)),
            Stack(32, 48, 2, 8, 8, 4, Rope(4), (4, 0), 4.0, sliding_rope=Rope(4, 50.0)),
        )
    ),
}  # fmt: skip
KINDS = {
    name: "decoder" if model.info.start_token is None else "encoder"
    for name, model in MODELS.items()
}


BOTH = ("speculative", "sampled")


def case(
    model: str,
    data: int,
    over: int,
    ways: int,
    strategies: Sequence[str],
    weights: str = "",
    slots: bool = False,
) -> dict:
    """A mesh, and the drafter over `ways` of its `over` devices (0: all)."""
    mesh = {"data": data, "model": over}
    return {
        "model": model, "kind": KINDS[model], "mesh": mesh, "ways": ways, "strategies": strategies,
        "pad": model == "six", "weights": weights, "slots": slots,
    }  # fmt: skip


FEW = [case("t5", 2, 4, 2, BOTH[1:], slots=True)]
PLACES = [
    (data, over, ways)
    for data, over in ((1, 8), (2, 4), (4, 2))
    for ways in ((1, 0) if over == 2 else (1, 2, 0))
]
MANY = [
    # Greedy and sampled in turn: they differ in what is drawn, not in where arrays lie.
    case(model, *place, BOTH[index % 2 :][:1], slots=not place[-1] and model != "grouped")
    for model in ("t5", "llama", "grouped")
    for index, place in enumerate(PLACES, start=model == "grouped")
]


def on_eight_devices(folder: Path, cases: list[dict[str, Any]]) -> dict[str, Any]:
    named = {one["model"] for one in cases}
    for seed, (name, model) in enumerate(MODELS.items()):
        if name not in named:
            continue
        params = jax.tree.map(lambda x: x * 3.0, model.init(jax.random.key(seed)))
        huggingface.save(folder / name, model, params)
    eight = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    flags = {"XLA_FLAGS": eight, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), str(folder), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | flags)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def check(found: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    assert len(found["slots"]) == sum(one["slots"] for one in cases)
    assert all(alone == filled for alone, filled in found["slots"])
    for one, tokens, shares in zip(cases, found["tokens"], found["shares"], strict=True):
        baseline = found["alone"][one["model"]]
        assert tokens == {name: baseline[name] for name in one["strategies"]}, one
        check_shares(one, shares)


def check_shares(one: dict[str, Any], shares: dict[str, dict[str, float]]) -> None:
    """Each device holds its part of the target, and of the drafter when that is split."""
    data, over = one["mesh"]["data"], one["mesh"]["model"]
    config = MODELS[one["model"]].config
    kv_heads = getattr(config, "num_kv_heads", config.num_heads) if not one["pad"] else 8
    for name, ways in (("target", over), ("drafter", one["ways"] or over)):
        heads = ways if kv_heads % ways == 0 else 1
        matrices = re.compile("kernel|embedding|gates|ups|downs")
        small = re.compile("router|token_gate|q_down|kv_down")
        kernels = {
            p: s for p, s in shares[name].items() if matrices.search(p) and not small.search(p)
        }
        whole = {p for p, s in kernels.items() if s == 1.0}
        if ways > 1:
            assert all("'k'" in p or "'v'" in p for p in whole), whole
            assert not whole or heads == 1
            assert set(kernels.values()) - {1.0} == {1 / ways}
        else:
            assert set(kernels.values()) == {1.0}
        kept = shares[f"{name}_cache"].items()
        caches = {s for p, s in kept if "own" in p or one["kind"] == "decoder"}
        assert caches == {1 / data / heads}
    assert set(shares["tokens"].values()) == {1 / data}


@pytest.mark.slow
def test_the_same_tokens_on_eight_devices_as_on_one(tmp_path: Path) -> None:
    check(on_eight_devices(tmp_path, FEW), FEW)


@pytest.mark.slow
def test_the_same_tokens_on_every_mesh(tmp_path: Path) -> None:
    check(on_eight_devices(tmp_path, MANY), MANY)


@pytest.mark.slow
def test_a_mixture_of_experts_gives_the_same_tokens(tmp_path: Path) -> None:
    cases = [case("mixed", 1, 8, 0, BOTH), case("mixed", 2, 4, 1, BOTH[:1])]
    check(on_eight_devices(tmp_path, cases), cases)


@pytest.mark.slow
def test_latent_attention_gives_the_same_tokens(tmp_path: Path) -> None:
    cases = [case("latent", 1, 8, 0, BOTH), case("latent", 2, 4, 1, BOTH[:1])]
    check(on_eight_devices(tmp_path, cases), cases)


@pytest.mark.slow
def test_recurrent_layers_give_the_same_tokens(tmp_path: Path) -> None:
    cases = [case("hybrid", 1, 8, 0, BOTH), case("hybrid", 2, 4, 1, BOTH[:1])]
    found = on_eight_devices(tmp_path, cases)
    for one, tokens, shares in zip(cases, found["tokens"], found["shares"], strict=True):
        assert tokens == {name: found["alone"]["hybrid"][name] for name in one["strategies"]}
        gate = shares["target"]["['layers_0']['recurrent']['gate']['kernel']"]
        assert gate == 1 / one["mesh"]["model"]


@pytest.mark.slow
def test_stacks_of_two_sizes_give_the_same_tokens(tmp_path: Path) -> None:
    cases = [case("t5gemma", 1, 8, 1, BOTH), case("t5gemma", 2, 4, 2, BOTH[:1])]
    check(on_eight_devices(tmp_path, cases), cases)


@pytest.mark.slow
def test_merged_attention_gives_the_same_tokens(tmp_path: Path) -> None:
    cases = [case("t5gemma2", 1, 8, 1, BOTH), case("t5gemma2", 2, 4, 2, BOTH[:1])]
    check(on_eight_devices(tmp_path, cases), cases)


@pytest.mark.slow
def test_six_heads_padded_to_eight_give_the_same_tokens(tmp_path: Path) -> None:
    cases = [case("six", 1, 8, 1, BOTH), case("six", 2, 4, 0, BOTH)]
    check(on_eight_devices(tmp_path, cases), cases)


@pytest.mark.slow
def test_quantized_weights_are_split_with_their_scales(tmp_path: Path) -> None:
    """Groups divide by the devices here; the same tokens either way."""
    cases = [case(kind, 2, 4, 0, BOTH[:1], "int8:2") for kind in ("llama", "mixed")]
    found = on_eight_devices(tmp_path, cases)
    check(found, cases)
    for shares, kernel in zip(found["shares"], ("up", "ups"), strict=True):
        small = {p.rsplit(".")[-1] for p in shares["target"] if f"'{kernel}'" in p}
        assert small == {"qvalue", "scale"}


def test_scales_stay_whole_where_they_do_not_divide() -> None:
    """One of a channel for all inputs, or fewer groups of inputs than devices."""
    where, model = ("layers_0", "attention", "o", "kernel"), MODELS["llama"]
    for groups, split in ((1, None), (2, None), (4, "model"), (32, "model")):
        assert split_spec(where, (groups, 32), model, 4) == P(split, None)


def feature_drafters(folder: Path) -> None:
    """Those for the small Llama: of EAGLE with fewer ids, a published block, an assistant."""
    config, ids = MODELS["llama"].config, tuple(range(1, 64, 2))[:27]
    model, params = without_encoder(64, config.d_model, (1, 2), ids, None)
    huggingface.save(folder / "llama_eagle", model, params)
    words = PublishedDFlash().get_target_fields(MODELS["llama"])
    shape = words | {"mask_token_id": 2, "num_hidden_layers": 1, "block_size": 4}
    model = DFlash(parse_config("it", shape, None, jnp.float32)[1])
    huggingface.save(folder / "llama_dflash", *draw_weights(model, tuple(range(64))))
    heads = {"num_heads": 8, "num_kv_heads": 8}
    assistant = without_encoder(
        64, config.d_model, (2,), tuple(range(64)), None, kind=Assistant, **heads
    )
    huggingface.save(folder / "llama_assistant", *assistant)


@pytest.mark.slow
def test_feature_drafters_read_a_target_that_is_split(tmp_path: Path) -> None:
    """The published one reads the target's tables where these lie; 27 ids do not divide by 4."""
    feature_drafters(tmp_path)
    split = "dflash", "eagle", "assistant"
    cases = [case("llama", 1, 8, 1, ("eagle",)), case("llama", 2, 4, 0, split)]
    found = on_eight_devices(tmp_path, cases)
    alone = found["alone"]["llama"]
    assert alone["eagle"] == alone["dflash"] == alone["assistant"]
    for one, tokens in zip(cases, found["tokens"], strict=True):
        assert tokens == {name: found["alone"]["llama"][name] for name in one["strategies"]}
    shares = found["shares"][1]["drafter"]
    assert shares["['layers_0']['attention']['q']['kernel']"] == 1 / 4


GPT2 = CausalConfig(
    family="gpt2", vocab_size=64, d_model=32, d_ff=48, num_layers=1, num_heads=8, num_kv_heads=8,
    d_head=4, max_positions=64, activation="gelu_new", gated=False, rms_norm=False, qkv_bias=True,
    out_bias=True, ff_bias=True, tied=True, eps=1e-5,
)  # fmt: skip


PHI3 = CausalConfig(**LLAMA | {"family": "phi3"}, num_kv_heads=2)
NEOX = dataclasses.replace(
    GPT2, family="gpt_neox", rope=Rope(2), tied=False, parallel=True, num_layers=2
)
OPT_350M = dataclasses.replace(
    GPT2, family="opt", position_offset=2, pre_norm=False, residual_norm=True, final_norm=False,
    projected_width=16,
)  # fmt: skip
GEMMA = CausalConfig(
    **LLAMA | {"family": "gemma"}, num_kv_heads=2, unit_offset=True, embedding_scale=2.0
)
MIXTURE = Mixture(experts=4, chosen=2, d_ff=12)
MIXED = CausalConfig(
    **LLAMA | {"family": "qwen3_moe", "mixtures": (None, MIXTURE)}, num_kv_heads=2, qk_norm=True
)


@pytest.mark.parametrize(
    "model",
    [
        MODELS["t5"],
        MODELS["llama"],
        *map(mark_slow, map(Causal, (GPT2, PHI3, NEOX, MIXED, OPT_350M, GEMMA))),
        mark_slow(MODELS["hybrid"]),
    ],
)
def test_a_block_is_what_the_whole_tensor_has_there(model: Any, tmp_path: Path) -> None:
    """Sharded loading reads blocks; transposed tensors by their other axis, fused ones in part."""
    params = model.init(jax.random.key(0))
    huggingface.save(tmp_path / "model", model, params)
    family = get_family(model)
    places = tensor_places(tmp_path / "model", family)
    shapes = flat_shapes(get_parameter_shapes(model))
    for where, stored in family.names(model.config).items():
        whole = params
        for key in where:
            whole = whole[key]
        index = tuple(slice(n // 4, n // 2) for n in whole.shape)
        with open_parameter(stored, places, shapes[where]) as parameter:
            block = parameter.read(index, np.dtype("float32"))
        np.testing.assert_array_equal(block, np.asarray(whole)[index])


def test_parameters_are_split_by_whole_heads_only() -> None:
    grouped = MODELS["grouped"]
    where = ("layers_0", "attention", "k", "kernel")
    assert logical_axes(where) == (None, "kv_heads")
    query = ("layers_0", "attention", "q", "kernel")
    assert parameter_spec(where, grouped, 2) == P(None, "model")
    assert parameter_spec(where, grouped, 4) == P(None, None)
    assert parameter_spec(query, grouped, 4) == P(None, "model")
    assert parameter_spec(("final_norm", "scale"), grouped, 4) == P()


def test_an_assistants_output_embedding_is_split_by_its_ids() -> None:
    """It is more than half of the published assistants' weights, and read at every step."""
    model, where = describe("google/gemma-4-31B-it-assistant", jnp.bfloat16), "output_embedding"
    shape = get_parameter_shapes(model)[where].shape
    assert split_spec((where,), shape, model, 4) == P("model", None)


def test_projections_of_embeddings_stay_whole() -> None:
    """They are small, and the table that they belong to is split by the vocabulary."""
    model = Causal(OPT_350M)
    for name in ("project_in", "project_out"):
        assert parameter_spec((name, "kernel"), model, 4) == P()
    assert parameter_spec(("embedding",), model, 4) == P("model", None)


def test_experts_are_split_by_their_widths() -> None:
    """Whichever experts a token has, every device reads its share of each."""
    where = ("layers_1", "ff", "ups")
    assert parameter_spec(where, Causal(MIXED), 4) == P(None, None, "model")
    assert parameter_spec((*where[:2], "downs"), Causal(MIXED), 4) == P(None, "model", None)
    assert parameter_spec(where, Causal(MIXED), 8) == P(None, None, None)
    shared = ("layers_1", "ff", "shared", "expert", "up", "kernel")
    assert parameter_spec(shared, MODELS["mixed"], 8) == P(None, "model")
    assert parameter_spec(shared, MODELS["mixed"], 16) == P(None, None)
    assert parameter_spec(("layers_1", "ff", "router", "logits", "kernel"), Causal(MIXED), 4) == P()


def test_recurrent_layers_are_split_by_their_own_heads() -> None:
    model, layer = MODELS["hybrid"], ("layers_0", "recurrent")
    assert parameter_spec((*layer, "q", "kernel"), model, 4) == P(None, "model")
    assert parameter_spec((*layer, "q", "kernel"), model, 8) == P(None, None)
    assert parameter_spec((*layer, "gate", "kernel"), model, 8) == P(None, "model")
    assert parameter_spec((*layer, "o", "kernel"), model, 8) == P("model", None)
    assert parameter_spec(("layers_1", "attention", "gate", "kernel"), model, 8) == P(None, "model")


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ({"data": 1, "tensor": 2}, "tensor"),
        ({"model": 0}, "config.mesh.model"),
        ({"model": "2"}, "'2'"),
    ],
)
def test_an_unusable_mesh_is_named(shape: dict[str, Any], named: str) -> None:
    with pytest.raises(specjax.UserError, match=named):
        axis_sizes(shape)


def test_a_part_must_divide_the_models_axis() -> None:
    with pytest.raises(specjax.UserError, match="part is 3; it must be 0 .* axis: 1, 2, 4, 8$"):
        specjax.make_mesh({"model": 8}, 3)
    with pytest.raises(specjax.UserError, match="ways is 2; .* the part that specjax.make_mesh"):
        axes_over(specjax.make_mesh({"model": 1}), 2)


def test_a_mesh_of_more_devices_than_there_are_is_refused() -> None:
    with pytest.raises(specjax.UserError, match="asks for 512 devices; this machine has"):
        specjax.make_mesh({"model": 512})
