"""Changes of single fields of decoder-only families that are tables of what differs from Llama.

Each is tried with every field of its own, and with what its class fills in where a field is gone.
"""

from __future__ import annotations

from typing import Any

from mutations import (
    BIASES,
    FULL,
    GONE,
    INFINITE,
    LATENT,
    RECURRENT,
    ROPE_BASE,
    SAME_NUMBER,
    SLIDING,
    YARN,
    Mutation,
    each,
    rope,
)

END, VOCABULARY = 5, 64
SPECIAL = {"bos_token_id": 1, "eos_token_id": END, "pad_token_id": 0}
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
    **SPECIAL,
}  # fmt: skip
HEADED = SHAPE | {"head_dim": 8}
FALCONS = {
    name: value for name, value in SHAPE.items()
    if name not in ("intermediate_size", "num_key_value_heads")
}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MAMBA_SHAPE = {"mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_expand": 2}
WINDOWED = {"sliding_window": 6, "layer_types": SLIDING}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
TWO = {"full_attention": YARN | {"rope_theta": 500.0}, "sliding_attention": {"rope_theta": 50.0}}

COMMON: list[Mutation] = [
    *each("hidden_act", "gelu", "no_such", GONE),
    *each("tie_word_embeddings", True, False, None, GONE),
    *each("num_key_value_heads", 2, 3, None, GONE),
    *each("head_dim", 4, 16, GONE),
    Mutation({"head_dim": None}, fails_there="there null is no word for the default"),
    *each("rope_theta", 70.0, GONE, rope_parameters=GONE),
    *each("eos_token_id", [END, 9], None, GONE),
    *each("pad_token_id", None),
    Mutation({"pad_token_id": GONE}, fails_there="its class's default is no token of so few"),
    *each("attention_dropout", 0.5),
    *each("no_such_field", 1),
]
"""Of every family here."""

WHOLE: list[Mutation] = [
    *COMMON,
    *each("rope_scaling", {"type": "linear", "factor": 3.0}, rope_parameters=GONE),
    *each("rope_parameters", YARN, LINEAR, GONE, None),
    *each("partial_rotary_factor", 0.5),
    *rope(**ROPE_BASE, original_max_position_embeddings=16),
]
"""Of families that rotate whole heads."""

PARTLY: list[Mutation] = [
    *COMMON,
    *each("partial_rotary_factor", 0.5, 0.25, 1.0, 0.3, 0, "0.5", None, rope_parameters=GONE),
    *each("partial_rotary_factor", 0.75),
    *each("rope_parameters", GONE, None, {}, LINEAR),
    *each("rope_parameters", *({"partial_rotary_factor": share} for share in (1.0, 0.25, 0, None))),
    *each("rope_scaling", {"type": "linear", "factor": 3.0}, rope_parameters=GONE),
    *rope(**YARN, partial_rotary_factor=0.5),
]
"""Of families that rotate a share of each head."""

MIXED: list[Mutation] = [
    *each("sliding_window", 3, 0, "6", None, GONE),
    *each("layer_types", SLIDING[::-1], SLIDING[1:] * 2, SLIDING[:1] * 2, SLIDING[1:]),
    *each("layer_types", ["odd"] * 2, None, GONE),
]
"""Of families some of whose layers have a window."""

UNWINDOWED: list[Mutation] = [*each("sliding_window", 3), *each("layer_types", SLIDING)]
RMS: list[Mutation] = [*each("rms_norm_eps", 1e-2, 0.0, None, GONE), *each("layer_norm_eps", 0.1)]
NORMS: list[Mutation] = [*each("layer_norm_eps", 1e-2, 0.0, GONE), *each("rms_norm_eps", 0.1)]

OLMO: list[Mutation] = [
    *WHOLE,
    *BIASES,
    *UNWINDOWED,
    *each("clip_qkv", 0.1, 0, -1.0, "1", GONE),
    Mutation({"clip_qkv": 3}, fails_there=SAME_NUMBER),
    *each("rms_norm_eps", 0.1),
    *each("layer_norm_eps", 0.1),
]
OLMO3: list[Mutation] = [
    *COMMON,
    *BIASES,
    *MIXED,
    *RMS,
    *each("rope_parameters", TWO, {}, None, GONE, {"full_attention": {"rope_theta": 70.0}}),
    *each("rope_parameters", TWO | {"sliding_attention": LINEAR}),
    *each("rope_parameters", LINEAR, [], "linear"),
    *each("rope_scaling", YARN, None, [1], rope_parameters=GONE),
    *each("rope_local_base_freq", 70.0, rope_parameters=GONE),
]
EXAONE4: list[Mutation] = [
    *WHOLE,
    *MIXED,
    *RMS,
    *each("sliding_window", None, layer_types=SLIDING[:1] * 2),
    *each("sliding_window_pattern", 1, 2, 0, "LG", None, layer_types=GONE),
    *each("sliding_window_pattern", "LG", None),
    Mutation(
        {"sliding_window": None, "layer_types": GONE},
        fails_there="it divides by the pattern that it sets to 0",
    ),
    *each("attention_bias", True),
]
FACTORS: list[Mutation] = [
    *each("embedding_multiplier", 12, 0, "1", None, GONE),
    *each("attention_multiplier", 0.015625, 0.0, -1.0, GONE),
    *each("residual_multiplier", 0.22, 1, 0.0, GONE),
    *each("logits_scaling", 8.0, 0.5, 0, None, GONE),
]
GRANITE: list[Mutation] = [*WHOLE, *BIASES, *UNWINDOWED, *RMS, *FACTORS]
GRANITE_MOE: list[Mutation] = [
    *each("num_local_experts", 2, 0, None, "4"),
    *each("num_experts_per_tok", 1, 4, 0, 5, GONE, None),
    *each("intermediate_size", 8, GONE),
    *each("attention_bias", True, None, GONE),
    *each("router_aux_loss_coef", 0.5),
    *each("output_router_logits", True),
    *each("mlp_bias", True),
    *each("logits_scaling", 8.0),
    *each("attention_multiplier", 0.015625, GONE),
]
GRANITE_SHARED: list[Mutation] = [
    *each("shared_intermediate_size", 8, 0, GONE, None, "8"),
    *each("num_experts_per_tok", 1),
]
MAMBA: list[Mutation] = [
    *each("mamba_n_heads", 2, 8, 3, 0, GONE, None),
    *each("mamba_n_groups", 1, 4, 3, 0, GONE, None),
    *each("mamba_d_state", 8, 0, GONE, None),
    *each("mamba_d_head", 8, 4, "auto", "8", GONE, None),
    *each("mamba_d_conv", 3, 1, GONE, None),
    *each("mamba_expand", 1, 3, 0, GONE, None),
    *each("mamba_expand", 1, mamba_d_head=4),
    *each("mamba_chunk_size", 3, GONE),
    *each("mamba_conv_bias", True, False, GONE, None),
    *each("mamba_proj_bias", True, None, GONE),
    *each("time_step_limit", [0.0, INFINITE], [0.1, 0.5], [0.0, 0.5], None, GONE, 1.0),
    *each("time_step_min", 0.5),
    *each("use_mamba_kernels", False),
]
"""Of families with Mamba-2 layers."""
BLOCKS = ["mamba", "attention"]
GRANITE_HYBRID: list[Mutation] = [
    *MAMBA,
    *GRANITE_MOE,
    *GRANITE_SHARED,
    *RMS,
    *each("layer_types", BLOCKS, BLOCKS[::-1], BLOCKS[1:] * 2, BLOCKS[1:], SLIDING, "x"),
    *each("layers_block_type", BLOCKS, layer_types=GONE),
    *each("layers_block_type", BLOCKS[::-1]),
    *each("position_embedding_type", "rope", "nope", "alibi", None, GONE, 1),
    *each("rope_parameters", YARN, LINEAR, GONE, position_embedding_type="rope"),
    *each("rope_theta", 70.0, rope_parameters=GONE, position_embedding_type="rope"),
    *each("num_local_experts", 0, num_experts_per_tok=0),
    *each("hidden_act", "gelu", "no_such"),
    *each("tie_word_embeddings", True, None),
    *each("head_dim", 4, GONE),
    *each("sliding_window", 3),
]
BAMBA: list[Mutation] = [
    *MAMBA,
    *BIASES,
    *RMS,
    *COMMON,
    *each("attn_layer_indices", [0], [0, 1], [1, 7], [-1], 1, "1", [0.5]),
    *each("partial_rotary_factor", 0.25, 0.5, 1.0, "0.5", None),
    *each("rope_parameters", GONE, None, {}, LINEAR, LINEAR | {"partial_rotary_factor": 1.0}),
    *each("rope_parameters", *({"partial_rotary_factor": share} for share in (0.25, 0, None))),
    *each("num_logits_to_keep", 3),
    Mutation({"num_logits_to_keep": None}, fails_there="it cannot take the last of all logits"),
    *each("z_loss_coefficient", 0.5),
    *each("layer_types", [RECURRENT, FULL]),
    *each("sliding_window", 3),
]
RECURRENT_GEMMA: list[Mutation] = [
    *RMS[:2],
    *each("lru_width", 16, 24, 15, 0, None, GONE),
    *each("attention_window_size", 3, 0, None, GONE),
    *each("sliding_window", 3, attention_window_size=GONE),
    *each("conv1d_width", 3, 1, None, GONE),
    *each("block_types", ["recurrent", "attention"], ["attention"], [], ["odd"], None, "x", GONE),
    *each("layer_types", [RECURRENT, FULL]),
    *each("logits_soft_cap", 3.0, 0, None, GONE),
    *each("hidden_activation", "silu", "no_such", None, GONE),
    *each("intermediate_size", 25, 1, GONE),
    *each("partial_rotary_factor", 0.25, 1.0, 0, None, rope_parameters=GONE),
    *each("rope_parameters", LINEAR, {"partial_rotary_factor": 1.0}, GONE, None),
    *each("attention_bias", True, None),
    *each("num_key_value_heads", 2, 3, None, GONE),
    *each("head_dim", 4),
    *each("tie_word_embeddings", False, GONE),
    *each("w_init_variance_scale", 0.5),
    *each("final_w_init_variance_scale", 0.5),
]
NEMOTRON_KINDS = [RECURRENT, "mlp", FULL, "moe"]
NEMOTRON_H: list[Mutation] = [
    *each("layers_block_type", NEMOTRON_KINDS[::-1], ["mamba", "attention", "moe"], [], "M", ["x"]),
    *each("layers_block_type", [1], None, GONE),
    *each("layer_types", NEMOTRON_KINDS[:3], layers_block_type=GONE),
    *each("hybrid_override_pattern", "M*E", "*-", "", "MX", 3, layers_block_type=GONE),
    *each("hybrid_override_pattern", "M*E"),
    *each("num_hidden_layers", 2, 9),
    *each("mamba_num_heads", 2, 8, 3, 0, None, GONE),
    *each("mamba_head_dim", 8, 0, None, GONE),
    *each("ssm_state_size", 8, 0, GONE),
    *each("n_groups", 1, 4, 3, 0, None, GONE),
    *each("mamba_n_groups", 4, 2),
    *each("mamba_n_groups", 4, n_groups=GONE),
    *each("conv_kernel", 3, 1, GONE, None),
    *each("mamba_d_conv", 3, conv_kernel=GONE),
    *each("use_conv_bias", False, None, GONE),
    *each("use_bias", True, None, GONE),
    *each("mamba_proj_bias", True),
    *each("mamba_hidden_act", "gelu", "no_such", None, GONE),
    *each("mlp_hidden_act", "silu", "no_such", None, GONE),
    *each("mlp_bias", True, None, GONE),
    *each("expand", 3),
    *each("chunk_size", 3),
    *each("time_step_min", 0.0, 0.002, -0.1, "x", None, GONE),
    *each("time_step_limit", [0.1, 0.5]),
    *each("time_step_max", 0.5),
    *each("layer_norm_epsilon", 1e-2, 0.0, None, GONE),
    *each("attention_bias", True),
    *each("num_key_value_heads", 2, 3, None, GONE),
    *each("head_dim", 4, GONE, None),
    *each("sliding_window", 3),
    *each("rope_theta", 70.0),
    *each("rope_parameters", LINEAR),
    *each("intermediate_size", 12, 0, GONE),
    *each("n_routed_experts", 2, 8, 0, GONE),
    *each("num_local_experts", 8, n_routed_experts=GONE),
    *each("num_experts_per_tok", 1, 3, 7, 0, GONE),
    *each("moe_intermediate_size", 8, 0, GONE),
    *each("moe_shared_expert_intermediate_size", 8, 0, None, GONE),
    *each("moe_latent_size", 4, 0, None, GONE),
    *each("n_shared_experts", 3),
    *each("routed_scaling_factor", 0.5, 0, None, GONE),
    *each("n_group", 1, 2, 6, 0),
    *each("topk_group", 1, 3, 4, 0),
    *each("norm_topk_prob", False, None, GONE),
    *each("tie_word_embeddings", True),
    *each("num_logits_to_keep", 3),
    *each("num_nextn_predict_layers", 1),
    *each("residual_in_fp32", True),
    *each("hidden_dropout", 0.5),
]
SCALES = "short_mscale", "long_mscale"
SCALED = {
    "rope_type": "longrope", "rope_theta": 500.0, "original_max_position_embeddings": 8,
    "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [4.0] * 4,
    **dict.fromkeys(SCALES, 1.3),
}  # fmt: skip
PHIMOE: list[Mutation] = [
    *RMS,
    *each("num_local_experts", 2, 1, 0, None),
    *each("num_experts_per_tok", 1, 2, 3, None, GONE),
    *each("router_jitter_noise", 0.0, 0.3, -0.1, 2.0, None, GONE),
    Mutation({"router_jitter_noise": 1}, fails_there=SAME_NUMBER),
    *each("input_jitter_noise", 0.5),
    *each("output_router_logits", True),
    *each("attention_bias", False, None, GONE),
    *each("lm_head_bias", False, None, GONE),
    *each("tie_word_embeddings", True),
    *each("tie_word_embeddings", True, lm_head_bias=False),
    *each("sliding_window", 3, None, GONE, 0),
    *each("layer_types", SLIDING),
    *each("rope_theta", GONE, 500.0, rope_parameters=GONE),
    *each("rope_parameters", None, GONE, YARN, SCALED | {"long_mscale": 1.5}),
    *each("rope_parameters", *(SCALED | dict.fromkeys(SCALES, one) for one in (0.7, None))),
    *each("rope_parameters", SCALED | {"attention_factor": 3.0, "factor": 5.0}),
    *each("rope_parameters", SCALED | {"long_factor": [1.0] * 4, "rope_theta": 50.0}),
    *each("rope_scaling", SCALED, SCALED | {"rope_type": "yarn"}, rope_parameters=GONE),
    *each("original_max_position_embeddings", 32),
]
CHUNKS = ["chunked_attention", FULL]
ONE_BOUND = {
    "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
"""Published Llama 4 divides the waves from one length on."""
LLAMA4: list[Mutation] = [
    *COMMON,
    *RMS,
    *each("rope_scaling", ONE_BOUND, ONE_BOUND | {"high_freq_factor": 0.5}, rope_parameters=GONE),
    *each("rope_scaling", {"type": "linear", "factor": 3.0}, rope_parameters=GONE),
    *each("rope_parameters", YARN, LINEAR, GONE, None),
    *each("partial_rotary_factor", 0.5),
    *each("attention_bias", True, None),
    *each("intermediate_size", 12, 0, GONE),
    *each("intermediate_size_mlp", 12, 0, GONE),
    *each("num_local_experts", 2, 0, None, GONE),
    *each("num_experts_per_tok", 2, 4, 5, 0, None, GONE),
    *each("moe_layers", [0], [0, 1], [], [7, -1], None, "0", [0.5], 1, GONE),
    *each("interleave_moe_layer_step", 1, 2, 3, 0, -1, moe_layers=GONE),
    *each("use_qk_norm", False, None, GONE),
    *each("no_rope_layers", [0, 1], [0, 0], [1, 1, 0], [1], [], None, GONE, "01", [2, 1]),
    *each("no_rope_layers", [0, 1], [1, 1], layer_types=GONE),
    *each("no_rope_layer_interval", 1, 2, 0, no_rope_layers=GONE, layer_types=GONE),
    *each("layer_types", CHUNKS[::-1], CHUNKS[:1] * 2, CHUNKS[1:], SLIDING, None, GONE, "x"),
    *each("attention_chunk_size", 3, 2, 0, -1, None, GONE, "6"),
    *each("attention_chunk_size", None, layer_types=GONE),
    *each("sliding_window", 3),
    *each("attn_temperature_tuning", False, None, GONE),
    *each("floor_scale", 1, 5, 0, None, GONE),
    *each("attn_scale", 0.1, 0.0, -0.5, None, "1", GONE),
    *each("output_router_logits", True),
    *each("router_jitter_noise", 0.5),
]
BLOOM: list[Mutation] = [
    *UNWINDOWED,
    *each("hidden_size", 15, 0, GONE),
    *each("n_embed", 24, 16),
    *each("n_embed", 24, hidden_size=GONE),
    *each("num_attention_heads", 4, 2),
    *each("n_head", 4, 3, 0),
    *each("n_layer", 1, 0),
    *each("layer_norm_epsilon", 1e-2, 0.0, None, GONE),
    *each("tie_word_embeddings", False, None, GONE),
    *each("apply_residual_connection_post_layernorm", True, False, None),
    *each("hidden_dropout", 0.5),
    *each("slow_but_exact", True, pretraining_tp=2),
    *each("eos_token_id", [END, 9], None, GONE),
]
ATTENTION = {"clip_qkv": 1.5, "softmax_scale": 0.6}
UNREAD = "attn_uses_sequence_id", "prefix_lm", "qk_ln"
MPT: list[Mutation] = [
    *UNWINDOWED,
    *each("d_model", 15, 0, GONE),
    *each("hidden_size", 16, 24),
    *each("n_heads", 4, 3, 0),
    *each("layer_norm_epsilon", 1e-2, 0.0, None, GONE),
    *each("tie_word_embeddings", False, None, GONE),
    *each("expansion_ratio", 2, 4, None),
    *each("no_bias", False, None),
    *each("logit_scale", 0.5, None, "inv_sqrt_d_model"),
    *each("learned_pos_emb", False, None),
    *each("norm_type", "rmsnorm"),
    *each("attn_config", None, {}, GONE, [], "x", *(ATTENTION | {word: True} for word in UNREAD)),
    *each("attn_config", *(ATTENTION | {"clip_qkv": x} for x in (0.0, 0.3, -1.0, "1", None))),
    *each("attn_config", *(ATTENTION | {"softmax_scale": x} for x in (0.2, None, "1"))),
    *each("attn_config", ATTENTION | {"alibi": False}, ATTENTION | {"alibi_bias_max": 4}),
    *each("attn_config", ATTENTION | {"attn_type": "multiquery_attention", "attn_impl": "flash"}),
    *each("eos_token_id", [END, 9], None, GONE),
]
GLM: list[Mutation] = [
    *PARTLY,
    *UNWINDOWED,
    *RMS,
    *each("attention_bias", False, None, GONE),
    *each("mlp_bias", True),
]
COHERE2: list[Mutation] = [
    *WHOLE,
    *NORMS,
    *MIXED,
    *BIASES[:2],
    *each("logit_scale", 0.0625, 0.0, "1", GONE),
    Mutation({"logit_scale": 1}, fails_there=SAME_NUMBER),
    *each("sliding_window_pattern", 1, 2, 0, layer_types=GONE),
    *each("use_qk_norm", True),
]
COHERE: list[Mutation] = [
    *WHOLE,
    *NORMS,
    *UNWINDOWED,
    *BIASES[:2],
    *each("logit_scale", 0.0625, 0.0, None, GONE),
    Mutation({"logit_scale": 1}, fails_there=SAME_NUMBER),
    *each("use_qk_norm", False, None, GONE),
]
STARCODER2: list[Mutation] = [
    *WHOLE,
    *each("norm_epsilon", 1e-2, 0.0, GONE),
    *each("use_bias", None, GONE),
    *each("sliding_window", 3, None, GONE, 0),
    *each("layer_types", SLIDING[1:] * 2, SLIDING),
    *each("residual_dropout", 0.5),
    *each("mlp_type", "default"),
]
STABLELM: list[Mutation] = [
    *PARTLY,
    *NORMS,
    *UNWINDOWED,
    *each("use_qkv_bias", True, None, GONE),
    *each("qk_layernorm", False, None, GONE),
    *each("use_parallel_residual", True, None, GONE),
    *each("hidden_dropout", 0.5),
]
PHI: list[Mutation] = [
    *PARTLY,
    *NORMS,
    *UNWINDOWED,
    *each("qk_layernorm", False, None, GONE),
    *each("resid_pdrop", 0.5),
    *each("embd_pdrop", 0.5),
]
FALCON: list[Mutation] = [
    *each("activation", "relu", "no_such", None, GONE),
    *each("alibi", True, False, None),
    *each("bias", True, None, GONE),
    *each("ffn_hidden_size", 24, None, 0, GONE),
    *each("head_dim", 4),
    Mutation({"head_dim": 8}, fails_there="its class has that property, which nothing sets"),
    *each("hidden_dropout", 0.5),
    *each("layer_norm_epsilon", 1e-2, 0.0, None, GONE),
    *each("multi_query", False, None, GONE),
    *each("n_embed", 16, 24),
    *each("n_embed", 16, hidden_size=GONE),
    *each("new_decoder_architecture", True, None, GONE),
    *each("num_kv_heads", 1, 2, None, 3),
    *each("num_kv_heads", 1, 2, new_decoder_architecture=False),
    *each("num_kv_heads", 1, 2, new_decoder_architecture=False, multi_query=False),
    *each("num_ln_in_parallel_attn", 1, 2, 3, None, GONE, True),
    *each("num_ln_in_parallel_attn", 1, 2, new_decoder_architecture=False),
    *each("parallel_attn", False, None, GONE),
    *each("parallel_attn", False, new_decoder_architecture=False),
    *each("rope_theta", 70.0, GONE, rope_parameters=GONE),
    *each("rope_parameters", YARN, LINEAR, GONE, None),
    *each("tie_word_embeddings", False, None, GONE),
    *each("eos_token_id", [END, 9], None, GONE),
    *UNWINDOWED,
]
MINISTRAL: list[Mutation] = [
    *(change for change in WHOLE if change.config != {"head_dim": GONE}),
    Mutation({"head_dim": GONE}, fails_there="its class's default is null, which nothing replaces"),
    *MIXED,
    *RMS,
    *each("attention_bias", True),
]
GROWING = YARN | {"llama_4_scaling_beta": 0.3, "mscale": 1.0, "mscale_all_dim": 1.0}
MINISTRAL3: list[Mutation] = [
    *COMMON,
    *RMS,
    *each("rope_parameters", None, GONE, {}, YARN, LINEAR | {"llama_4_scaling_beta": 0.3}),
    *each("rope_parameters", *(GROWING | {"llama_4_scaling_beta": x} for x in (0, 2, -1.0, None))),
    *each("rope_parameters", *(GROWING | {"llama_4_scaling_beta": x} for x in ("1", True))),
    *each("rope_parameters", GROWING | {"original_max_position_embeddings": 4}),
    *each("rope_parameters", GROWING | {"mscale": 0.7, "mscale_all_dim": 0.3}),
    *each("rope_scaling", GROWING, rope_parameters=GONE),
    *each("original_max_position_embeddings", 8),
    *each("sliding_window", 3, None, GONE, 0),
    *each("layer_types", SLIDING),
]
MISTRAL4: list[Mutation] = [
    *LATENT,
    *each("rope_interleave", False, None, GONE),
    *each("rope_parameters", None, GONE, {}, LINEAR | {"llama_4_scaling_beta": 0.3}),
    *each("rope_parameters", *(GROWING | {"llama_4_scaling_beta": x} for x in (0, 2, -1.0, None))),
    *each("rope_parameters", *(GROWING | {"partial_rotary_factor": x} for x in (0.75, 0.5, "1"))),
    *each("rope_parameters", GROWING | {"mscale": 0.7, "mscale_all_dim": 0.3}),
    *each("rope_scaling", GROWING, rope_parameters=GONE),
    *each("qk_head_dim", 4),
    *each("num_mtp_layers", 3),
]
KINDS = {
    "full_attention": {
        "rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 500.0,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}  # fmt: skip
LAYER = {"head_dim": 4, "num_key_value_heads": 1}
GEMMA4: list[Mutation] = [
    *RMS,
    *MIXED,
    *each("hidden_activation", "silu", "no_such", None, GONE),
    *each("tie_word_embeddings", False, None, GONE),
    *each("num_key_value_heads", 1, 3),
    *each("head_dim", 4, 8, GONE),
    *each("attention_k_eq_v", True, None, GONE),
    *each("per_layer_config", {"0": LAYER}, {"1": {"head_dim": 8, "num_key_value_heads": 1}}),
    *each("per_layer_config", {}, None, {"2": LAYER}, {"0": {"hidden_act": "silu"}}, [], "1"),
    *each("per_layer_config", {"0": {"head_dim": 0}}, {"0": {"head_dim": "8"}}, {"x": LAYER}),
    *each("global_head_dim", 4, 8, GONE, per_layer_config=GONE),
    *each("num_global_key_value_heads", 1, 2, 3, None, global_head_dim=8, per_layer_config=GONE),
    *each("rope_parameters", KINDS, None, GONE, {}, {"full_attention": KINDS["full_attention"]}),
    *each("rope_parameters", KINDS | {"sliding_attention": LINEAR}),
    *each("rope_parameters", KINDS | {"sliding_attention": {"rope_type": "default"}}),
    *each("rope_parameters", LINEAR, [], "linear"),
    *each("rope_theta", 70.0),
    *each("rope_scaling", LINEAR),
    *each("final_logit_softcapping", 2.0, 0.0, GONE),
    *each("use_bidirectional_attention", "vision", "all", None, True),
    *each("hidden_size_per_layer_input", 8, GONE, None),
    *each("num_kv_shared_layers", 1, 0, GONE),
    *each("enable_moe_block", True, None),
    *each("num_experts", 4),
    *each("use_double_wide_mlp", True),
    *each("attention_bias", True),
    *each("query_pre_attn_scalar", 9),
    *each("eos_token_id", [END, 9], None),
]
GEMMA4_SMALL: list[Mutation] = [
    *each("num_kv_shared_layers", 0, 1, 3, 4, -1, "2", None, GONE),
    *each("layer_types", [*SLIDING, *SLIDING[::-1]], SLIDING[:1] * 4, SLIDING[1:] * 4),
    *each("per_layer_config", {"3": LAYER}, {}, GONE),
    *each("use_double_wide_mlp", False, True, None, GONE),
    *each("hidden_size_per_layer_input", 0, 4, GONE, None, -1),
    *each("vocab_size_per_layer_input", 32, 80, GONE, None),
    *each("intermediate_size", 16),
    *each("hidden_activation", "silu"),
    *each("rms_norm_eps", 0.1),
    *each("sliding_window", 3),
    *each("attention_k_eq_v", True),
]
GEMMA3N: list[Mutation] = [
    *COMMON,
    *RMS,
    *each("hidden_activation", "silu", "no_such", None, GONE),
    *each("sliding_window", 3, 0, "6", None, GONE),
    *each("layer_types", [*SLIDING, *SLIDING[::-1]], SLIDING[:1] * 4, SLIDING[1:] * 4),
    *each("layer_types", ["odd"] * 4, SLIDING, None, GONE),
    *each("rope_parameters", TWO, {"full_attention": {"rope_theta": 70.0}}, None, {}, GONE, []),
    *each("rope_parameters", TWO | {"sliding_attention": LINEAR}),
    *each("rope_scaling", LINEAR, rope_parameters=GONE),
    *each("rope_local_base_freq", 70.0, None, rope_parameters=GONE),
    *each("final_logit_softcapping", 2.0, None, GONE, 0.0, "30"),
    *each("attention_bias", True, None),
    *each("intermediate_size", 16, [24, 16, 24, 20], [24] * 4, [24] * 3, [24, 0, 24, 24], "24", []),
    *each("activation_sparsity_pattern", [0.5, 0.0, 0.9, 0.2], None, GONE, [0.5] * 3, 0.5),
    *each("activation_sparsity_pattern", [0.5, 0.0, 1.0, 0.2], [0.5, 0.0, -0.1, 0.2], ["0"] * 4),
    *each("num_kv_shared_layers", 0, 1, 3, 4, 5, -1, "2", None, GONE),
    *each("hidden_size_per_layer_input", 4, 0, GONE, None, -1),
    *each("vocab_size_per_layer_input", 32, 80, 0, GONE, None),
    *each("altup_num_inputs", 1, 2, 0, None, GONE, "3"),
    *each("altup_active_idx", 1, 3, -1, None, GONE),
    *each("altup_correct_scale", False, None, 1, GONE),
    *each("altup_coef_clip", 0.01, None, GONE),
    *each("laurel_rank", 4, 0, None, GONE),
    *each("use_bidirectional_attention", True, False),
    *each("query_pre_attn_scalar", 9),
]
WIDE = {"global_head_dim": 8, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 64}

DECODERS: dict[str, tuple[str, dict[str, Any], list[Mutation]]] = {
    "olmo": ("olmo", HEADED | {"clip_qkv": 1.0}, OLMO),
    "olmo3": ("olmo3", HEADED | WINDOWED, OLMO3),
    "exaone4": ("exaone4", HEADED | WINDOWED, EXAONE4),
    "granite": ("granite", HEADED | {"logits_scaling": 2.0, "residual_multiplier": 0.7}, GRANITE),
    "granitemoe": ("granitemoe", HEADED | EXPERTS, GRANITE_MOE + RMS + UNWINDOWED),
    "granitemoeshared": (
        "granitemoeshared",
        HEADED | EXPERTS | {"shared_intermediate_size": 12},
        GRANITE_SHARED,
    ),
    "granitemoehybrid": (
        "granitemoehybrid",
        HEADED
        | EXPERTS
        | MAMBA_SHAPE
        | {"layer_types": [RECURRENT, FULL], "shared_intermediate_size": 12},
        GRANITE_HYBRID,
    ),
    "bamba": ("bamba", HEADED | MAMBA_SHAPE | {"attn_layer_indices": [1]}, BAMBA),
    "recurrent_gemma": (
        "recurrent_gemma",
        SHAPE
        | {"attention_window_size": 6, "lru_width": 16, "logits_soft_cap": 9.0}
        | {"block_types": ["attention", "recurrent"]},
        RECURRENT_GEMMA,
    ),
    "bloom": (
        "bloom",
        {"vocab_size": VOCABULARY, "hidden_size": 16, "n_layer": 2, "n_head": 2, **SPECIAL},
        BLOOM,
    ),
    "mpt": (
        "mpt",
        {"vocab_size": VOCABULARY, "d_model": 16, "n_layers": 2, "n_heads": 2, **SPECIAL}
        | {"max_seq_len": 64, "attn_config": ATTENTION},
        MPT,
    ),
    "nemotron_h": (
        "nemotron_h",
        {name: value for name, value in HEADED.items() if name != "num_hidden_layers"}
        | {"mamba_num_heads": 4, "mamba_head_dim": 4, "ssm_state_size": 6, "n_groups": 2}
        | {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
        | {"n_group": 3, "topk_group": 2, "moe_shared_expert_intermediate_size": 20}
        | {"moe_latent_size": 8, "layers_block_type": NEMOTRON_KINDS},
        NEMOTRON_H,
    ),
    "phimoe": (
        "phimoe",
        HEADED
        | {"num_local_experts": 4, "attention_bias": True, "lm_head_bias": True}
        | {"sliding_window": 6, "rope_parameters": SCALED},
        PHIMOE,
    ),
    "llama4": (
        "llama4_text",
        HEADED
        | {"intermediate_size_mlp": 20, "num_local_experts": 4, "moe_layers": [1]}
        | {"no_rope_layers": [1, 0], "layer_types": CHUNKS, "attention_chunk_size": 6}
        | {"floor_scale": 3, "attn_scale": 0.8},
        LLAMA4,
    ),
    "glm": ("glm", HEADED, GLM),
    "glm4": ("glm4", HEADED, GLM),
    "cohere": ("cohere", SHAPE | {"use_qk_norm": True, "logit_scale": 0.5}, COHERE),
    "cohere2": ("cohere2", SHAPE | WINDOWED | {"logit_scale": 0.5}, COHERE2),
    "starcoder2": ("starcoder2", SHAPE | {"sliding_window": 6}, STARCODER2),
    "stablelm": ("stablelm", SHAPE | {"qk_layernorm": True}, STABLELM),
    "phi": ("phi", SHAPE | {"qk_layernorm": True}, PHI),
    "falcon": ("falcon", FALCONS | {"new_decoder_architecture": True, "num_kv_heads": 1}, FALCON),
    "falcon_7b": ("falcon", FALCONS, each("parallel_attn", False) + each("multi_query", False)),
    "gemma4": (
        "gemma4_text",
        HEADED | WIDE | {"sliding_window": 6, "layer_types": SLIDING[::-1]},
        GEMMA4,
    ),
    "gemma4_small": (
        "gemma4_text",
        HEADED
        | WIDE
        | {"sliding_window": 6, "num_hidden_layers": 4, "num_kv_shared_layers": 2}
        | {"layer_types": SLIDING * 2, "hidden_size_per_layer_input": 8},
        GEMMA4_SMALL,
    ),
    "gemma3n": (
        "gemma3n_text",
        HEADED
        | {"sliding_window": 6, "num_hidden_layers": 4, "num_kv_shared_layers": 2}
        | {"layer_types": SLIDING * 2, "hidden_size_per_layer_input": 8, "laurel_rank": 6}
        | {"vocab_size_per_layer_input": 60, "altup_num_inputs": 3}
        | {"activation_sparsity_pattern": [0.6, 0.0, 0.3, 0.0]},
        GEMMA3N,
    ),
    "ministral": ("ministral", HEADED | WINDOWED, MINISTRAL),
    "ministral3": ("ministral3", HEADED | {"rope_parameters": GROWING}, MINISTRAL3),
    "mistral4": (
        "mistral4",
        SHAPE
        | {"kv_lora_rank": 10, "q_lora_rank": 8, "qk_nope_head_dim": 2, "qk_rope_head_dim": 6}
        | {"v_head_dim": 6, "num_key_value_heads": 2, "n_routed_experts": 6, "n_group": 3}
        | {"num_experts_per_tok": 2, "moe_intermediate_size": 12, "topk_group": 2}
        | {"n_shared_experts": 2, "routed_scaling_factor": 1.5, "rope_parameters": GROWING},
        MISTRAL4,
    ),
}
