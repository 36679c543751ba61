"""Decoder-only families against transformers' PyTorch classes: fresh random models."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from shared import MODELS, needs_shared

torch = pytest.importorskip("torch")

from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
)

from specjax.decoding.strategy import autoregressive  # noqa: E402
from specjax.hf import huggingface  # noqa: E402
from specjax.hf.huggingface import load  # noqa: E402
from specjax.hf.tokenizer import load_tokenizer  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_causal.py"))
PROMPTS, NEW_TOKENS, TOLERANCE = 20, 64, 1e-4
MOST_TIES, TIED = 1, 2e-5
"""Rows of a model's 20 that may part, and between logits how close: PyTorch's own steps and whole
texts then differ in which comes first."""
VOCABULARY = 320

WIDE = {
    "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 256,
}  # fmt: skip
NEOX = {
    "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6,
    "max_position_embeddings": 256,
}  # fmt: skip
OPT = {
    "hidden_size": 48, "ffn_dim": 96, "num_hidden_layers": 3, "num_attention_heads": 6,
    "max_position_embeddings": 256,
}  # fmt: skip
QWEN_MOE = WIDE | {
    "num_experts": 7, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "mlp_only_layers": [2],
}  # fmt: skip
DELTA = GOLDEN["DELTA"] | {
    "linear_num_value_heads": 6, "linear_key_head_dim": 10, "linear_value_head_dim": 8,
}  # fmt: skip
MAMBA = GOLDEN["MAMBA"] | {"mamba_n_heads": 12, "mamba_n_groups": 3, "mamba_d_state": 10}
NEMOTRON_H = {k: v for k, v in WIDE.items() if k != "num_hidden_layers"} | GOLDEN["NEMOTRON_H"]
NEMOTRON_H |= {"moe_intermediate_size": 40, "time_step_min": 1e-6}
GRANITE_MOE = WIDE | GOLDEN["GRANITE"] | {"intermediate_size": 40, "num_local_experts": 5}
DEEPSEEK_EXPERTS = GOLDEN["DEEPSEEK_EXPERTS"] | {"moe_intermediate_size": 40}
LATENT = GOLDEN["LATENT"] | {
    "kv_lora_rank": 20, "q_lora_rank": 15, "v_head_dim": 12, "num_key_value_heads": 6,
}  # fmt: skip
YARN_BY_BOTH = {
    "rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.9,
    "original_max_position_embeddings": 32, "rope_theta": 10_000.0,
}  # fmt: skip
GPT_OSS = WIDE | {
    "intermediate_size": 40, "num_local_experts": 5, "num_experts_per_tok": 3, "swiglu_limit": 1.5,
    "sliding_window": 12, "initializer_range": 0.5,
}  # fmt: skip
CWM = WIDE | {"bos_token_id": 2}  # its class must have one
STRETCHED = GOLDEN["STRETCHED"] | {"rope_theta": 10_000.0, "original_max_position_embeddings": 32}

TWO_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10_000.0},
}
# Beyond the trained length Hugging Face computes a whole text again, with the long factors.
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0, 1.2, 2.0, 3.0],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
}  # fmt: skip


def scale_rotation(kind: str) -> dict[str, Any]:
    """A rotation scaled from contexts of 32 tokens on."""
    return {
        "max_position_embeddings": 32,
        "rope_parameters": {"rope_type": kind, "factor": 3.0, "rope_theta": 10_000.0},
    }


def partly(kind: str, **scaling: Any) -> dict[str, Any]:
    """GPT-NeoX with a scaled rotation of six of a head's eight numbers."""
    scaling = {"factor": 3.0, "rope_theta": 500.0, **scaling, "partial_rotary_factor": 0.75}
    return NEOX | {"rope_parameters": {"rope_type": kind, **scaling}}


GPT2 = {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 256}
PHI = {k: v for k, v in WIDE.items() if k != "head_dim"}

GEMMA4 = GOLDEN["GEMMA4"] | WIDE | {"global_head_dim": 16, "sliding_window": 12}
GEMMA3N = GOLDEN["GEMMA3N"] | WIDE | {"sliding_window": 12}
PROPORTIONAL = {
    "full_attention": {
        "rope_type": "proportional", "partial_rotary_factor": 0.4, "rope_theta": 500.0,
        "factor": 2.0,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}  # fmt: skip
FALCON = {k: v for k, v in NEOX.items() if k != "intermediate_size"}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
CHUNKS = ["chunked_attention", "full_attention", "chunked_attention"]
LLAMA4 = WIDE | {
    "intermediate_size": 40, "intermediate_size_mlp": 60, "num_local_experts": 5,
    "interleave_moe_layer_step": 2, "no_rope_layers": [1, 0, 1], "attention_chunk_size": 12,
    "floor_scale": 7, "attn_scale": 0.5,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", GPT2),
    "gpt2_unscaled": ("gpt2", GPT2 | {"scale_attn_weights": False}),
    "gpt2_inverse": ("gpt2", GPT2 | {"scale_attn_by_inverse_layer_idx": True}),
    "llama_mha": ("llama", {**WIDE, "num_key_value_heads": 6, "tie_word_embeddings": True}),
    "llama_gqa_biased": ("llama", {**WIDE, "attention_bias": True, "mlp_bias": True}),
    "llama_linear": ("llama", {**WIDE, **scale_rotation("linear")}),
    "llama_dynamic": ("llama", {**WIDE, **scale_rotation("dynamic")}),
    "llama_llama3": ("llama", {**WIDE, "rope_parameters": STRETCHED}),
    "mistral": ("mistral", {**WIDE, "sliding_window": 12}),
    "mistral_unwindowed": ("mistral", {**WIDE, "sliding_window": None}),
    "qwen2": (
        "qwen2",
        {k: v for k, v in WIDE.items() if k != "head_dim"}
        | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {**WIDE, "tie_word_embeddings": True}),
    "gemma": ("gemma", {**WIDE, "num_key_value_heads": 1}),
    "gemma_biased": (
        "gemma",
        {**WIDE, "attention_bias": True, "tie_word_embeddings": False, "hidden_act": "gelu"},
    ),
    "gemma2": (
        "gemma2",
        {**WIDE, "sliding_window": 9, "query_pre_attn_scalar": 17, "attn_logit_softcapping": 5.0},
    ),
    "gemma3": ("gemma3_text", {**WIDE, "sliding_window": 12, "rope_parameters": TWO_ROPES}),
    "olmo2": ("olmo2", {**WIDE, "attention_bias": True}),
    "phi3": ("phi3", {**WIDE, "sliding_window": 12}),
    "phi3_longrope": (
        "phi3",
        PHI | {"rope_parameters": LONGROPE, "original_max_position_embeddings": 200},
    ),
    "phi3_partial": ("phi3", PHI | {"rope_parameters": {"partial_rotary_factor": 0.5}}),
    "phi3_partial_longrope": (
        "phi3",
        PHI
        | {
            "rope_parameters": {
                "rope_type": "longrope",
                "short_factor": [1.0, 1.2, 2.0],
                "long_factor": [2.0, 3.0, 4.0],
                "partial_rotary_factor": 0.75,
            },
            "original_max_position_embeddings": 200,
        },
    ),
    "smollm3": (
        "smollm3",
        {**WIDE, "no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 9},
    ),
    "cwm": ("cwm", CWM | {"sliding_window": 12, "mlp_bias": True}),
    "cwm_unwindowed": (
        "cwm",
        CWM | {"layer_types": ["full_attention"] * 3, "rope_parameters": {"rope_theta": 500.0}},
    ),
    "gpt_neox": ("gpt_neox", NEOX),
    "gpt_neox_in_turn": (
        "gpt_neox",
        NEOX | {"use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0},
    ),
    "gpt_neox_linear": (
        "gpt_neox",
        NEOX | {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0}},
    ),
    "gpt_neox_yarn": ("gpt_neox", partly("yarn", original_max_position_embeddings=16)),
    "gpt_neox_dynamic": ("gpt_neox", partly("dynamic") | {"max_position_embeddings": 32}),
    "gpt_neox_llama3": (
        "gpt_neox",
        partly(
            "llama3", **{k: v for k, v in STRETCHED.items() if k not in ("rope_type", "factor")}
        ),
    ),
    "gpt_neox_longrope": (
        "gpt_neox",
        partly("longrope", short_factor=[1.0, 1.2, 2.0], long_factor=[2.0, 3.0, 4.0]),
    ),
    "mixtral": ("mixtral", {**WIDE, "num_local_experts": 5, "num_experts_per_tok": 3}),
    "mixtral_windowed": (
        "mixtral",
        {**WIDE, "num_local_experts": 4, "sliding_window": 12, "tie_word_embeddings": True},
    ),
    "phimoe": (
        "phimoe",
        WIDE
        | {"num_local_experts": 5, "router_jitter_noise": 0.2, "attention_bias": True}
        | {"lm_head_bias": True, "sliding_window": 12, "intermediate_size": 40},
    ),
    "phimoe_longrope": (
        "phimoe",
        PHI
        | {"num_local_experts": 3, "tie_word_embeddings": True}
        | {"rope_parameters": LONGROPE | {"short_mscale": 1.2, "long_mscale": 1.2}}
        | {"original_max_position_embeddings": 32},
    ),
    "qwen3_moe": ("qwen3_moe", QWEN_MOE),
    "qwen3_moe_every_other": (
        "qwen3_moe",
        QWEN_MOE | {"decoder_sparse_step": 2, "norm_topk_prob": True, "attention_bias": True},
    ),
    "qwen2_moe": (
        "qwen2_moe",
        QWEN_MOE | {"shared_expert_intermediate_size": 28, "qkv_bias": False},
    ),
    "qwen2_moe_windowed": (
        "qwen2_moe",
        QWEN_MOE
        | {"shared_expert_intermediate_size": 28, "norm_topk_prob": True}
        | {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 2},
    ),
    "qwen3_next": (
        "qwen3_next",
        QWEN_MOE
        | DELTA
        | {"full_attention_interval": 2, "shared_expert_intermediate_size": 20}
        | {"rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.6}},
    ),
    "qwen3_5_text": (
        "qwen3_5_text",
        WIDE | DELTA | {"full_attention_interval": 2, "rope_parameters": {"rope_theta": 100.0}},
    ),
    "qwen3_5_text_biased": (
        "qwen3_5_text",
        WIDE
        | DELTA
        | {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_conv_kernel_dim": 3,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {"mrope_section": [1, 1, 1], "partial_rotary_factor": 0.6},
        },
    ),
    "qwen3_5_moe_text": (
        "qwen3_5_moe_text",
        {name: QWEN_MOE[name] for name in QWEN_MOE if name != "mlp_only_layers"}
        | DELTA
        | {"full_attention_interval": 2, "shared_expert_intermediate_size": 20}
        | {"rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.6}},
    ),
    "bloom": ("bloom", {"hidden_size": 48, "n_layer": 3, "n_head": 6}),
    "mpt": (
        "mpt",
        {"d_model": 48, "n_layers": 3, "n_heads": 12, "max_seq_len": 256}
        | {
            "attn_config": {"clip_qkv": 2.0, "softmax_scale": 0.3},
            "use_cache": True,
            "tie_word_embeddings": False,
        },
    ),
    "llama4": ("llama4_text", LLAMA4),
    "llama4_dense": (
        "llama4_text",
        LLAMA4
        | {"moe_layers": [], "rope_parameters": STRETCHED, "use_qk_norm": False}
        | {"layer_types": CHUNKS[::-1], "attn_temperature_tuning": False, "attention_bias": True},
    ),
    "llama4_two_experts": (
        "llama4_text",
        LLAMA4
        | {"moe_layers": None, "interleave_moe_layer_step": 1, "num_experts_per_tok": 2}
        | {"attention_chunk_size": None, "tie_word_embeddings": True, "rope_parameters": YARN},
    ),
    "granitemoehybrid": (
        "granitemoehybrid",
        GRANITE_MOE
        | MAMBA
        | {"layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 28},
    ),
    "granitemoehybrid_dense": (
        "granitemoehybrid",
        WIDE
        | MAMBA
        | {"num_local_experts": 0, "shared_intermediate_size": 72, "mamba_proj_bias": True}
        | {"layer_types": ["linear_attention", "full_attention", "full_attention"]}
        | {"position_embedding_type": "rope", "mamba_conv_bias": False, "attention_bias": True},
    ),
    "bamba": ("bamba", PHI | MAMBA | {"attn_layer_indices": [1]}),
    "bamba_biased": (
        "bamba",
        WIDE
        | MAMBA
        | {"attn_layer_indices": [0, 2], "mlp_bias": True, "mamba_proj_bias": True}
        | {"rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.6}}
        | {"mamba_d_conv": 2, "tie_word_embeddings": True},
    ),
    "nemotron_h": (
        "nemotron_h",
        NEMOTRON_H
        | {"layers_block_type": ["moe", "linear_attention", "full_attention", "moe", "mlp"]}
        | {"moe_latent_size": 20, "mlp_bias": True},
    ),
    "nemotron_h_dense": (
        "nemotron_h",
        NEMOTRON_H
        | {"hybrid_override_pattern": "MM-*-", "mlp_hidden_act": "gelu", "mlp_bias": True}
        | {"use_bias": True, "use_conv_bias": False, "conv_kernel": 3, "mamba_hidden_act": "relu"},
    ),
    "recurrent_gemma": (
        "recurrent_gemma",
        PHI | {"attention_window_size": 12, "logits_soft_cap": 8.0, "attention_bias": True},
    ),
    "granitemoe": ("granitemoe", GRANITE_MOE),
    "granitemoeshared": (
        "granitemoeshared",
        GRANITE_MOE | {"shared_intermediate_size": 28, "attention_bias": True},
    ),
    "gpt_oss": ("gpt_oss", GPT_OSS),
    "gpt_oss_long": (
        "gpt_oss",
        GPT_OSS
        | {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}
        | {"attention_bias": False, "swiglu_alpha": 0.9, "rope_parameters": {"rope_theta": 300.0}},
    ),
    "deepseek_v2": (
        "deepseek_v2",
        PHI | DEEPSEEK_EXPERTS | LATENT | {"topk_method": "group_limited_greedy"},
    ),
    "deepseek_v2_lite": (
        "deepseek_v2",
        PHI
        | DEEPSEEK_EXPERTS
        | LATENT
        | {"q_lora_rank": None, "rope_parameters": YARN_BY_BOTH, "attention_bias": True},
    ),
    "deepseek_v3": (
        "deepseek_v3",
        PHI | DEEPSEEK_EXPERTS | LATENT | {"rope_parameters": YARN_BY_BOTH},
    ),
    "deepseek_v3_halves": (
        "deepseek_v3",
        PHI | DEEPSEEK_EXPERTS | LATENT | {"rope_interleave": False, "attention_bias": True},
    ),
    "mistral4": (
        "mistral4",
        PHI | DEEPSEEK_EXPERTS | LATENT | {"rope_parameters": GOLDEN["GROWING"]},
    ),
    "mistral4_halves": (
        "mistral4",
        PHI
        | DEEPSEEK_EXPERTS
        | LATENT
        | {"rope_parameters": GOLDEN["GROWING"] | {"mscale": 0.7, "mscale_all_dim": 0.9}}
        | {"rope_interleave": False, "attention_bias": True, "norm_topk_prob": False}
        | {"q_lora_rank": None},
    ),
    "glm4_moe": (
        "glm4_moe",
        WIDE | DEEPSEEK_EXPERTS | {"attention_bias": True, "head_dim": 12},
    ),
    "glm4_moe_ungrouped": (
        "glm4_moe",
        WIDE
        | DEEPSEEK_EXPERTS
        | {"n_group": 1, "topk_group": 1, "norm_topk_prob": False, "use_qk_norm": True}
        | {"rope_parameters": {"partial_rotary_factor": 0.8}},
    ),
    "opt": ("opt", OPT),
    "opt_norms_after": ("opt", OPT | {"do_layer_norm_before": False}),
    "opt_projected": ("opt", OPT | {"word_embed_proj_dim": 20, "tie_word_embeddings": False}),
    "opt_350m": ("opt", OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 20}),
    "opt_unbiased": ("opt", OPT | {"enable_bias": False, "tie_word_embeddings": False}),
    "olmo": ("olmo", {**WIDE, "clip_qkv": 1.5, "attention_bias": True}),
    "olmo3": ("olmo3", {**WIDE, "sliding_window": 12, "layer_types": MIXED, "rope_scaling": YARN}),
    "exaone4": ("exaone4", {**WIDE, "sliding_window": 12, "layer_types": MIXED}),
    "exaone4_unwindowed": (
        "exaone4",
        {**WIDE, "sliding_window": None, "layer_types": ["full_attention"] * 3},
    ),
    "granite": (
        "granite",
        {**WIDE, "embedding_multiplier": 12, "attention_multiplier": 0.1, "mlp_bias": True}
        | {"residual_multiplier": 0.22, "logits_scaling": 0.3, "tie_word_embeddings": True},
    ),
    "glm": ("glm", {**WIDE, "rope_parameters": YARN | {"partial_rotary_factor": 0.65}}),
    "glm4": ("glm4", {**WIDE, "partial_rotary_factor": 0.4, "attention_bias": False}),
    "cohere": ("cohere", PHI | {"use_qk_norm": True, "attention_bias": True}),
    "cohere_untied": ("cohere", PHI | {"tie_word_embeddings": False, "logit_scale": 0.7}),
    "cohere2": ("cohere2", PHI | {"sliding_window": 12, "layer_types": MIXED}),
    "starcoder2": ("starcoder2", PHI | {"sliding_window": 12}),
    "starcoder2_unbiased": ("starcoder2", PHI | {"use_bias": False, "hidden_act": "silu"}),
    "stablelm": ("stablelm", PHI | {"qk_layernorm": True, "use_qkv_bias": True}),
    "stablelm_parallel": ("stablelm", PHI | {"use_parallel_residual": True}),
    "phi": ("phi", PHI),
    "phi_normed": ("phi", PHI | {"qk_layernorm": True, "rope_scaling": YARN}),
    "falcon_7b": ("falcon", FALCON),
    "falcon_40b": (
        "falcon",
        FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True},
    ),
    "falcon_11b": (
        "falcon",
        FALCON
        | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "falcon_in_turn": (
        "falcon",
        FALCON | {"parallel_attn": False, "multi_query": False, "tie_word_embeddings": False},
    ),
    "gemma4": ("gemma4_text", {**GEMMA4, "layer_types": MIXED, "final_logit_softcapping": 5.0}),
    "gemma4_values": (
        "gemma4_text",
        GEMMA4
        | {"attention_k_eq_v": False, "attention_bias": True, "rope_parameters": PROPORTIONAL},
    ),
    "gemma4_small": (
        "gemma4_text",
        GEMMA4
        | {"num_hidden_layers": 6, "num_kv_shared_layers": 3, "layer_types": MIXED * 2}
        | {"use_double_wide_mlp": True, "attention_k_eq_v": False}
        | {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": VOCABULARY},
    ),
    "gemma3n": (
        "gemma3n_text",
        GEMMA3N
        | {"layer_types": MIXED, "num_kv_shared_layers": 1, "rope_parameters": TWO_ROPES}
        | {"activation_sparsity_pattern": [0.9, 0.0, 0.7], "final_logit_softcapping": 5.0},
    ),
    "gemma3n_untied": (
        "gemma3n_text",
        GEMMA3N
        | {"num_hidden_layers": 6, "num_kv_shared_layers": 1, "altup_num_inputs": 3}
        | {"altup_active_idx": 1, "altup_correct_scale": False, "attention_bias": True}
        | {"intermediate_size": [60, 50] * 3, "tie_word_embeddings": False},
    ),
    "llama_proportional": (
        "llama",
        WIDE | {"rope_parameters": PROPORTIONAL["full_attention"]},
    ),
    "ministral": ("ministral", {**WIDE, "sliding_window": 12, "layer_types": MIXED}),
    "ministral3": ("ministral3", {**WIDE, "rope_parameters": GOLDEN["GROWING"]}),
}


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model, the same one loaded here, and its directory."""
    family, shape = SHAPES[request.param]
    shape = copy.deepcopy(shape)  # transformers writes into the rotations that it is given
    theirs = GOLDEN["build"](family, {"vocab_size": VOCABULARY, **shape}, seed=5)
    folder = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    return theirs, load(folder), folder


def random_rows(count: int, lengths: tuple[int, int], seed: int = 7) -> tuple[np.ndarray, Any]:
    made = np.random.default_rng(seed).integers(*lengths, count)
    return GOLDEN["rows"](VOCABULARY, tuple(made.tolist()), seed)


def close(found: Any, expected: np.ndarray) -> None:
    assert np.abs(np.asarray(found) - expected).max() < TOLERANCE * np.abs(expected).max()


def reset(model: Any) -> Any:
    """PyTorch's dynamic rotation remembers the longest row until it sees a short one."""
    GOLDEN["logits"](model, np.ones((1, 2), np.int32))
    return model


def is_dynamic(model: Any) -> bool:
    rope = model.config.rope
    return rope is not None and rope.kind == "dynamic"


def test_logits_of_random_models_equal_pytorch(pair: Any) -> None:
    theirs, ours, _ = pair
    # One length for all rows: PyTorch's dynamic rotation looks at the longest row.
    tokens, length = random_rows(6, (90, 91))
    made = ours.model.module.apply({"params": ours.params}, tokens, length)
    close(made, GOLDEN["logits"](reset(theirs), tokens))


def test_steps_of_whole_texts_are_as_long_as_in_pytorch(tmp_path: Path) -> None:
    """PyTorch lengthens those of prompts only, not of single tokens after a cache."""
    kinds = {"layers_block_type": ["linear_attention", "full_attention"], "time_step_min": 0.5}
    theirs = GOLDEN["build"]("nemotron_h", NEMOTRON_H | kinds, 3)
    theirs.save_pretrained(tmp_path)
    ours, (tokens, length) = load(tmp_path), random_rows(4, (30, 31))
    ours = ours.model.module.apply({"params": ours.params}, tokens % 96, length)
    close(ours, GOLDEN["logits"](theirs, tokens % 96))


def test_prefill_steps_and_chunks_agree_with_each_other_and_with_pytorch(pair: Any) -> None:
    theirs, ours, _ = pair
    length = 30 if is_dynamic(ours.model) else 60  # PyTorch rotates a longer whole row anew
    tokens, _ = random_rows(4, (length, length + 1))
    expected = GOLDEN["logits"](reset(theirs), tokens)
    extend = jax.jit(ours.model.extend)
    for width in (1, 4, 7):
        start = jnp.full(4, 20, jnp.int32)
        cache, _ = ours.model.start(ours.params, tokens[:, :20], start, length + width)
        for begin in range(19, length - width + 1, width):
            output, cache = extend(ours.params, tokens[:, begin : begin + width], cache)
            close(output.logits, expected[:, begin : begin + width])


def their_greedy(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    """One prompt at a time: padding in front would shift learned positions."""
    made = []
    for prompt in prompts:
        out = reset(model).generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
            do_sample=False,
            max_new_tokens=NEW_TOKENS,
        )
        made.append(out[0, len(prompt) :].tolist())
    return made


def our_greedy(checkpoint: Any, prompts: list[list[int]]) -> list[list[int]]:
    models, params = (("target", checkpoint.model),), {"target": checkpoint.params}
    return texts(run(models, params, autoregressive(), prompts, NEW_TOKENS))


def test_greedy_decoding_of_random_models_equals_pytorch(pair: Any) -> None:
    theirs, ours, _ = pair
    tokens, length = random_rows(PROMPTS, (3, 60))
    prompts = [row[:n].tolist() for row, n in zip(tokens, length, strict=True)]
    expected = their_greedy(theirs, prompts)
    assert sum(map(len, expected)) > PROMPTS * NEW_TOKENS // 3  # not all ended at once
    rows = zip(prompts, our_greedy(ours, prompts), expected, strict=True)
    parted = [row for row in rows if row[1] != row[2]]
    assert len(parted) <= MOST_TIES
    for prompt, own, other in parted:
        assert their_lead(theirs, prompt, own, other) < TIED


def their_lead(model: Any, prompt: list[int], own: list[int], other: list[int]) -> float:
    """How far apart, in double precision, the logits of the first tokens are that differ."""
    at = next(i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b)
    logits = GOLDEN["logits"](copy.deepcopy(reset(model)).double(), np.array([prompt + own[:at]]))
    return abs(logits[0, -1, own[at]] - logits[0, -1, other[at]])


def test_an_exported_model_loads_in_transformers_and_here_unchanged(
    pair: Any, tmp_path: Path
) -> None:
    theirs, ours, _ = pair
    huggingface.save(
        tmp_path / "exported", ours.model, ours.params, original_config=ours.original_config
    )
    again = load(tmp_path / "exported")
    assert again.model == ours.model
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", dtype=torch.float32)
    tokens, _ = random_rows(3, (50, 51))
    # PyTorch's grouped products of experts round by how their weights lie in memory.
    np.testing.assert_allclose(
        GOLDEN["logits"](exported.eval(), tokens),
        GOLDEN["logits"](reset(theirs), tokens),
        rtol=0,
        atol=1e-5 * bool(getattr(theirs.config, "num_experts", 0)),
    )


def test_an_exported_drafter_assists_in_transformers(pair: Any, tmp_path: Path) -> None:
    """As `assistant_model` of a target that differs from it: the target's own tokens come out."""
    theirs, ours, _ = pair
    if theirs._is_stateful:
        pytest.skip("transformers rewinds no recurrent state")
    drafter = jax.tree.map(lambda x: x * 0.95, ours.params)
    huggingface.save(tmp_path / "drafter", ours.model, drafter)
    assistant = AutoModelForCausalLM.from_pretrained(tmp_path / "drafter", dtype=torch.float32)
    prompt = torch.tensor([[5, 9, 17, 4, 33]])
    settings = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "max_new_tokens": 24}
    plain = reset(theirs).generate(prompt, **settings)
    assisted = reset(theirs).generate(prompt, assistant_model=assistant, **settings)
    assert assisted.tolist() == plain.tolist()


def test_the_text_part_of_a_gemma3_that_sees_gives_its_logits(tmp_path: Path) -> None:
    text = {**WIDE, "sliding_window": 12, "vocab_size": VOCABULARY, "rope_parameters": TWO_ROPES}
    sees = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    whole = Gemma3Config(text_config=text, vision_config=sees, mm_tokens_per_image=4)
    theirs = Gemma3ForConditionalGeneration(whole).eval()
    GOLDEN["randomize"](theirs, torch.Generator().manual_seed(5))
    theirs.save_pretrained(tmp_path / "whole")
    ours = load(tmp_path / "whole")
    tokens, length = random_rows(3, (40, 41))
    made = ours.model.module.apply({"params": ours.params}, tokens, length)
    close(made, GOLDEN["logits"](theirs, tokens))
    huggingface.save(
        tmp_path / "text", ours.model, ours.params, original_config=ours.original_config
    )
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "text", dtype=torch.float32)
    assert type(exported) is Gemma3ForCausalLM
    close(made, GOLDEN["logits"](exported.eval(), tokens))


QUESTIONS = [
    "Q: Tom has 3 boxes with 12 apples each. He eats 5. How many apples are left?\nA:",
    "Q: A train goes 60 miles in one hour. How far does it go in 4 hours?\nA:",
    "Q: Anna buys 2 books for $7 each and pays with $20. How much does she get back?\nA:",
]


@needs_shared
@pytest.mark.parametrize("name", ["llama-gsm8k-target", "llama-gsm8k-drafter"])
def test_trained_checkpoints_answer_as_in_pytorch(name: str) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32)
    prompts = load_tokenizer(MODELS / name)(QUESTIONS).input_ids
    assert our_greedy(load(MODELS / name), prompts) == their_greedy(theirs, prompts)
