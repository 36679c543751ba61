"""Hugging Face's tokens or one sentence: what happens when single fields of a config change.

A field that changes what Hugging Face computes must be obeyed or refused. Each mutation rewrites
the JSON beside one set of random weights; transformers and specjax read the same folder.
"""

from __future__ import annotations

import operator
from typing import Any

import pytest
from decoder_mutations import DECODERS
from mutations import (
    ALL,
    BART,
    BIASES,
    CAUSAL,
    CWM,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    ENDS,
    GEMMA,
    GEMMA1,
    GEMMA3,
    GLM4_MOE,
    GONE,
    GPT2,
    GPT_NEOX,
    GPT_OSS,
    HYBRID,
    MIXTRAL,
    OPT,
    PHI3,
    PHI4,
    QWEN2_MOE,
    QWEN_MOE,
    ROPE,
    SLIDING,
    SMOLLM3,
    T5,
    YARN,
    Mutation,
    check_alike,
    each,
    inside,
)
from relatives_mutations import (
    LED,
    LONGT5,
    M2M_100,
    MARIAN,
    MARIAN_TWO,
    MBART,
    MT5,
    OLMO2,
    PEGASUS,
    PEGASUS_X,
    SWITCH,
    UMT5,
)

pytest.importorskip("torch")

from mutated_checkpoints import END, PROMPTS, VOCABULARY, Checkpoint  # noqa: E402

pytestmark = pytest.mark.slow

SEEN = PROMPTS[1][2]
SPECIAL = {"bos_token_id": 1, "eos_token_id": END, "pad_token_id": 0}
LLAMA = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "max_position_embeddings": 64, **SPECIAL,
}  # fmt: skip
STRETCHED = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16, "rope_theta": 10_000.0,
}  # fmt: skip
SMALL_T5 = {
    "vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2,
    "num_heads": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16,
    "decoder_start_token_id": 0, "is_encoder_decoder": True, **SPECIAL,
}  # fmt: skip
SMALL_GPT2 = {
    "vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, **SPECIAL,
}  # fmt: skip
SMALL_BART = {
    "vocab_size": VOCABULARY, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20, "max_position_embeddings": 64, "decoder_start_token_id": 2,
    "forced_eos_token_id": None, **SPECIAL,
}  # fmt: skip
SMALL_NEOX = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 64, **SPECIAL,
}  # fmt: skip
SMALL_OPT = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "max_position_embeddings": 64, **SPECIAL,
}  # fmt: skip
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
    "linear_value_head_dim": 5, "layer_types": ["linear_attention", "full_attention"],
    "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5},
}  # fmt: skip
SMALL_EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "mlp_only_layers": [1],
}  # fmt: skip
DEEPSEEK_EXPERTS = {
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_group": 3,
    "topk_group": 2, "n_shared_experts": 2, "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 0,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 10, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 6,
    "v_head_dim": 6, "num_key_value_heads": 2,
}  # fmt: skip
SMALL_STACK = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "sliding_window": 6,
    "query_pre_attn_scalar": 9, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 9.0,
    **SPECIAL,
}  # fmt: skip
SMALL_TWO = {
    **SMALL_STACK, "attn_logit_softcapping": None,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
SMALL_EYES = {
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 2, "intermediate_size": 2,
        "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 2, "patch_size": 1,
    },
    "mm_tokens_per_image": 1, "eoi_token_index": 7,
}  # fmt: skip
WITHOUT_HEAD_DIM = {k: v for k, v in LLAMA.items() if k != "head_dim"}

STACKED = (
    each("vocab_size", 7)
    + each("decoder.eos_token_id", 9, GONE)
    + each("eos_token_id", GONE)
    + each("bos_token_id", GONE, 3, None)
    + each("decoder.bos_token_id", 3, bos_token_id=GONE)
    + each("decoder_start_token_id", 7)
    + ENDS
)
"""Of special tokens where both stacks have a configuration of their own."""

FAMILIES: dict[str, tuple[str, dict[str, Any], list[Mutation]]] = {
    "t5_v1_0": (
        "t5",
        SMALL_T5 | {"feed_forward_proj": "relu"},
        each("tie_word_embeddings", False, None, GONE, scale_decoder_outputs=GONE)
        + each("dense_act_fn", "gelu", "silu")
        + each("is_gated_act", True),
    ),
    "t5_v1_1": (
        "t5",
        SMALL_T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        T5 + ENDS[:-1],
    ),
    "mt5": ("mt5", SMALL_T5 | {"feed_forward_proj": "gated-gelu"}, MT5),
    "bart": (
        "bart",
        SMALL_BART,
        BART + ENDS + each("forced_eos_token_id", 5) + each("decoder_start_token_id", GONE),
    ),
    "mbart": ("mbart", SMALL_BART, MBART),
    "marian": ("marian", SMALL_BART, MARIAN),
    "marian_two": (
        "marian",
        SMALL_BART
        | {"share_encoder_decoder_embeddings": False, "vocab_size": 80}
        | {"decoder_vocab_size": VOCABULARY, "scale_embedding": True}
        | {"activation_function": "relu"},
        MARIAN_TWO,
    ),
    "led": (
        "led",
        SMALL_BART
        | {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64}
        | {"attention_window": 6, "global_tokens": 2},
        LED,
    ),
    "pegasus_x": (
        "pegasus_x",
        SMALL_BART | {"encoder_layers": 2, "block_size": 6, "num_global_tokens": 2},
        PEGASUS_X,
    ),
    "m2m_100": ("m2m_100", SMALL_BART, M2M_100),
    "pegasus": ("pegasus", SMALL_BART, PEGASUS),
    "longt5": (
        "longt5",
        SMALL_T5
        | {"feed_forward_proj": "gated-gelu", "encoder_attention_type": "transient-global"}
        | {"local_radius": 2, "global_block_size": 4},
        LONGT5,
    ),
    "switch_transformers": (
        "switch_transformers",
        SMALL_T5
        | {"num_decoder_layers": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
        | {"num_experts": 3},
        SWITCH,
    ),
    "umt5": ("umt5", SMALL_T5 | {"feed_forward_proj": "gated-gelu"}, UMT5),
    "t5gemma": (
        "t5gemma",
        {"encoder": SMALL_STACK, "decoder": SMALL_STACK | {"num_key_value_heads": 2}, **SPECIAL},
        [
            mutation
            for part in ("encoder", "decoder")
            for mutation in each(f"{part}.sliding_window", 3, None, GONE, 0, "6", 6.5)
            + each(f"{part}.layer_types", SLIDING, SLIDING[::-1], SLIDING[1:], None, GONE)
            + each(f"{part}.query_pre_attn_scalar", 4, 30, GONE, 0, "9", None)
            + each(f"{part}.attn_logit_softcapping", 0.5, None, GONE, 0.0, "2")
            + each(f"{part}.final_logit_softcapping", 3.0, None, GONE, 0.0)
            + each(f"{part}.hidden_activation", "silu", "no_such", None, GONE)
            + each(f"{part}.rope_scaling", {"rope_type": "linear", "factor": 3.0}, None)
            + each(f"{part}.rope_scaling", {"rope_type": "dynamic", "factor": 3.0})
            + each(f"{part}.rms_norm_eps", 0.1, GONE, None)
            + each(f"{part}.attention_bias", True, False)
            + each(f"{part}.head_dim", 4, None, GONE)
            + each(f"{part}.num_key_value_heads", 1, 3, GONE)
            + each(f"{part}.vocab_size", 32, GONE)
            + each(f"{part}.no_such_field", 1)
            + each(f"{part}.dropout_rate", 0.5)
            + each(f"{part}.tie_word_embeddings", False)
            + each(part, None, GONE, [])
        ]
        + each("tie_word_embeddings", False, None, GONE)
        + STACKED,
    ),
    "t5gemma2": (
        "t5gemma2",
        {
            "encoder": SMALL_EYES | {"text_config": SMALL_TWO},
            "decoder": SMALL_TWO | {"num_key_value_heads": 2},
            **SPECIAL,
        },
        [
            mutation
            for part in ("encoder.text_config", "decoder")
            for mutation in inside(part, GEMMA3)
            + each(f"{part}.rms_norm_eps", 0.1, GONE, None)
            + each(f"{part}.num_key_value_heads", 1, 3, GONE)
            + each(f"{part}.hidden_size", 12)
            + each(f"{part}.vocab_size", 32, GONE)
            + each(f"{part}.no_such_field", 1)
            + each(f"{part}.dropout_rate", 0.5)
            + each(part, None, GONE, [])
        ]
        + each("encoder.eoi_token_index", SEEN, 200, GONE, None, -1, "9")
        + each("encoder.eoi_token_id", SEEN)
        + each("encoder.eoi_token_id", SEEN, **{"encoder.eoi_token_index": GONE})
        + each("encoder.image_token_index", SEEN)
        + each("encoder.tie_word_embeddings", False)
        + each("encoder.no_such_field", 1)
        + each("encoder", None, GONE, [])
        + each("eoi_token_index", SEEN)
        + each("image_token_index", SEEN)
        + each("tie_word_embeddings", False, None, GONE)
        + STACKED,
    ),
    "gpt2": ("gpt2", SMALL_GPT2, GPT2 + ENDS),
    "gpt_neox": ("gpt_neox", SMALL_NEOX, GPT_NEOX + ENDS),
    "opt": ("opt", SMALL_OPT, OPT + ENDS),
    "opt_350m": (
        "opt",
        SMALL_OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 12},
        each("do_layer_norm_before", False, True, GONE)
        + each("word_embed_proj_dim", 12, 16, GONE)
        + each("_remove_final_layer_norm", True),
    ),
    "opt_bare": (
        "opt",
        SMALL_OPT | {"_remove_final_layer_norm": True, "tie_word_embeddings": False},
        each("_remove_final_layer_norm", True, False, GONE, None),
    ),
    "mixtral": ("mixtral", LLAMA | {"num_local_experts": 4}, MIXTRAL + ENDS[:-1]),
    "qwen3_moe": ("qwen3_moe", LLAMA | SMALL_EXPERTS, QWEN_MOE + ENDS[:-1]),
    "deepseek_v2": (
        "deepseek_v2",
        WITHOUT_HEAD_DIM | DEEPSEEK_EXPERTS | LATENT | {"topk_method": "group_limited_greedy"},
        DEEPSEEK_V2 + ENDS[:-1],
    ),
    "deepseek_v3": (
        "deepseek_v3",
        WITHOUT_HEAD_DIM | DEEPSEEK_EXPERTS | LATENT,
        DEEPSEEK_V3 + ENDS[:-1],
    ),
    "gpt_oss": (
        "gpt_oss",
        LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6},
        GPT_OSS + ENDS[:-1],
    ),
    "glm4_moe": ("glm4_moe", LLAMA | DEEPSEEK_EXPERTS, GLM4_MOE + ENDS[:-1]),
    "qwen2_moe": (
        "qwen2_moe",
        LLAMA | SMALL_EXPERTS | {"shared_expert_intermediate_size": 20, "mlp_only_layers": []},
        QWEN2_MOE + ENDS[:-1],
    ),
    "qwen3_5_text": ("qwen3_5_text", LLAMA | DELTA, HYBRID + ENDS[:-1]),
    "qwen3_5_moe_text": (
        "qwen3_5_moe_text",
        LLAMA | DELTA | SMALL_EXPERTS | {"shared_expert_intermediate_size": 20},
        HYBRID[:4]
        + each("num_experts_per_tok", 1, 4, 0, 5, GONE)
        + each("shared_expert_intermediate_size", 16, 0, GONE, None)
        + each("moe_intermediate_size", 8, 0, GONE)
        + each("num_experts", 2, 0, GONE)
        + each("norm_topk_prob", False)
        + each("mlp_only_layers", [0])
        + each("intermediate_size", 24),
    ),
    "qwen3_next": (
        "qwen3_next",
        LLAMA | DELTA | SMALL_EXPERTS | {"shared_expert_intermediate_size": 20},
        HYBRID[:10]
        + each("num_experts_per_tok", 1, 4, 0, 5, GONE)
        + each("norm_topk_prob", True, False, GONE)
        + each("shared_expert_intermediate_size", 16, 0, GONE, None)
        + each("decoder_sparse_step", 1, 2, 3, 0)
        + each("mlp_only_layers", [], [0], [0, 1], None)
        + each("intermediate_size", 24),
    ),
    "llama": ("llama", LLAMA, CAUSAL + BIASES + ROPE + ALL + each("sliding_window", 4, None)),
    "llama3": (
        "llama",
        LLAMA | {"rope_parameters": STRETCHED},
        each("rope_scaling", None, {"type": "linear", "factor": 2.0})
        + each("original_max_position_embeddings", 8, 32)
        + each("max_position_embeddings", 128),
    ),
    "mistral": (
        "mistral",
        LLAMA | {"sliding_window": 6},
        each("sliding_window", 3, None, GONE, 0, -1, "6", 6.5)
        + each("layer_types", SLIDING, SLIDING[1:] * 2, SLIDING[:1] * 2)
        + each("attention_bias", True, False)
        + each("num_key_value_heads", None, GONE),
    ),
    "qwen2": (
        "qwen2",
        WITHOUT_HEAD_DIM
        | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
        each("use_sliding_window", False, None, 1)
        + each("sliding_window", 3, None, GONE, 0, "6")
        + each("max_window_layers", 0, 2, -1, GONE, None, "1", layer_types=GONE)
        + each("layer_types", SLIDING, SLIDING[::-1], SLIDING[1:], SLIDING + SLIDING)
        + each("layer_types", SLIDING, use_sliding_window=False)
        + each("attention_bias", True, False)
        + each("num_key_value_heads", GONE),
    ),
    "qwen3": (
        "qwen3",
        LLAMA | {"tie_word_embeddings": True},
        each("rope_parameters", YARN)
        + each("head_dim", None, GONE)
        + BIASES
        + each("num_key_value_heads", GONE),
    ),
    "gemma": ("gemma", LLAMA, GEMMA1 + ENDS),
    "gemma2": ("gemma2", LLAMA | {"sliding_window": 6, "query_pre_attn_scalar": 9}, GEMMA),
    "gemma3": (
        "gemma3_text",
        LLAMA | {"sliding_window": 6, "query_pre_attn_scalar": 9},
        GEMMA3,
    ),
    "olmo2": ("olmo2", LLAMA, OLMO2),
    "phi3": ("phi3", WITHOUT_HEAD_DIM, PHI3),
    "phi4": (
        "phi3",
        WITHOUT_HEAD_DIM | {"rope_parameters": {"partial_rotary_factor": 0.75}},
        PHI4,
    ),
    "smollm3": ("smollm3", LLAMA, SMOLLM3 + BIASES),
    "cwm": ("cwm", LLAMA | {"sliding_window": 6}, CWM),
    **DECODERS,
}
CASES = [
    pytest.param((family, index), id=f"{family}-{index}-{mutation}")
    for family, (_, _, mutations) in FAMILIES.items()
    for index, mutation in enumerate(mutations)
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    return {
        name: Checkpoint(tmp_path_factory.mktemp(name), model_type, shape, name)
        for name, (model_type, shape, _) in FAMILIES.items()
    }


@pytest.mark.parametrize("case", CASES)
def test_a_changed_field_gives_hugging_faces_tokens_or_one_sentence(
    case: tuple[str, int], checkpoints: dict[str, Checkpoint]
) -> None:
    family, index = case
    mutation, checkpoint = FAMILIES[family][2][index], checkpoints[family]
    checkpoint.mutate(mutation)
    ours = checkpoint.our_tokens(mutation.ignored)
    check_alike(mutation, ours, checkpoint.their_tokens, operator.eq)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unchanged_configuration_decodes(
    family: str, checkpoints: dict[str, Checkpoint]
) -> None:
    """Or every mutation could pass by a refusal."""
    checkpoint = checkpoints[family]
    checkpoint.mutate(Mutation({}))
    ours = checkpoint.our_tokens(False)
    assert ours == checkpoint.their_tokens() and len({t for row in ours for t in row}) > 3


def test_there_are_at_least_200_mutations() -> None:
    assert len(CASES) >= 200
