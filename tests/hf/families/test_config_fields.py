"""Fields of `config.json` and `generation_config.json`: obeyed, or refused in one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax.contracts.registry import PROCESSORS
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.pairs import load_pair
from specjax.hf.families.generation import SETTINGS
from specjax.hf.families.gpt import GPTNeoX
from specjax.hf.families.schema import format_value
from specjax.hf.huggingface import parse_config
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Rope
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[2] / "golden"
NAN = float("nan")
LINEAR = {"type": "linear", "factor": 3.0}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5, 2.0],
    "long_factor": [2.0, 3.0, 4.0],
    "original_max_position_embeddings": 16,
}


def write_config(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name / "config.json").read_text("utf-8"))


def shape(name: str, generation: dict[str, Any] | None = None, **changes: Any) -> Any:
    """The shape of a golden checkpoint with fields changed."""
    return parse_config("config.json", write_config(name) | changes, generation, jnp.float32)[1]


def complaint(name: str, generation: dict[str, Any] | None = None, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        shape(name, generation, **changes)
    sentence = str(caught.value)
    assert "\n" not in sentence and not re.search(r"\. [A-Z]", sentence)
    return sentence


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("llama", "quantization_config", {"quant_method": "fp8"}),
        ("llama", "is_causal", False),
        ("llama", "attention_chunk_size", 4),
        ("llama", "per_layer_config", {"0": {"hidden_act": "relu"}}),
        ("t5_v1_1", "sliding_window", 4),
        ("t5_v1_1", "is_causal", None),
        ("llama", "sliding_window", 4),
        ("llama", "rms_norm_eps", None),
        ("llama", "rms_norm_eps", "1e-6"),
        ("llama", "rms_norm_eps", NAN),
        ("llama", "rms_norm_eps", 0.0),
        ("llama", "head_dim", 7),
        ("llama", "head_dim", 8.5),
        ("llama", "head_dim", "8"),
        ("llama", "num_attention_heads", -4),
        ("llama", "hidden_size", 26),
        ("llama", "tie_word_embeddings", None),
        ("llama", "rope_scaling", {"type": "linear"}),
        ("llama", "rope_scaling", {"type": "linear", "factor": 0}),
        ("llama", "rope_scaling", {"type": "linear", "factor": NAN}),
        ("llama", "rope_parameters", {"rope_theta": 0.0}),
        ("llama", "rope_parameters", {"partial_rotary_factor": 0.5}),
        ("llama", "rope_parameters", LONG | {"short_factor": [1.0]}),
        ("llama", "original_max_position_embeddings", None),
        ("llama", "rope_parameters", YARN | {"original_max_position_embeddings": None}),
        ("mt5", "tie_word_embeddings", None),
        ("umt5", "tie_word_embeddings", None),
        ("t5gemma", "encoder", None),
        ("t5gemma", "decoder", []),
        ("t5gemma", "tie_word_embeddings", None),
        ("t5gemma", "decoder_start_token_id", 96),
        ("t5gemma2", "encoder", None),
        ("t5gemma2", "decoder", []),
        ("mistral", "layer_types", ["full_attention", "sliding_attention"]),
        ("mistral", "sliding_window", "7"),
        ("qwen3", "layer_types", ["full_attention"]),
        ("qwen3", "layer_types", ["full_attention", "odd"]),
        ("gemma2", "use_bidirectional_attention", True),
        ("gemma2", "query_pre_attn_scalar", 2.5),
        ("gemma2", "layer_types", ["full_attention", "odd"]),
        ("gemma3_text", "attn_logit_softcapping", 50.0),
        ("gemma3_text", "rope_parameters", {"rope_type": "default"}),
        ("phi3", "rope_parameters", {"rope_type": "linear", "factor": 2.0}),
        ("phi3", "partial_rotary_factor", 0),
        ("phi3", "rope_scaling", LONG | {"partial_rotary_factor": None}),
        ("llama", "partial_rotary_factor", 0.5),
        ("gemma", "use_bidirectional_attention", True),
        ("gemma", "num_key_value_heads", None),
        ("olmo2", "sliding_window", 4),
        ("smollm3", "no_rope_layers", [1]),
        ("smollm3", "no_rope_layers", [1, 2]),
        ("smollm3", "layer_types", ["full_attention", "sliding_attention"]),
        ("gpt2", "n_embd", 21),
        ("gpt_neox", "rope_parameters", {"partial_rotary_factor": 0.4}),
        ("gpt_neox", "rope_parameters", {"partial_rotary_factor": 1.5}),
        ("gpt_neox", "hidden_size", 25),
        ("gpt_neox", "head_dim", 12),
        ("mixtral", "num_experts_per_tok", 5),
        ("mixtral", "num_experts", 3),
        ("qwen3_moe", "mlp_only_layers", [0, 1]),
        ("qwen3_moe", "mlp_only_layers", "0"),
        ("qwen3_moe", "decoder_sparse_step", 3),
        ("opt", "do_layer_norm_before", None),
        ("opt", "word_embed_proj_dim", 0),
        ("gpt2", "scale_attn_weights", None),
        ("opt", "layer_norm_elementwise_affine", False),
        ("gpt2", "hidden_size", 40),
        ("t5_v1_1", "num_decoder_layers", 0),
        ("t5_v1_1", "relative_attention_num_buckets", 1),
        ("t5_v1_1", "relative_attention_max_distance", 3),
        ("t5_v1_1", "decoder_start_token_id", None),
        ("t5_v1_1", "decoder_start_token_id", 96),
        ("t5_v1_1", "scale_decoder_outputs", None),
        ("bart", "decoder_attention_heads", 5),
        ("bart", "activation_dropout", 1.5),
        ("bart", "is_encoder_decoder", False),
        ("bart", "num_hidden_layers", 3),
        ("bart", "decoder_start_token_id", 96),
        ("mbart", "scale_embedding", None),
        ("mbart", "max_position_embeddings", 0),
        ("marian", "share_encoder_decoder_embeddings", None),
        ("marian_two", "eos_token_id", 96),
        ("pegasus", "scale_embedding", None),
        ("marian", "decoder_vocab_size", 95),
        ("m2m_100", "pad_token_id", None),
        ("m2m_100", "d_model", 2),
        ("llama", "eos_token_id", "2"),
        ("llama", "eos_token_id", -1),
        ("llama", "pad_token_id", 96),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_its_field_and_value(
    name: str, field: str, value: Any
) -> None:
    sentence = complaint(name, **{field: value})
    assert field in sentence and format_value(value) in sentence


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("encoder", "layer_types", ["sliding_attention"]),
        ("encoder", "vocab_size", 95),
        ("encoder", "rope_scaling", {"rope_type": "dynamic", "factor": 2.0}),
        ("decoder", "sliding_window", 0),
        ("decoder", "query_pre_attn_scalar", -1),
        ("decoder", "attn_logit_softcapping", 0.0),
        ("decoder", "num_key_value_heads", 3),
        ("decoder", "head_dim", 5),
        ("decoder", "repetition_penalty", 1.5),
        ("decoder", "min_length", 4),
        ("decoder", "num_beams", 3),
        ("decoder", "quantization_config", {"bits": 4}),
    ],
)
def test_what_half_of_a_t5gemma_cannot_obey_is_refused(part: str, field: str, value: Any) -> None:
    sentence = complaint("t5gemma", **{part: write_config("t5gemma")[part] | {field: value}})
    assert part in sentence
    if field == "rope_scaling":
        field, value = "rope_type", value["rope_type"]
    assert field in sentence and format_value(value) in sentence


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("encoder", "text_config", []),
        ("encoder", "eoi_token_index", None),
        ("decoder", "hidden_size", 24),
        ("decoder", "sliding_window", None),
        ("decoder", "attn_logit_softcapping", 50.0),
        ("decoder", "rope_parameters", {"rope_type": "default"}),
    ],
)
def test_what_half_of_a_t5gemma_2_cannot_obey_is_refused(part: str, field: str, value: Any) -> None:
    sentence = complaint("t5gemma2", **{part: write_config("t5gemma2")[part] | {field: value}})
    assert part in sentence and format_value(value) in sentence
    assert (field if field != "text_config" else "encoder is []") in sentence


def test_layers_of_a_t5gemma_2_rotate_by_two_bases() -> None:
    """In the older words of published Gemma 3 too; every sixth layer has all keys."""
    halves = write_config("t5gemma2")
    decoder = {
        k: v for k, v in halves["decoder"].items() if k not in ("layer_types", "rope_parameters")
    }
    old = {"rope_theta": 300.0, "rope_local_base_freq": 30.0, "num_hidden_layers": 7}
    found = shape("t5gemma2", decoder=decoder | old).decoder
    assert found.windows == (7,) * 5 + (0, 7)
    assert [rope.theta for rope in found.ropes] == [30.0] * 5 + [300.0, 30.0]


def test_t5gemmas_special_tokens_are_its_decoders_unless_said_otherwise() -> None:
    words = write_config("t5gemma")
    ends = {"bos_token_id": 7, "eos_token_id": [8, 9], "pad_token_id": 6}
    assert shape("t5gemma", bos_token_id=5).start_token == 5
    bare = {name: value for name, value in words.items() if name not in ends}
    bare["decoder"] = words["decoder"] | ends
    found = parse_config("config.json", bare, None, jnp.float32)[1]
    assert (found.start_token, found.eos, found.pad) == (7, (8, 9), 6)
    assert shape("t5gemma", {"decoder_start_token_id": 3, "eos_token_id": 4}).eos == (4,)


def test_caps_and_windows_of_t5gemma_are_those_of_gemma_unless_null() -> None:
    words = write_config("t5gemma")
    gone = {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"}
    bare = {name: value for name, value in words["decoder"].items() if name not in gone}
    found = shape("t5gemma", decoder=bare)
    assert (found.decoder.softcap, found.logit_cap) == (50.0, 30.0)
    assert found.decoder.windows == (4096, 0)
    null = words["decoder"] | {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    found = shape("t5gemma", decoder=null)
    assert (found.decoder.softcap, found.logit_cap) == (0.0, 0.0)


def test_neutral_words_of_a_t5gemmas_decoder_are_no_settings() -> None:
    """Older configurations write all that there is, at Hugging Face's defaults."""
    said = {"repetition_penalty": 1.0, "min_length": 0, "num_beams": 1, "bad_words_ids": None}
    assert shape("t5gemma", decoder=write_config("t5gemma")["decoder"] | said) == shape("t5gemma")


def test_rope_scaling_wins_over_rope_parameters() -> None:
    rope = shape("llama", rope_scaling=LINEAR).rope
    assert (rope.kind, rope.factor) == ("linear", 3.0)


def test_a_trained_length_outside_of_the_scaling_wins() -> None:
    scaled = {"rope_parameters": LLAMA3, "rope_scaling": None}
    assert shape("llama", **scaled).rope.original == 64
    assert shape("llama", original_max_position_embeddings=8, **scaled).rope.original == 8


def test_other_names_of_gpt2s_fields_mean_the_same() -> None:
    config = write_config("gpt2")
    for other, name in {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }.items():
        config[other] = config.pop(name)
    assert parse_config("config.json", config, None, jnp.float32)[1] == shape("gpt2")


@pytest.mark.parametrize("name", ["swish", "quick_gelu", "gelu_fast", "relu2"])
def test_more_activations_are_known(name: str) -> None:
    assert shape("llama", hidden_act=name).activation == name
    assert shape("gpt2", activation_function=name).activation == name
    assert shape("t5_v1_1", dense_act_fn=name).activation == name


def test_quick_gelu_is_a_sigmoid() -> None:
    x = jnp.linspace(-3.0, 3.0, 7)
    np.testing.assert_allclose(ACTIVATIONS["quick_gelu"](x), x / (1 + jnp.exp(-1.702 * x)), 1e-6)


def test_t5s_separate_fields_win_over_the_projection() -> None:
    plain = {"feed_forward_proj": "gated-gelu", "dense_act_fn": "silu", "is_gated_act": False}
    found = shape("t5_v1_1", **plain)
    assert (found.activation, found.gated) == ("silu", False)
    assert shape("t5_v1_1", dense_act_fn="gelu").activation == "gelu"


def test_t5_without_a_word_on_tying_scales_and_mt5_never_does() -> None:
    config = write_config("t5_v1_0")
    del config["scale_decoder_outputs"], config["tie_word_embeddings"]
    for extra, scales in (({}, True), ({"tie_word_embeddings": None}, True)):
        found = parse_config("config.json", config | extra, None, jnp.float32)[1]
        assert found.scale_outputs is scales and found.tied
    assert not shape("mt5", scale_decoder_outputs=True).scale_outputs


def test_special_tokens_come_from_the_file_that_hugging_face_reads() -> None:
    assert shape("llama", eos_token_id=[7, 9]).eos == (7, 9)
    assert shape("llama", {"eos_token_id": 4}, eos_token_id=7).eos == (4,)
    assert shape("llama", {}, eos_token_id=7).eos == ()
    started = {"eos_token_id": 1, "bos_token_id": 3}
    assert shape("t5_v1_1", started).start_token == 3


def test_t5_does_without_a_padding_token() -> None:
    assert shape("t5_v1_1", pad_token_id=None, eos_token_id=5).pad == 5


def test_null_and_absence_mean_hugging_faces_default() -> None:
    assert shape("llama", num_key_value_heads=None).num_kv_heads == 4
    config = write_config("mistral")
    del config["num_key_value_heads"], config["num_attention_heads"], config["sliding_window"]
    config["num_attention_heads"] = 8
    found = parse_config("config.json", config, None, jnp.float32)[1]
    assert found.num_kv_heads == 8 and set(found.windows) == {4096}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_beam_groups", 2),
        ("penalty_alpha", 0.6),
    ],
)
def test_a_processor_is_refused_and_the_switch_is_named(field: str, value: Any) -> None:
    sentence = complaint("llama", {"eos_token_id": 1, field: value})
    assert field in sentence and repr(value) in sentence
    assert "ignore_generation_config" in sentence and f"generation={{'{field}': None}}" in sentence


def test_settings_that_change_nothing_are_accepted() -> None:
    neutral = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "num_beams": 1}
    drawn = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_length": 0}
    cuts = {"min_p": 0.1, "typical_p": 0.9, "epsilon_cutoff": 3e-4, "eta_cutoff": 2e-3}
    said = {"eos_token_id": 1, "max_length": 99} | neutral | drawn | cuts
    assert shape("llama", said).eos == (1,)


def test_without_a_generation_config_the_processors_of_config_json_count() -> None:
    assert "diversity_penalty" in complaint("llama", diversity_penalty=1.3)
    assert shape("llama", {"eos_token_id": 1}, diversity_penalty=1.3).eos == (1,)


def test_the_switch_reaches_the_api_and_the_experiments(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(GOLDEN / "llama", folder)
    said = {"eos_token_id": 4, "num_beams": 4, "min_length": 5, "forced_eos_token_id": 7}
    refused = {"penalty_alpha": 0.6}
    (folder / "generation_config.json").write_text(json.dumps(said), "utf-8")
    loaded = specjax.load(folder)
    assert loaded.beams == 4 and specjax.load(folder, generation={"num_beams": 1}).beams == 1
    with pytest.raises(UserError, match="num_beams is 0; it must be an integer of at least 1"):
        specjax.load(folder, generation={"num_beams": 0})
    ignoring = specjax.load(folder, ignore_generation_config=True)
    assert ignoring.model.info.eos == (4,) and not ignoring.settings
    changed = specjax.load(folder, generation={"num_beams": 1, "min_length": None})
    assert changed.model.info.eos == (4,) and changed.settings == {"forced_eos_token_id": (7,)}
    (folder / "generation_config.json").write_text(json.dumps(said | refused), "utf-8")
    config = decode_config(target=str(folder))
    with pytest.raises(UserError, match="config.generation"):
        load_pair(config)
    config.generation.penalty_alpha = None
    assert load_pair(config).target.settings == {"forced_eos_token_id": (7,), "min_length": 5}
    with pytest.raises(UserError, match="generation has 'min_lenght'"):
        specjax.load(GOLDEN / "llama", generation={"min_lenght": 3})
    config.ignore_generation_config = True
    assert not load_pair(config).target.settings


def test_the_settings_that_files_may_have_are_those_that_decodes_obey() -> None:
    assert set(PROCESSORS) == SETTINGS


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("min_length", -1, "an integer of at least 0"),
        ("repetition_penalty", 0, "a positive number"),
        ("suppress_tokens", [1.5], "a list of token ids"),
        ("bad_words_ids", [3], "a list of lists of token ids"),
        ("encoder_repetition_penalty", 0.0, "a positive number"),
        ("sequence_bias", [[[3], "1"]], "a list of pairs of a list of token ids and a number"),
        ("sequence_bias", [[[], 1.0]], "a list of pairs"),
        ("sequence_bias", [[3, 1.0]], "a list of pairs"),
        ("sequence_bias", [[[-1], 1.0]], "a list of pairs"),
        ("exponential_decay_length_penalty", [2], "a pair of an integer of at least 0 and a"),
        ("exponential_decay_length_penalty", [-1, 1.5], "a pair of an integer of at least 0"),
        ("exponential_decay_length_penalty", [2, 0], "a pair of an integer of at least 0"),
        ("exponential_decay_length_penalty", 2, "a pair of an integer of at least 0"),
    ],
)
def test_a_setting_that_is_none_is_refused(tmp_path, field, value, allowed) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(GOLDEN / "llama", folder)
    (folder / "generation_config.json").write_text(json.dumps({field: value}), "utf-8")
    with pytest.raises(UserError, match=f"{field} is .*; it must be {allowed}"):
        specjax.load(folder)


def test_a_generator_takes_settings_in_place_of_the_targets() -> None:
    target = specjax.load(GOLDEN / "llama", generation={"min_length": 5})
    given = {"min_length": None, "repetition_penalty": 1.5, "suppress_tokens": [3]}
    options = specjax.Generator(target, generation=given).options
    names = [type(one).__name__ for one in options.processors]
    assert names == ["RepetitionPenalty", "SuppressedTokens"]
    assert float(options.numbers["repetition_penalty"]) == 1.5
    assert len(specjax.Generator(target).options.processors) == 1
    assert not specjax.Generator(target, generation={"min_new_tokens": 0}).options.processors
    with pytest.raises(UserError, match="generation.top_h is no generation setting"):
        specjax.Generator(target, generation={"top_h": 1})
    for name, value in {
        "suppress_tokens": [3, 96], "forced_bos_token_id": 96, "bad_words_ids": [[3], [2, 96]],
        "sequence_bias": [[[3], 1.0], [[2, 96], 1.0]],
    }.items():  # fmt: skip
        with pytest.raises(UserError, match=f"{name} has 96; it must have token ids below 96"):
            specjax.Generator(target, generation={name: value})


@pytest.mark.parametrize("scaling", [LLAMA3, YARN, LONG, LINEAR], ids=lambda s: str(s)[:24])
def test_a_scaled_rotation_survives_an_export(scaling: dict[str, Any]) -> None:
    hf = write_config("llama") | {"rope_scaling": scaling}
    family, config = parse_config("config.json", hf, None, jnp.float32)
    again = parse_config("config.json", *family.config_to_hf(config), jnp.float32)[1]
    assert again == config


def test_gemma_3_says_its_rotations_in_two_ways() -> None:
    """Its own later one is that of the golden checkpoint, the earlier one that of the hub."""
    found = shape("gemma3_text")
    old = {
        "rope_parameters": None,
        "rope_theta": 500.0,
        "rope_local_base_freq": 50.0,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    }
    assert shape("gemma3_text", **old) == found
    assert [rope.theta for rope in found.ropes] == [50.0, 500.0]
    assert [rope.kind for rope in found.ropes] == ["default", "linear"]
    scaled = {"sliding_attention": {"rope_type": "linear", "factor": 3.0}}
    assert "'sliding_attention' is 'linear'" in complaint("gemma3_text", rope_parameters=scaled)


def test_every_sixth_layer_of_gemma_3_has_all_keys_unless_it_says_otherwise() -> None:
    found = shape("gemma3_text", layer_types=None, num_hidden_layers=7)
    assert [window > 0 for window in found.windows] == [True] * 5 + [False, True]
    assert not shape("gemma3_text", layer_types=None, sliding_window_pattern=1).windows


def test_gemma_without_a_word_on_its_caps_has_those_of_hugging_face() -> None:
    config = write_config("gemma2")
    del config["attn_logit_softcapping"], config["final_logit_softcapping"]
    found = parse_config("config.json", config, None, jnp.float32)[1]
    assert (found.attention_cap, found.logit_cap) == (50.0, 30.0)
    assert not shape("gemma2", attn_logit_softcapping=None).attention_cap


def test_the_text_part_of_a_gemma_that_sees_is_a_text_model() -> None:
    text = write_config("gemma3_text")
    whole = {"model_type": "gemma3", "text_config": text, "vision_config": {}, "eos_token_id": 5}
    found = parse_config("config.json", whole, None, jnp.float32)[1]
    assert found == shape("gemma3_text", eos_token_id=5, tie_word_embeddings=True)
    with pytest.raises(UserError, match="text_config is None"):
        parse_config("config.json", whole | {"text_config": None}, None, jnp.float32)


def test_heads_of_gemma_4_are_of_two_kinds_or_of_each_layer() -> None:
    kinds = {"layer_types": None, "per_layer_config": None, "num_hidden_layers": 7}
    wide = {"global_head_dim": 8, "num_global_key_value_heads": 1}
    found = shape("gemma4_text", **kinds, **wide)
    assert [tuple(one) for one in found.heads] == [(2, 6, False)] * 5 + [(1, 8, True)] * 1 + [
        (1, 8, True)
    ]
    assert [window > 0 for window in found.windows] == [True] * 5 + [False] * 2
    assert shape("gemma4_text", **kinds, **wide, attention_k_eq_v=False).heads[-1] == (2, 8, False)
    assert shape("gemma4_text", per_layer_config={}).heads[-1] == (2, 6, True)
    for name, value in {
        "per_layer_config": {"7": {"head_dim": 8}},
        "num_kv_shared_layers": 1,
        "vocab_size_per_layer_input": 40,
        "enable_moe_block": True,
    }.items():
        wide = {"hidden_size_per_layer_input": 16}
        assert f"{name} is {value}" in complaint("gemma4_text", **wide | {name: value})


def test_the_last_layers_of_a_small_gemma_4_read_the_last_caches_of_their_kinds() -> None:
    found = shape("gemma4_small")
    assert (found.cached_layers, found.shared_caches) == (3, (2, 1))
    assert found.d_ffs == (40, 40, 40, 80, 80)
    assert not shape("gemma4_small", num_kv_shared_layers=0).d_ffs


def test_the_first_ten_layers_of_a_deep_gemma_3n_are_sparse_and_every_fifth_has_no_window() -> None:
    unsaid = {"activation_sparsity_pattern": None, "layer_types": None, "intermediate_size": 40}
    found = shape("gemma3n_text", num_hidden_layers=12, **unsaid)
    assert found.sparsities == (0.95,) * 10 + (0.0,) * 2
    assert [layer for layer in range(12) if not found.windows[layer]] == [4, 9]
    assert found.shared_caches == (8, 8)
    assert not shape("gemma3n_text", num_hidden_layers=10, **unsaid).sparsities


@pytest.mark.parametrize("name", ["su", "yarn"])
def test_earlier_names_of_phi_3s_scaling_mean_the_same(name: str) -> None:
    assert shape("phi3", rope_scaling=LONG | {"rope_type": name}) == shape(
        "phi3", rope_scaling=LONG
    )


def test_every_fourth_layer_of_smollm3_does_not_rotate_unless_it_says_otherwise() -> None:
    found = shape("smollm3", no_rope_layers=None, layer_types=None, num_hidden_layers=5)
    assert [rope is None for rope in found.ropes] == [False] * 3 + [True, False]
    assert not shape("smollm3", no_rope_layers=[1, 1, 0]).ropes


def test_layers_and_rotation_of_a_code_world_model_are_its_own_where_it_says_none() -> None:
    found = shape("cwm", layer_types=None, rope_parameters=None, num_hidden_layers=5)
    assert found.windows == (0, 7, 7, 7, 0)
    assert (found.rope.kind, found.rope.theta, found.rope.factor) == ("llama3", 1e6, 16.0)
    assert shape("cwm", rope_parameters={}).rope == Rope(6, 1e6)
    assert "sliding_window is None; it must be an integer" in complaint("cwm", sliding_window=None)


def test_a_share_of_a_head_may_be_rotated_beside_the_scaling_or_in_it() -> None:
    """Phi-4-mini's is 0.75; what is inside of the scaling counts before what is outside."""
    assert (shape("phi4").rope.width, shape("phi4").d_head) == (6, 8)
    outside = {name: x for name, x in write_config("phi4")["rope_parameters"].items() if x != 0.75}
    given = {"rope_parameters": None, "rope_scaling": outside}
    assert shape("phi4", partial_rotary_factor=0.75, **given) == shape("phi4")
    assert shape("phi4", partial_rotary_factor=0.5) == shape("phi4")
    plain = shape("phi4", partial_rotary_factor=0.25, rope_parameters=None).rope
    assert (plain.width, plain.kind) == (2, "default")
    assert shape("llama", partial_rotary_factor=1.0) == shape("llama")


def test_one_table_of_embeddings_is_for_one_vocabulary() -> None:
    sentence = complaint("marian_two", share_encoder_decoder_embeddings=True)
    assert "decoder_vocab_size is 96; it must be vocab_size, 109, where share" in sentence
    alike = shape("marian_two", vocab_size=96)
    assert (alike.source_vocab, alike.vocab_size) == (96, 96)


def test_gelu_in_gemma_1_is_the_one_by_tanh() -> None:
    """The first files say `gelu`, and Hugging Face does not read `hidden_activation`."""
    assert shape("gemma", hidden_act="gelu", hidden_activation=None) == shape("gemma")
    assert shape("gemma", hidden_activation="relu") == shape("gemma")
    assert shape("gemma", hidden_act="relu").activation == "relu"


@pytest.mark.parametrize(
    "name",
    [
        "bamba",
        "bloom",
        "cohere",
        "cohere2",
        "cwm",
        "exaone4",
        "falcon",
        "falcon_7b",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gemma3n_text",
        "gemma4_small",
        "gemma4_text",
        "glm",
        "glm4",
        "gpt2_scaled",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "llama4_text",
        "marian_two",
        "ministral",
        "ministral3",
        "mistral4",
        "mpt",
        "nemotron_h",
        "olmo",
        "olmo2",
        "olmo3",
        "opt_350m",
        "pegasus",
        "phi",
        "phi3",
        "phi4",
        "phimoe",
        "qwen3_5_moe_text",
        "recurrent_gemma",
        "smollm3",
        "stablelm",
        "starcoder2",
    ],
)
def test_an_exported_shape_is_read_as_it_was(name: str) -> None:
    family, config = parse_config("config.json", write_config(name), None, jnp.float32)
    assert parse_config("config.json", *family.config_to_hf(config), jnp.float32)[1] == config


def test_slopes_are_powers_of_two_and_what_is_between_the_first() -> None:
    """Press et al.: 1/2 to 1/256 for 8 heads; of 12 the last four are of the sequence for 16."""
    eight = [2.0**-power for power in range(1, 9)]
    assert shape("bloom", n_head=8).slopes == tuple(eight)
    twelve = shape("mpt", n_heads=12).slopes
    assert twelve == (*eight, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5)


def test_heads_of_mamba_fill_their_width_and_their_steps_have_no_limit() -> None:
    assert "mamba_d_head is 5; it must be 'auto' or 8" in complaint("bamba", mamba_d_head=5)
    assert "mamba_n_heads is 7; it must divide" in complaint("bamba", mamba_n_heads=7)
    assert "mamba_n_groups is 4; it must divide the 6" in complaint("bamba", mamba_n_groups=4)
    assert "must be [0, Infinity]" in complaint("bamba", time_step_limit=[0.0, 0.5])
    assert shape("bamba", time_step_limit=[0.0, float("inf")]) == shape("bamba")


def test_layers_of_one_sublayer_are_named_by_a_list_or_a_pattern() -> None:
    kinds = {"layers_block_type": None, "hybrid_override_pattern": "M*EM-"}
    assert shape("nemotron_h", **kinds) == shape("nemotron_h")
    sentence = complaint("nemotron_h", **kinds | {"hybrid_override_pattern": "M*X"})
    assert "hybrid_override_pattern is 'M*X'; it must have one of M * - E for each" in sentence
    sentence = complaint("nemotron_h", layers_block_type=["mlp", "rnn"])
    assert "layers_block_type is ['mlp', 'rnn']; it must name each of the 2 layers" in sentence
    assert "n_groups is 4; it must divide mamba_num_heads, 6" in complaint("nemotron_h", n_groups=4)


def test_the_share_of_a_head_that_is_rotated_has_an_older_name() -> None:
    """Published: 0.25 of heads of 64. What is exported makes Hugging Face rotate as much again."""
    assert shape("gpt_neox", rope_parameters=None).rope.width == 2
    assert shape("gpt_neox", rope_parameters=None, rotary_pct=0.5).rope.width == 4
    assert shape("gpt_neox", rotary_pct=0.25).rope.width == 4  # `rope_parameters` wins
    wide = {"hidden_size": 98, "num_attention_heads": 1, "rope_parameters": None}
    for rotated in range(2, 99, 2):
        config = shape("gpt_neox", rotary_pct=(rotated + 0.5) / 98, **wide)
        assert config.rope.width == rotated
        assert int(98 * GPTNeoX().config_to_hf(config)[0]["rotary_pct"]) == rotated


def test_layers_have_experts_where_the_fields_say() -> None:
    def mix_fields(**changes: Any) -> list[bool]:
        config = shape("qwen3_moe", num_hidden_layers=6, **changes)
        return [mixture is not None for mixture in config.mixtures]

    assert mix_fields(mlp_only_layers=[]) == [True] * 6
    assert mix_fields(mlp_only_layers=[1, 9]) == [True, False, True, True, True, True]
    assert mix_fields(mlp_only_layers=[3], decoder_sparse_step=2) == [
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert not shape("qwen3_moe").mixtures[1].normalized
    assert shape("mixtral").mixtures[0].normalized


def test_yarn_keeps_fast_waves_divides_slow_ones_and_sharpens_attention() -> None:
    rope = shape("llama", rope_scaling=YARN | {"beta_fast": 2.0, "beta_slow": 1.0}).rope
    plain = Rope(rope.width, rope.theta).compute_frequencies()
    found = rope.compute_frequencies()
    assert found[0] == plain[0]
    np.testing.assert_allclose(found[-1], plain[-1] / 4.0, 1e-6)
    assert rope.attention == pytest.approx(0.1 * np.log(4.0) + 1.0)


def test_waves_from_one_length_on_are_divided_where_both_bounds_are_it() -> None:
    """As published for Llama 4; that of the fastest wave is 6.3, the others are longer than 8."""
    one = LLAMA3 | {"high_freq_factor": 1.0, "original_max_position_embeddings": 8}
    rope = shape("llama4_text", rope_scaling=one).rope
    plain = Rope(rope.width, rope.theta).compute_frequencies()
    np.testing.assert_allclose(rope.compute_frequencies(), plain / [1.0, 4.0, 4.0], 1e-6)
    over = one | {"high_freq_factor": 0.5}
    assert "it must be at least low_freq_factor" in complaint("llama4_text", rope_scaling=over)


def test_longrope_turns_to_the_long_factors_beyond_the_trained_length() -> None:
    rope = shape("llama", rope_scaling=LONG).rope
    plain = Rope(rope.width, rope.theta).compute_frequencies()
    at = jnp.array([10])
    np.testing.assert_allclose(rope.angles(at, 16)[0], 10 * plain / [1.0, 1.5, 2.0], 1e-6)
    np.testing.assert_allclose(rope.angles(at, 17)[0], 10 * plain / [2.0, 3.0, 4.0], 1e-6)
    assert rope.attention == pytest.approx(np.sqrt(1 + np.log(64 / 16) / np.log(16)))
