"""Changes of single fields of `config.json` and `generation_config.json`, family by family.

`{"field": value}` sets a field, `GONE` takes it out, and `{"part.field": value}` is one of a part;
`generation` holds a `generation_config.json` to write beside, None writes none.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

GONE = object()
NAN, INFINITE = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One change of a configuration, with the reason when Hugging Face fails and we decode."""

    config: dict[str, Any]
    generation: dict[str, Any] | None = None
    ignored: bool = False  # with ignore_generation_config=True
    fails_there: str = ""

    def __str__(self) -> str:
        changed = [
            "" if of is None else _format_fields(of) for of in (self.config, self.generation)
        ]
        return "".join(changed)[:90]


def check_alike(
    mutation: Mutation, ours: Any, their_rows: Callable[[], Any], same: Callable[[Any, Any], bool]
) -> None:
    """That we refuse in one sentence, a text in place of rows, or write what Hugging Face does."""
    if isinstance(ours, str):
        assert "\n" not in ours and not re.search(r"\. [A-Z]", ours), ours
        return
    theirs = their_rows()
    if isinstance(theirs, str):
        assert mutation.fails_there, f"we decode, Hugging Face says {theirs}"
    else:
        assert same(theirs, ours), (theirs, ours)


def _format_fields(fields: dict[str, Any]) -> str:
    return str({name: "gone" if value is GONE else value for name, value in fields.items()})


def apply_fault(config: dict[str, Any], mutation: Mutation) -> dict[str, Any]:
    """The configuration with the change."""
    changed = copy.deepcopy(config)
    for name, value in mutation.config.items():
        *parts, field = name.split(".")
        place = functools.reduce(dict.__getitem__, parts, changed)
        if value is GONE:
            place.pop(field, None)
        else:
            place[field] = value
    return changed


def each(field: str, *values: Any, **also: Any) -> list[Mutation]:
    """The field at each of the values, with other fields changed `also`."""
    return [Mutation({field: value, **also}) for value in values]


def inside(part: str, changes: list[Mutation]) -> list[Mutation]:
    """The changes, of a part's fields."""
    return [
        dataclasses.replace(
            change, config={f"{part}.{name}": value for name, value in change.config.items()}
        )
        for change in changes
    ]


def make_generation(**generation: Any) -> list[Mutation]:
    """A `generation_config.json` with these fields and the usual end of sequence."""
    return [Mutation({}, {"eos_token_id": 5} | generation)]


SAME_NUMBER = "an integer is a number, whatever Hugging Face's type check says"

ENDS: list[Mutation] = [
    *each("eos_token_id", [5, 9, 11], None, -1, "5", 64),
    *each("pad_token_id", 3, None, -1, 64),
    *each("no_such_field", 1),
    *each("quantization_config", {"quant_method": "fp8"}),
    *each("is_causal", False),
    *make_generation(repetition_penalty=1.7),
    *make_generation(eos_token_id=[7, 9]),
    Mutation({}, {"bos_token_id": 3}),
]
"""What is tried in every architecture; the rest of `ALL` is read by the same lines."""

ALL: list[Mutation] = [
    *each("no_such_field", 1, None),
    *each("quantization_config", {"quant_method": "fp8"}, {"bits": 4}, None),
    *each("is_causal", True, False, None),
    *each("transformers_version", "4.1.0"),
    *each("architectures", None),
    *each("torch_dtype", "float16"),
    *each("use_cache", False),
    *each("eos_token_id", 7, [5, 9, 11], [], None, GONE, -1, "5", 5.0, [5, None], 64),
    *each("pad_token_id", 3, None, GONE, -1, 64, "0"),
    *each("bos_token_id", 3, None, 50_256),
    *each("vocab_size", 0, -3, "64", None, 65, GONE),
    *each("repetition_penalty", 1.0, 1.7),
    *each("min_length", 0, 8),
    *each("task_specific_params", {"translation": {"num_beams": 4}}),
    *make_generation(repetition_penalty=1.7),
    Mutation({}, {"eos_token_id": 5, "top_h": None, "min_new_tokens": 6}),
    *make_generation(repetition_penalty=1.0, no_repeat_ngram_size=0, num_beams=1, min_length=0),
    *make_generation(do_sample=True, temperature=0.6, top_p=0.9, top_k=20),
    *make_generation(do_sample=True, min_p=0.1, typical_p=0.5, epsilon_cutoff=0.1, eta_cutoff=0.1),
    *make_generation(max_length=2048),
    *make_generation(suppress_tokens=[9, 10]),
    *make_generation(begin_suppress_tokens=[9]),
    *make_generation(forced_eos_token_id=5),
    *make_generation(forced_bos_token_id=9),
    *make_generation(min_new_tokens=6),
    *make_generation(no_repeat_ngram_size=2),
    *make_generation(bad_words_ids=[[9]]),
    *make_generation(sequence_bias=[[[9], 4.0]]),
    *make_generation(guidance_scale=1.0),
    *make_generation(guidance_scale=2.0),
    *make_generation(exponential_decay_length_penalty=[2, 1.5]),
    *make_generation(num_beams=3),
    *make_generation(encoder_repetition_penalty=1.5),
    *make_generation(no_such_setting=4),
    *make_generation(eos_token_id=[7, 9]),
    *make_generation(eos_token_id="5"),
    Mutation(
        {}, {"eos_token_id": []}, fails_there="without a padding token it pads with the first"
    ),
    Mutation({}, {}),
    Mutation({}, {"bos_token_id": 3}),
    Mutation({}, {"eos_token_id": None}),
    Mutation({"repetition_penalty": 1.7}, {"eos_token_id": 5}),
]

ROPE_BASE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "rope_type": "longrope",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "short_factor": [1.0, 1.1, 1.5, 2.0],
    "long_factor": [1.5, 2.0, 4.0, 6.0],
}


def rope(**parameters: Any) -> list[Mutation]:
    """One `rope_parameters`."""
    return each("rope_parameters", parameters)


ROPE: list[Mutation] = [
    *each("rope_theta", 500.0, 10, 0, -1.0, NAN, INFINITE, "10000", None, rope_parameters=GONE),
    *each("rope_scaling", {"type": "linear", "factor": 3.0}, {"type": "linear"}, {}, None),
    *each("rope_scaling", {"type": "linear", "factor": 3.0}, rope_parameters=YARN),
    *each("rope_scaling", {"type": "dynamic", "factor": 3.0}, max_position_embeddings=16),
    *each("rope_scaling", {"type": "linear", "rope_type": "yarn", "factor": 3.0}, [1], "linear"),
    *each("rope_parameters", None, {}, {"rope_theta": 100.0}, {"rope_theta": None}),
    *rope(rope_type="linear", factor=2),
    *rope(rope_type="linear", factor=0),
    *rope(rope_type="linear", factor=NAN),
    *rope(rope_type="linear", factor=-2.0),
    *rope(rope_type="linear", factor=None),
    *rope(rope_type="linear", factor="2"),
    *rope(rope_type="default", factor=2.0),
    *rope(rope_type="proportional", partial_rotary_factor=0.5),
    *rope(rope_type="default", partial_rotary_factor=0.5),
    *rope(**ROPE_BASE),
    *rope(**ROPE_BASE, original_max_position_embeddings=16),
    *rope(**ROPE_BASE, original_max_position_embeddings=0),
    *rope(**ROPE_BASE | {"low_freq_factor": 4.0}),
    *rope(**ROPE_BASE | {"low_freq_factor": 0.0}),
    *each("original_max_position_embeddings", 8, None, "16", rope_parameters=ROPE_BASE),
    *rope(**YARN),
    *rope(**YARN, attention_factor=1.5),
    *rope(**YARN, mscale=0.7, mscale_all_dim=0.3),
    *rope(**YARN, mscale=0.7),
    *rope(**YARN, mscale=0.7, mscale_all_dim=0.0),
    *rope(**YARN, attn_factor=1.5),
    *rope(**YARN, beta_fast=4.0, beta_slow=0.5),
    *rope(**YARN, beta_fast=4.0, beta_slow=0.5, truncate=False),
    *rope(**YARN, truncate="no"),
    *rope(**YARN, beta_fast=-1.0),
    *rope(**YARN, finetuned=True),
    *rope(**YARN | {"factor": None}),
    *rope(**YARN | {"original_max_position_embeddings": None}),
    *rope(**LONG),
    *rope(**LONG | {"factor": None}),
    *rope(**LONG, attention_factor=1.3),
    *rope(**LONG | {"short_factor": [1.0, 2.0]}),
    *rope(**LONG | {"long_factor": [1.0, 2.0, 0.0, 1.0]}),
    *rope(**LONG | {"long_factor": "long"}),
]

CAUSAL: list[Mutation] = [
    *each("hidden_act", "gelu", "swish", "quick_gelu", "gelu_fast", "relu2", "no_such", None),
    *each("rms_norm_eps", 1e-2, 0.0, -1e-6, NAN, "1e-6", None),
    Mutation({"rms_norm_eps": 1}, fails_there=SAME_NUMBER),
    *each("tie_word_embeddings", None, "no", 1),
    *each("num_key_value_heads", 0, -1, 3, "1", True),
    *each("num_attention_heads", 0, -2, 3, 2.0),
    *each("num_hidden_layers", 1, 0, -1, "2"),
    *each("hidden_size", 17, 0, None),
    *each("head_dim", 0, -8, "8", 8.5, 7, 16),
    *each("max_position_embeddings", 0, "64", None),
    *each("attention_dropout", 0.5),
    *each("layer_types", ["full_attention"] * 2, ["full_attention"], ["odd"] * 2, "full", None),
    *each("is_encoder_decoder", True),
]
BIASES: list[Mutation] = [*each("attention_bias", False, None, "no"), *each("mlp_bias", None, 0)]
SLIDING = ["full_attention", "sliding_attention"]

GEMMA: list[Mutation] = [
    *each("hidden_activation", "silu", "no_such", None, GONE),
    *each("hidden_act", "silu"),
    *each("query_pre_attn_scalar", 4, 0, None, GONE, "9"),
    *each("final_logit_softcapping", 2.0, None, GONE, -1.0, "30"),
    *each("attn_logit_softcapping", 2.0, None, GONE, 0.0),
    *each("sliding_window", 3, 0, "6", None, GONE),
    *each("layer_types", SLIDING, SLIDING[::-1], SLIDING[1:], ["odd"] * 2, GONE),
    *each("use_bidirectional_attention", True, False, None),
    *each("tie_word_embeddings", False, GONE),
    *each("head_dim", 4, GONE),
    *each("attention_bias", False),
]
GEMMA1: list[Mutation] = [
    *each("hidden_act", "gelu", "silu", "no_such", None, GONE),
    *each("hidden_activation", "silu", None),
    *each("num_key_value_heads", 2, None, GONE, 3),
    *each("head_dim", 4, GONE),
    *each("tie_word_embeddings", False, GONE),
    *each("attention_bias", False, None),
    *each("use_bidirectional_attention", True, False, None),
    *each("rope_parameters", YARN, GONE),
    *each("rms_norm_eps", 1e-2, GONE),
    *each("max_position_embeddings", GONE),
    *each("layer_types", SLIDING),
]
TWO_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
GEMMA3: list[Mutation] = [
    *GEMMA,
    *each("rope_parameters", TWO_ROPES, {"full_attention": {"rope_theta": 70.0}}, None, {}, GONE),
    *each("rope_parameters", {"rope_type": "default", "rope_theta": 70.0}, [], "linear"),
    *each("rope_parameters", TWO_ROPES | {"sliding_attention": {"rope_type": "linear"}}),
    *each("rope_scaling", {"rope_type": "linear", "factor": 4.0}, None, rope_parameters=GONE),
    *each("rope_scaling", {"type": "linear", "factor": 4.0}, [1], rope_parameters=GONE),
    *each("rope_theta", 70.0, None, rope_parameters=GONE),
    *each("rope_local_base_freq", 70.0, None, rope_parameters=GONE),
    *each("sliding_window_pattern", 1, 2, 0, layer_types=GONE),
]
PHI3: list[Mutation] = [
    *each("sliding_window", 3, None, GONE, 0),
    *each("rope_parameters", LONG, LONG | {"rope_type": "su"}, YARN, GONE),
    *each("rope_parameters", {"rope_type": "linear", "factor": 2.0}),
    *each("rope_scaling", LONG | {"rope_type": "su"}, None, rope_parameters=GONE),
    *each("original_max_position_embeddings", 32, GONE, rope_parameters=LONG),
    *each("original_max_position_embeddings", 8),
    *each("resid_pdrop", 0.5),
    *each("num_key_value_heads", 2, None, GONE),
]
SHARED_LONG = LONG | {"short_factor": LONG["short_factor"][:3], "long_factor": [2.0, 3.0, 4.0]}
PHI4: list[Mutation] = [
    *each("partial_rotary_factor", 0.5, 1, 0, 1.5, "0.5", None),
    *each("partial_rotary_factor", 0.5, 0.25, 1.0, GONE, rope_parameters=GONE),
    *each("rope_parameters", *({"partial_rotary_factor": share} for share in (0.5, 1, 0, None))),
    *each("rope_parameters", LONG, SHARED_LONG),
    *each("rope_parameters", SHARED_LONG | {"partial_rotary_factor": 0.75}),
    *each("rope_scaling", SHARED_LONG, partial_rotary_factor=0.75, rope_parameters=GONE),
    *each("rope_scaling", SHARED_LONG | {"partial_rotary_factor": 0.75}, rope_parameters=GONE),
]
SMOLLM3: list[Mutation] = [
    *each("no_rope_layers", [0, 1], [0, 0], [1, 1, 0], [1], [], None, GONE, "01", [2, 1]),
    *each("no_rope_layer_interval", 1, 2, 0, no_rope_layers=GONE),
    *each("sliding_window", 3, use_sliding_window=True, layer_types=GONE),
    *each("use_sliding_window", True, None, sliding_window=3),
    *each("layer_types", SLIDING, SLIDING[1:], sliding_window=3),
    *each("layer_types", SLIDING, use_sliding_window=True, sliding_window=3),
    *each("num_key_value_heads", None, GONE),
    *each("rope_parameters", YARN, GONE),
]

CWM: list[Mutation] = [
    *each("sliding_window", 3, 0, "6", None, GONE),
    *each("layer_types", SLIDING[::-1], SLIDING[:1] * 2, SLIDING[1:], ["odd"] * 2, GONE),
    *each("rope_parameters", None, {}, {"rope_theta": 100.0}, YARN, GONE),
    *each("rope_theta", 500.0, rope_parameters=GONE),
    *each("rope_scaling", {}, {"type": "linear", "factor": 3.0}, rope_parameters=GONE),
    *each("mlp_bias", None, 0),
    *each("attention_bias", True),
    *each("num_key_value_heads", None, GONE),
    *each("head_dim", 4, None, GONE),
]

GPT2: list[Mutation] = [
    *each("activation_function", "gelu", "swish", "quick_gelu", "gelu_fast", "no_such", None),
    *each("layer_norm_epsilon", 1e-2, 0.0, -1.0, NAN, "1e-5", None),
    Mutation({"layer_norm_epsilon": 1}, fails_there=SAME_NUMBER),
    Mutation({"hidden_size": 16, "n_embd": GONE}),
    Mutation({"max_position_embeddings": 64, "n_positions": GONE}),
    Mutation({"num_attention_heads": 4, "n_head": GONE}),
    Mutation({"num_hidden_layers": 2, "n_layer": GONE}),
    *each("hidden_size", 16, 32),
    *each("n_head", 0, -1, 3, 1, "2"),
    *each("n_layer", 1, 0, -1),
    *each("n_embd", 17, None),
    *each("n_inner", None, 64, 0, 63, "64"),
    *each("n_positions", 0, 32),
    *each("scale_attn_weights", False, None),
    *each("scale_attn_by_inverse_layer_idx", True, None),
    *each("scale_attn_by_inverse_layer_idx", True, scale_attn_weights=False),
    *each("reorder_and_upcast_attn", True),
    *each("add_cross_attention", True),
    *each("tie_word_embeddings", None, "yes"),
    *each("n_ctx", 5),
    *each("sliding_window", 4),
]

T5: list[Mutation] = [
    *each("feed_forward_proj", "gelu", "gated-silu", "gated", "gated-no", "a-b-c", None, 3),
    *each("dense_act_fn", "gelu", "silu", "swish", "quick_gelu", "no_such", None),
    *each("is_gated_act", None, "no"),
    *each("tie_word_embeddings", True, False, scale_decoder_outputs=GONE),
    *each("tie_word_embeddings", None, GONE, scale_decoder_outputs=GONE),
    *each("scale_decoder_outputs", True, False, None, "no"),
    *each("num_layers", 0, -1, "2", 3),
    Mutation({"num_layers": 1}, fails_there="its cache has as many layers as the encoder"),
    *each("num_decoder_layers", None, 0, 1, -1, GONE),
    *each("relative_attention_num_buckets", 1, 2, 3, 0, -4, None, "8"),
    *each("relative_attention_max_distance", 4, 5, 1, 0, -1, 40),
    *each("layer_norm_epsilon", 1e-2, 0.0, NAN, -1.0, None),
    *each("decoder_start_token_id", 3, None, GONE, 64, -1, "0"),
    Mutation({"decoder_start_token_id": GONE, "bos_token_id": 4}),
    Mutation({}, {"eos_token_id": 5, "decoder_start_token_id": 6}),
    Mutation({}, {"eos_token_id": 5, "bos_token_id": 6}),
    *each("is_encoder_decoder", False),
    *each("is_decoder", True),
    *each("dropout_rate", 0.5),
    Mutation({"hidden_size": 16, "d_model": GONE}),
    *each("d_kv", 0, -8, None),
    *each("num_heads", 0, 3),
]

BART: list[Mutation] = [
    *each("activation_function", "gelu", "swish", "relu", "no_such", None),
    *each("scale_embedding", True, False, None),
    *each("tie_word_embeddings", True, None, "no"),
    *each("encoder_attention_heads", 1, 3, 0),
    *each("decoder_attention_heads", 4, 3, -1),
    *each("decoder_layers", 1, 0, None),
    *each("max_position_embeddings", 63, 0),
    *each("decoder_start_token_id", 3, None, 64, -1),
    *each("normalize_before", True),
    *each("add_final_layer_norm", True),
    *each("static_position_embeddings", True),
    *each("dropout", 0.5, 2.0),
    *each("encoder_layerdrop", 0.5),
    *each("is_encoder_decoder", False),
    Mutation({"hidden_size": 16, "d_model": GONE}),
]

SCALED = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}
GPT_NEOX: list[Mutation] = [
    *each("hidden_act", "gelu_new", "relu", "no_such", None),
    *each("layer_norm_eps", 1e-2, 0.0, None),
    *each("use_parallel_residual", False, None, 1),
    *each("attention_bias", None, "no"),
    *each("tie_word_embeddings", None, 1),
    *each("num_attention_heads", 1, 0, 3),
    *each("hidden_size", 17, None),
    *each("num_hidden_layers", 1, 0),
    *each("rotary_pct", 1.0, 0.5, 0.3, 0.0, 2.0, "0.5", None, rope_parameters=GONE),
    *each("rotary_emb_base", 500, 0, rope_parameters=GONE),
    *each("rotary_pct", 0.5),
    *each("rope_theta", 500.0, rope_parameters=GONE),
    *each("partial_rotary_factor", 0.5, rope_parameters=GONE),
    *each("rope_parameters", GONE, None, {}, [1], SCALED),
    *each("rope_parameters", *({"partial_rotary_factor": share} for share in (1.0, 0, None, 1.5))),
    *each("rope_scaling", SCALED, SCALED | {"partial_rotary_factor": 1.0}),
    *each("rope_parameters", YARN | {"partial_rotary_factor": 0.5}),
    *each("head_dim", 4),
    *each("hidden_dropout", 0.5),
    *each("is_encoder_decoder", True),
]
OPT: list[Mutation] = [
    *each("activation_function", "gelu", "gelu_new", "no_such", None),
    *each("do_layer_norm_before", None, "no"),
    *each("do_layer_norm_before", False),
    *each("word_embed_proj_dim", None, GONE, 16, 8, 0),
    *each("enable_bias", None, "no"),
    *each("layer_norm_elementwise_affine", False),
    *each("_remove_final_layer_norm", True),
    *each("tie_word_embeddings", None, "yes"),
    *each("num_attention_heads", 4, 0, 3),
    *each("num_hidden_layers", 1, 0),
    *each("max_position_embeddings", 0, 32),
    *each("hidden_size", 17),
    *each("layerdrop", 0.5),
    *each("dropout", 0.5),
    *each("layer_norm_eps", 1e-2),
]

MIXTRAL: list[Mutation] = [
    *each("num_experts_per_tok", 1, 4, 0, 5, "2", None),
    *each("num_local_experts", 0, None, "4"),
    *each("num_experts", 4, 3, num_local_experts=GONE),
    *each("num_experts", 4, 3),
    *each("sliding_window", 3, 0, GONE),
    *each("layer_types", SLIDING),
    *each("router_jitter_noise", 0.5),
    *each("output_router_logits", True),
    *each("rope_theta", GONE, 500.0, rope_parameters=GONE),
    *each("rms_norm_eps", GONE),
    *each("num_key_value_heads", None, GONE),
    *each("attention_bias", True, False),
    *each("hidden_act", "gelu", "no_such"),
]
QWEN_MOE: list[Mutation] = [
    *each("num_experts_per_tok", 1, 4, 0, 5, GONE),
    *each("num_experts", 0, None, GONE),
    *each("num_local_experts", 4, 3),
    *each("norm_topk_prob", True, False, GONE, None),
    *each("moe_intermediate_size", 24, 0, GONE),
    *each("decoder_sparse_step", 1, 2, 3, 0),
    *each("mlp_only_layers", [], [0], [0, 1], [7], None, "0", [0.5], 1),
    *each("use_sliding_window", True, sliding_window=4),
    *each("use_sliding_window", True, sliding_window=GONE),
    *each("sliding_window", 4),
    *each("max_window_layers", 1, use_sliding_window=True, sliding_window=4),
    *each("layer_types", SLIDING),
    *each("attention_bias", True),
    *each("mlp_bias", True),
    *each("head_dim", GONE),
    Mutation({"head_dim": None}, fails_there="there null is no word for the default"),
]
DEEPSEEK_EXPERTS: list[Mutation] = [
    *each("n_routed_experts", 4, None, GONE, 5),
    *each("num_local_experts", 6, 4),
    *each("num_experts_per_tok", 1, 4, 5, 0, "2"),
    *each("moe_intermediate_size", 8, 0, GONE),
    *each("n_shared_experts", 1, 0, GONE, None),
    *each("routed_scaling_factor", 0.3, 0, None, "1"),
    Mutation({"routed_scaling_factor": 3}, fails_there="it takes no integer"),
    *each("n_group", 1, 2, 6, 4, None, topk_group=1),
    *each("n_group", 7, 0),
    *each("topk_group", 1, 3, 4, 0, None),
    *each("norm_topk_prob", False, 1),
    *each("first_k_dense_replace", 0, 1, 2, -1, None),
    *each("output_router_logits", True),
    *each("layer_types", SLIDING),
    *each("sliding_window", 3),
    *each("hidden_act", "gelu", "no_such"),
    *each("rms_norm_eps", 0.1, GONE),
]
"""Of mixtures of six experts in three groups, two of which a token has, as two experts."""

GLM4_MOE: list[Mutation] = [
    *DEEPSEEK_EXPERTS,
    *each("attention_bias", True, None),
    *each("use_qk_norm", True, None, 1),
    *each("partial_rotary_factor", 0.25, 1.0, 0, rope_parameters=GONE),
    *each("rope_parameters", GONE, {"partial_rotary_factor": 0.25}, {"rope_type": "default"}),
    *each("rope_parameters", YARN, YARN | {"partial_rotary_factor": 0.5}),
    *each("num_mtp_layers", 0, 3),
    *each("num_nextn_predict_layers", 2, num_mtp_layers=GONE),
    *each("head_dim", GONE, 4),
    *each("num_key_value_heads", 1, 3),
]
LATENT: list[Mutation] = [
    *DEEPSEEK_EXPERTS,
    *each("kv_lora_rank", 12, 0, None, GONE),
    *each("q_lora_rank", 12, None, 0, GONE),
    *each("qk_nope_head_dim", 8, 0, GONE),
    *each("qk_rope_head_dim", 4, 5, 0, GONE),
    *each("v_head_dim", 8, 0, None, GONE),
    *each("num_key_value_heads", 1, None, GONE),
    *each("head_dim", 4, 6, 8),
    Mutation({"head_dim": None}, fails_there="there null is no word for the default"),
    *each("attention_bias", True, None),
    *each("rope_parameters", YARN, YARN | {"mscale": 0.5, "mscale_all_dim": 0.8}),
    *each("rope_parameters", YARN | {"mscale": 0.5}, YARN | {"mscale_all_dim": 0.8}),
    *each("rope_scaling", YARN | {"mscale_all_dim": 1.0}, rope_parameters=GONE),
    *each("rope_scaling", {"rope_type": "linear", "factor": 2.0, "mscale_all_dim": 1.0}),
    *each("rope_theta", 500.0, rope_parameters=GONE),
    *each("mlp_bias", True, False),
]
DEEPSEEK_V2: list[Mutation] = [
    *LATENT,
    *each("topk_method", "greedy", "noaux_tc", None, GONE),
    *each("n_group", None, GONE, topk_method="greedy"),
    *each("topk_group", None, topk_method="greedy"),
]
DEEPSEEK_V3: list[Mutation] = [
    *LATENT,
    *each("rope_interleave", False, None, GONE),
    *each("num_mtp_layers", 0, 3),
    *each("topk_method", "noaux_tc"),
    *each("scoring_func", "sigmoid"),
]
GPT_OSS: list[Mutation] = [
    *each("num_experts_per_tok", 1, 4, 0, 5, GONE),
    *each("num_local_experts", 0, None, "4"),
    *each("num_experts", 4, 3, num_local_experts=GONE),
    *each("num_experts", 4, 3),
    *each("swiglu_limit", 0.4, 7.0, GONE, 0, None, "1"),
    *each("swiglu_alpha", 0.4, GONE, 0, None),
    *each("attention_bias", False, None, GONE),
    *each("sliding_window", 3, 0, None, GONE),
    *each("layer_types", SLIDING, SLIDING[::-1], SLIDING[1:], GONE, None),
    *each("rope_parameters", None, GONE, {}, YARN, YARN | {"truncate": False}),
    *each("rope_scaling", YARN, {"rope_type": "linear", "factor": 3.0}, rope_parameters=GONE),
    *each("rope_theta", 500.0, rope_parameters=GONE),
    *each("hidden_act", "gelu"),
    *each("mlp_bias", True),
    *each("head_dim", GONE, 4, None),
    *each("num_key_value_heads", 2, 3, GONE),
    *each("router_aux_loss_coef", 0.5),
    *each("output_router_logits", True),
    *each("rms_norm_eps", 0.1, GONE),
]
RECURRENT, FULL = "linear_attention", "full_attention"
HYBRID: list[Mutation] = [
    *each("linear_num_key_heads", 1, 4, 3, 0, GONE, None),
    *each("linear_num_value_heads", 2, 8, 3, GONE, "4"),
    *each("linear_key_head_dim", 8, 0, GONE),
    *each("linear_value_head_dim", 8, 0, GONE, None),
    *each("linear_conv_kernel_dim", 3, 1, GONE),
    *each("layer_types", [FULL, RECURRENT], [FULL, FULL], [RECURRENT], SLIDING, "x", GONE, None),
    *each("full_attention_interval", 1, 2, 3, 0, None),
    *each("full_attention_interval", 1, 2, 3, 0, None, layer_types=GONE),
    *each("partial_rotary_factor", 0.5, 1.0, 0, GONE, None, "0.5"),
    *each("partial_rotary_factor", 0.5, 1.0, 0, 1.5, rope_parameters=GONE),
    *each("rope_parameters", *({"partial_rotary_factor": share} for share in (0.5, 1, 0, None))),
    *each("rope_parameters", {"mrope_section": [2, 1, 1], "mrope_interleaved": True}),
    *each("rope_parameters", GONE, None, {}, [1]),
    *each("attention_bias", True, False, None),
    *each("hidden_act", "gelu", "no_such"),
    *each("rms_norm_eps", 0.1, GONE),
    *each("head_dim", 4, GONE, None),
    *each("num_key_value_heads", 1, GONE),
    *each("sliding_window", 4),
    *each("attn_output_gate", False),
]
QWEN2_MOE: list[Mutation] = [
    *each("num_experts_per_tok", 1, 4, 0, 5, GONE),
    *each("norm_topk_prob", True, False, GONE, None),
    *each("moe_intermediate_size", 24, 0, GONE),
    *each("shared_expert_intermediate_size", 16, 0, GONE, None, "8"),
    *each("decoder_sparse_step", 1, 2, 3, 0),
    *each("mlp_only_layers", [], [0], [0, 1], None),
    *each("qkv_bias", False, None, GONE, 1),
    *each("attention_bias", True, False),
    *each("use_sliding_window", True, sliding_window=4),
    *each("use_sliding_window", True, sliding_window=4, max_window_layers=1),
    *each("use_sliding_window", True, sliding_window=4, max_window_layers=-1),
    Mutation(
        {"use_sliding_window": True, "sliding_window": None},
        fails_there="it asks for a window even where no layer slides",
    ),
    *each("sliding_window", 4, 0, None),
    *each("max_window_layers", 0, None, "1"),
    *each("layer_types", SLIDING),
    *each("layer_types", SLIDING[::-1], use_sliding_window=True, sliding_window=4),
    *each("num_key_value_heads", None, GONE),
    *each("head_dim", GONE),
    *each("hidden_act", "gelu", "no_such"),
    *each("output_router_logits", True),
]
