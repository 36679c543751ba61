"""Changes of single fields of families that are read as a relative is, by their own class there.

Each is tried with every field that Hugging Face's class has and that changes tokens, and with those
that old files have and no class reads.
"""

from __future__ import annotations

from typing import Any

from mutations import BIASES, GONE, ROPE_BASE, SLIDING, YARN, Mutation, each, make_generation, rope

END = 5
OLD_FIELDS: list[Mutation] = [
    *each("normalize_before", True, False),
    *each("normalize_embedding", True, False),
    *each("add_final_layer_norm", False),
    *each("static_position_embeddings", True, False),
    *each("add_bias_logits", True),
    *each("extra_pos_embeddings", 0),
]
"""Of fairseq's models; here and in Hugging Face the family says where its norms stand."""

_OF_BART: list[Mutation] = [
    *each("activation_function", "gelu", "relu", "swish", "no_such", GONE),
    *each("scale_embedding", True, False, None, GONE, "yes"),
    *each("tie_word_embeddings", False, None, GONE, "no"),
    *each("encoder_attention_heads", 1, 3),
    *each("decoder_attention_heads", 4, GONE),
    *each("decoder_layers", 1, 0),
    *each("encoder_ffn_dim", 12),
    *each("max_position_embeddings", 32, 0, GONE),
    *each("decoder_start_token_id", 3, GONE),
    *each("pad_token_id", 3, None, -1, 64),
    *each("eos_token_id", [END, 9], GONE, None),
    *each("forced_eos_token_id", END, [END, 9], None, GONE),
    *each("forced_bos_token_id", 9, None, 64),
    *make_generation(forced_bos_token_id=9, decoder_start_token_id=2),
    *make_generation(forced_eos_token_id=END, decoder_start_token_id=2),
    *make_generation(decoder_start_token_id=3),
    *make_generation(bad_words_ids=[[0]], decoder_start_token_id=2),
    *make_generation(num_beams=4, decoder_start_token_id=2),
    *each("is_decoder", True),
    *each("is_encoder_decoder", False),
    *each("num_hidden_layers", 1, 2),
    *each("dropout", 0.5),
    *each("layer_norm_eps", 1e-2),
]
_LEFT_OUT = [*each("decoder_start_token_id", None), *each("pad_token_id", GONE)]
MBART = _OF_BART + _LEFT_OUT + OLD_FIELDS
MARIAN: list[Mutation] = [
    *_OF_BART,
    *OLD_FIELDS,
    Mutation({"decoder_start_token_id": None}, fails_there="its class wants an integer"),
    Mutation({"pad_token_id": GONE}, fails_there="its class's default is no token of so few"),
    *each("share_encoder_decoder_embeddings", True, False, None, GONE),
    *each("decoder_vocab_size", 64, 63, None, GONE),
]
_PADS_WITH_IT = "it pads prompts to the window with this token"
_NO_PAD: list[dict[str, Any]] = [{"pad_token_id": value} for value in (None, -1)]
LED: list[Mutation] = [
    *(mutation for mutation in _OF_BART if mutation.config not in _NO_PAD),
    *(Mutation(changes, fails_there=_PADS_WITH_IT) for changes in _NO_PAD),
    *each("pad_token_id", GONE),
    Mutation({"decoder_start_token_id": None}, fails_there="its class wants an integer"),
    Mutation({"attention_window": 2}, fails_there="its class fails with such windows"),
    *each("attention_window", 4, 12, [6], [4, 4], [], 3, 0, -2, "4", None),
    Mutation({"attention_window": GONE}, fails_there="it pads prompts to the window, 512"),
    *each("global_tokens", 0, 1, 4, 30, GONE),
    *each("max_encoder_position_embeddings", 32, 0, None, GONE),
    *each("max_decoder_position_embeddings", 32, 0, None, GONE),
]
PEGASUS_X: list[Mutation] = [
    *_OF_BART,
    *_LEFT_OUT,
    *each("block_size", 2, 4, 8, 64, 5, 0, None, GONE),
    *each("block_size", 5, stagger_local_blocks=False),
    *each("stagger_local_blocks", True, False, None, GONE),
    *each("num_global_tokens", 1, 0, None, GONE),
]
PEGASUS: list[Mutation] = [
    *_OF_BART,
    *OLD_FIELDS,
    *_LEFT_OUT,
    *each("length_penalty", 0.6),
    *each("num_beams", 8),
    *each("force_bos_token_to_be_generated", False),
    *each("gradient_checkpointing", False),
]
MARIAN_TWO: list[Mutation] = [
    *each("share_encoder_decoder_embeddings", True, False, GONE),
    *each("decoder_vocab_size", 64, 63, None, GONE, 0),
    *each("vocab_size", 80, 64, GONE),
    *each("tie_word_embeddings", False, None, GONE),
    *each("scale_embedding", False),
    *each("eos_token_id", 70, [END, 9]),
    *each("pad_token_id", 70, 3),
    *each("decoder_start_token_id", 70, 3),
    *make_generation(encoder_no_repeat_ngram_size=2, decoder_start_token_id=2),
    *make_generation(repetition_penalty=1.7, decoder_start_token_id=2),
]
M2M_100 = MBART + each("max_position_embeddings", 4, 1024)

_OF_T5: list[Mutation] = [
    *each("feed_forward_proj", "relu", "gelu", "gated-silu", "gated-no", GONE),
    *each("dense_act_fn", "gelu", "silu"),
    *each("is_gated_act", True, False),
    *each("tie_word_embeddings", True, False, None, GONE),
    *each("scale_decoder_outputs", True, False),
    *each("relative_attention_num_buckets", 4, 2, GONE),
    *each("relative_attention_max_distance", 9, 40, GONE),
    *each("layer_norm_epsilon", 1e-2, GONE),
    *each("num_decoder_layers", 1, None, GONE),
    *each("num_heads", 1, GONE),
    *each("d_kv", 4, GONE),
    *each("decoder_start_token_id", 3, None, GONE),
    *each("pad_token_id", 3, GONE),
    *each("eos_token_id", [END, 9], GONE),
    *each("is_decoder", True),
    *each("dropout_rate", 0.5),
    *make_generation(forced_bos_token_id=9, decoder_start_token_id=0),
    *make_generation(decoder_start_token_id=3),
    Mutation({"vocab_size": GONE}),
]
MT5: list[Mutation] = [*_OF_T5, *each("tokenizer_class", "T5Tokenizer")]
LONGT5: list[Mutation] = [
    *_OF_T5,
    *each("local_radius", 0, 1, 5, -1, "2", GONE),
    *each("global_block_size", 1, 3, 0, None, GONE),
    *each("encoder_attention_type", "local", "transient-global", "global", None, GONE),
]
SWITCH: list[Mutation] = [
    *_OF_T5,
    *each("num_experts", 2, 4, 0, GONE),
    *each("expert_capacity", 1, 2, 3, 0, None, GONE),
    *each("num_sparse_encoder_layers", 0, 2, 5, -1, GONE),
    *each("num_sparse_encoder_layers", 0, 1, 2, 5, GONE, encoder_sparse_step=GONE),
    *each("encoder_sparse_step", 0, 1, 2, 3, -1, GONE),
    *each("num_sparse_decoder_layers", 0, 1, 2, 5, decoder_sparse_step=GONE),
    *each("decoder_sparse_step", 0, 1, 2, 3, GONE),
    *each("router_bias", True, None, GONE),
    *each("router_dtype", "bfloat16", "float32", None, GONE),
    *each("router_jitter_noise", 0.5),
    *each("router_ignore_padding_tokens", True),
    *each("add_router_probs", True),
    *each("add_cross_attention", True),
]
UMT5: list[Mutation] = [*_OF_T5, *each("scalable_attention", True, False)]

OLMO2: list[Mutation] = [
    *BIASES,
    *each("hidden_act", "gelu", "relu", "no_such", GONE),
    *each("rms_norm_eps", 1e-2, 0.0, GONE),
    *each("tie_word_embeddings", True, False, None, GONE),
    *each("num_key_value_heads", 2, None, GONE),
    *each("num_attention_heads", 1, 4, GONE),
    *each("head_dim", 4, 16, GONE),
    *each("num_hidden_layers", 1, GONE),
    *each("intermediate_size", 12, GONE),
    *each("max_position_embeddings", 16, GONE),
    *each("rope_theta", 500.0, GONE, rope_parameters=GONE),
    *each("rope_scaling", {"type": "linear", "factor": 3.0}, None),
    *each("rope_parameters", YARN, GONE, None),
    *rope(rope_type="linear", factor=2.0, rope_theta=500.0),
    *rope(rope_type="dynamic", factor=2.0),
    *rope(**ROPE_BASE, original_max_position_embeddings=16),
    *each("attention_dropout", 0.5),
    *each("sliding_window", 3),
    *each("layer_types", SLIDING),
    *each("clip_qkv", 0.1, None),
    *each("use_qk_norm", True, False),
    *each("layer_norm_eps", 1e-2),
    *each("eos_token_id", [END, 9], GONE),
    *each("pad_token_id", None, GONE),
]
"""Of OLMo 2's class, and of OLMo's (`clip_qkv`), whose models are of another kind."""
