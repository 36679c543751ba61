"""Random shapes of every family in Hugging Face's words: odd, narrow, lopsided, seeded.

Each is a `(family, shape)` that `tests/golden/make_*.py` builds. Published models hardly differ in
these numbers; a mistake that they hide (heads that fill the width, even vocabularies, windows that
no prompt reaches) shows here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Shape = tuple[str, dict[str, Any]]
COUNTS = {
    "t5_v1_0": 9, "t5_v1_1": 10, "mt5": 5, "gpt2": 7, "llama": 10, "mistral": 9, "qwen2": 8,
    "qwen3": 6, "bart": 3, "mbart": 3, "marian": 3, "m2m_100": 3,
    "gemma2": 6, "gemma3_text": 6, "olmo2": 5, "phi3": 5, "smollm3": 5,
    "gpt_neox": 7, "opt": 6, "mixtral": 6, "qwen3_moe": 7,
    "umt5": 5, "t5gemma": 8, "t5gemma2": 8, "gemma": 5, "phi4": 4, "opt_350m": 5, "gpt2_scaled": 4,
    "pegasus": 3, "marian_two": 4, "cwm": 5, "qwen2_moe": 4, "glm4_moe": 4, "gpt_oss": 4,
    "olmo": 3, "olmo3": 4, "exaone4": 4, "granite": 3, "glm": 3, "glm4": 3, "cohere": 3,
    "cohere2": 4, "starcoder2": 3, "stablelm": 4, "phi": 3,
    "falcon": 6, "ministral": 3, "ministral3": 3, "gemma4_text": 5,
    "deepseek_v2": 5, "deepseek_v3": 5,
    "qwen3_5_text": 6, "qwen3_next": 4,
    "longt5": 6, "gemma4_small": 4,
    "granitemoehybrid": 4, "bamba": 4, "granitemoe": 3, "granitemoeshared": 3,
    "switch_transformers": 5, "led": 5, "pegasus_x": 4,
    "qwen3_5_moe_text": 4, "recurrent_gemma": 4, "phimoe": 4, "llama4_text": 6,
    "bloom": 4, "mpt": 4, "nemotron_h": 4, "mistral4": 4, "gemma3n_text": 4,
}  # fmt: skip
SPEECH_SEED = 30
"""Of shapes of models that listen; a family's is its place in `COUNTS`, new ones come last."""

KINDS = {"phi4": "phi3", "opt_350m": "opt", "gpt2_scaled": "gpt2", "gemma4_small": "gemma4_text"}
"""Of names that are no family's, the family."""


def shapes() -> dict[str, Shape]:
    """All shapes by name."""
    made = {}
    for number, (family, count) in enumerate(COUNTS.items()):
        rng = np.random.default_rng(number)
        for index in range(count):
            kind = KINDS.get(family, family)
            made[f"{family}_{index}"] = kind, _MAKERS[family](_Choice(rng))
    return made


def speech_shapes(count: int) -> dict[str, dict[str, Any]]:
    """Shapes of models that listen, whose prompts are no tokens."""
    draw = _Choice(np.random.default_rng(SPEECH_SEED))
    return {f"odd {index}": _whisper(draw) for index in range(count)}


class _Choice:
    """Draws of plain Python values, which JSON can hold."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def of(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def chance(self) -> bool:
        return self.of(True, False)


def _t5(draw: _Choice, *projections: str) -> dict[str, Any]:
    return {
        "vocab_size": draw.of(61, 97, 128, 203),
        "d_model": draw.of(7, 12, 17, 24),
        "d_kv": draw.of(1, 3, 8, 11),
        "d_ff": draw.of(5, 16, 31),
        "num_heads": draw.of(1, 3, 5),
        "num_layers": draw.of(1, 1, 2),
        "num_decoder_layers": draw.of(1, 2, 2, 3),
        "feed_forward_proj": draw.of(*projections),
        "relative_attention_num_buckets": draw.of(4, 7, 13, 32),
        "relative_attention_max_distance": draw.of(18, 50, 128),
        "layer_norm_epsilon": draw.of(1e-6, 1e-3),
    }


def _t5_v1_0(draw: _Choice) -> dict[str, Any]:
    return _t5(draw, "relu", "relu", "gelu", "silu") | {"tie_word_embeddings": draw.of(True, False)}


def _gated_t5(draw: _Choice) -> dict[str, Any]:
    gates = _t5(draw, "gated-gelu", "gated-gelu", "gated-silu", "gated-relu")
    return gates | {"tie_word_embeddings": draw.of(True, False)}


def _longt5(draw: _Choice) -> dict[str, Any]:
    """Neighborhoods that prompts exceed, and blocks that the shortest prompts do not fill."""
    return _gated_t5(draw) | {
        "encoder_attention_type": draw.of("local", "transient-global", "transient-global"),
        "local_radius": draw.of(0, 1, 2, 5, 9),
        "global_block_size": draw.of(1, 3, 4, 30),
    }


def _switch(draw: _Choice) -> dict[str, Any]:
    """Experts that no text fills: PyTorch's logits of whole texts would leave tokens out."""
    shape, layers = _t5(draw, "relu"), draw.of(1, 2, 4)
    del shape["feed_forward_proj"]
    return shape | {
        "dense_act_fn": draw.of("relu", "gelu", "silu"),
        "tie_word_embeddings": draw.of(True, False),
        "num_layers": layers,
        "num_sparse_encoder_layers": draw.of(0, 1, layers // 2, layers),
        "num_sparse_decoder_layers": draw.of(0, 1, 1, 2),
        "num_experts": draw.of(1, 3, 6),
        "router_bias": draw.chance(),
    }


def _stack(draw: _Choice, vocabulary: int) -> dict[str, Any]:
    """Half of a T5Gemma, whose class wants a width that its heads divide."""
    heads, kv_heads = draw.of((1, 1), (3, 1), (4, 2), (6, 3), (5, 5))
    layers = draw.of(1, 2, 2, 3)
    kinds = "sliding_attention", "full_attention"
    return {
        "vocab_size": vocabulary,
        "hidden_size": heads * draw.of(2, 3, 5),
        "intermediate_size": draw.of(5, 16, 31),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": draw.of(2, 6, 10),
        "query_pre_attn_scalar": draw.of(1, 7, 30),
        "sliding_window": draw.of(1, 3, 8, 17),
        "layer_types": draw.of(None, [draw.of(*kinds) for _ in range(layers)]),
        "attn_logit_softcapping": draw.of(None, 1.5, 20.0),
        "final_logit_softcapping": draw.of(None, 9.0, 30.0),
        "hidden_activation": draw.of("gelu_pytorch_tanh", "gelu_pytorch_tanh", "silu"),
        "rms_norm_eps": draw.of(1e-6, 1e-3),
        "attention_bias": draw.chance(),
        "rope_parameters": {"rope_type": "default", "rope_theta": draw.of(100.0, 1e4)},
    }


def _t5gemma(draw: _Choice) -> dict[str, Any]:
    vocabulary = draw.of(61, 97, 128)
    return {
        "vocab_size": vocabulary,
        "encoder": _stack(draw, vocabulary),
        "decoder": _stack(draw, vocabulary),
        "tie_word_embeddings": draw.chance(),
    }


def _t5gemma2(draw: _Choice) -> dict[str, Any]:
    """Halves of one width, whose layers with windows rotate by a base of their own."""
    vocabulary, width = draw.of(61, 97, 128), draw.of(12, 30)
    halves = []
    for _ in range(2):
        half, plain = _stack(draw, vocabulary), {"rope_type": "default"}
        heads, kv_heads = draw.of((1, 1), (3, 1), (6, 3), (6, 6))
        full = draw.of(plain, {"rope_type": "linear", "factor": 8.0})
        half |= {
            "hidden_size": width,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "attn_logit_softcapping": None,
            "rope_parameters": {
                "full_attention": full | {"rope_theta": draw.of(100.0, 1e4)},
                "sliding_attention": plain | {"rope_theta": draw.of(10.0, 1e3)},
            },
        }
        halves.append(half)
    return {
        "vocab_size": vocabulary,
        "model_type": "t5gemma2",
        "encoder": halves[0],
        "decoder": halves[1],
        "eoi_token_index": draw.of(5, 60, 256_000),
    }


def _ends(draw: _Choice) -> dict[str, Any]:
    return {"vocab_size": draw.of(61, 97, 128, 203), "tie_word_embeddings": draw.chance()}


def _gpt2(draw: _Choice) -> dict[str, Any]:
    heads = draw.of(1, 3, 5)
    return _ends(draw) | {
        "n_embd": heads * draw.of(3, 5, 8),
        "n_head": heads,
        "n_layer": draw.of(1, 2, 2, 3),
        "n_inner": draw.of(None, 7, 33),
        "n_positions": draw.of(80, 97),
        "activation_function": draw.of("gelu_new", "gelu", "relu"),
        "layer_norm_epsilon": draw.of(1e-5, 1e-3),
    }


def _rotary(draw: _Choice) -> dict[str, Any]:
    """What Llama and its relatives share; keys and values for one head, for some or for all."""
    heads, kv_heads = draw.of((1, 1), (3, 1), (5, 5), (6, 2), (6, 3), (7, 1), (7, 7))
    return _ends(draw) | {
        "hidden_size": heads * draw.of(2, 4, 6),
        "intermediate_size": draw.of(5, 16, 31),
        "num_hidden_layers": draw.of(1, 2, 2, 3),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": draw.of(97, 256),
        "rms_norm_eps": draw.of(1e-6, 1e-3),
        "hidden_act": draw.of("silu", "silu", "gelu", "relu"),
        "rope_parameters": {"rope_type": "default", "rope_theta": draw.of(100.0, 1e4, 1e6)},
    }


def _with_heads(draw: _Choice) -> dict[str, Any]:
    return _rotary(draw) | {"head_dim": draw.of(2, 6, 10, 16)}


def _llama(draw: _Choice) -> dict[str, Any]:
    scaled = draw.of(
        {},
        {},
        {"rope_type": "linear", "factor": 3.0},
        {
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    )  # fmt: skip
    shape = _with_heads(draw)
    shape["rope_parameters"] |= scaled
    return shape | {"attention_bias": draw.chance(), "mlp_bias": draw.chance()}


def _mistral(draw: _Choice) -> dict[str, Any]:
    return _with_heads(draw) | {"sliding_window": draw.of(1, 3, 8, 17, None)}


def _with_window(draw: _Choice, shape: dict[str, Any]) -> dict[str, Any]:
    return shape | {
        "use_sliding_window": draw.chance(),
        "sliding_window": draw.of(2, 5, 13),
        "max_window_layers": draw.of(0, 1, 5),
    }


def _qwen2(draw: _Choice) -> dict[str, Any]:
    return _with_window(draw, _rotary(draw))


def _qwen3(draw: _Choice) -> dict[str, Any]:
    return _with_window(draw, _with_heads(draw)) | {"attention_bias": draw.chance()}


def _bart(draw: _Choice) -> dict[str, Any]:
    """Stacks of different depths, widths and heads; the longest prompt fits the positions."""
    heads, own = draw.of((1, 1), (3, 3), (2, 4), (6, 2))
    return _ends(draw) | {
        "d_model": 12 * draw.of(1, 2),
        "encoder_layers": draw.of(1, 2),
        "decoder_layers": draw.of(1, 2, 2, 3),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": own,
        "encoder_ffn_dim": draw.of(5, 16, 31),
        "decoder_ffn_dim": draw.of(5, 16, 31),
        "max_position_embeddings": draw.of(40, 53),
        "activation_function": draw.of("gelu", "relu", "swish"),
        "scale_embedding": draw.chance(),
    }


def _sinusoids(draw: _Choice) -> dict[str, Any]:
    """Odd widths too."""
    heads, width = draw.of((1, 7), (3, 15), (2, 16), (5, 25))
    own = {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "d_model": width}
    return _bart(draw) | own


def _led(draw: _Choice) -> dict[str, Any]:
    """Windows that prompts exceed; some tokens are global, perhaps all of a short prompt.

    PyTorch's class fails with windows of 2, or that do not divide the longest.
    """
    shape = _bart(draw)
    own = {f"max_{side}_position_embeddings": draw.of(40, 53) for side in ("encoder", "decoder")}
    window = [draw.of(4, 4, 8, 16) for _ in range(shape["encoder_layers"])]
    own |= {"attention_window": draw.of(8, window), "global_tokens": draw.of(0, 1, 1, 4)}
    shared = "max_position_embeddings", "scale_embedding"
    return {name: value for name, value in shape.items() if name not in shared} | own


def _pegasus_x(draw: _Choice) -> dict[str, Any]:
    return _bart(draw) | {
        "num_global_tokens": draw.of(1, 2, 5),
        "block_size": draw.of(2, 4, 6, 64),
        "stagger_local_blocks": draw.of(True, True, False),
    }


def _marian_two(draw: _Choice) -> dict[str, Any]:
    """Built by its own name: what `make_bart` knows of it is a shape of two vocabularies."""
    return _sinusoids(draw) | {
        "vocab_size": draw.of(61, 128),
        "decoder_vocab_size": draw.of(97, 203),
    }


def _whisper(draw: _Choice) -> dict[str, Any]:
    """Widths are even: half of an encoder's positions are sines, the other half cosines."""
    heads, own, width = draw.of((1, 1, 10), (3, 3, 18), (2, 6, 12), (7, 1, 14))
    return {
        "d_model": width,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": own,
        "encoder_layers": draw.of(1, 2, 3),
        "decoder_layers": draw.of(1, 2, 2, 3),
        "encoder_ffn_dim": draw.of(5, 16, 31),
        "decoder_ffn_dim": draw.of(5, 16, 31),
        "num_mel_bins": draw.of(1, 5, 9),
        "max_source_positions": draw.of(50, 100),  # whole seconds
        "max_target_positions": draw.of(31, 40),
        "activation_function": draw.of("gelu", "relu", "swish"),
        "scale_embedding": draw.chance(),
    }


def _gemma(draw: _Choice) -> dict[str, Any]:
    shape = _with_heads(draw)
    kinds = "sliding_attention", "full_attention"
    return {name: value for name, value in shape.items() if name != "hidden_act"} | {
        "hidden_activation": draw.of("gelu_pytorch_tanh", "silu"),
        "sliding_window": draw.of(1, 3, 8, 17),
        "layer_types": [draw.of(*kinds) for _ in range(shape["num_hidden_layers"])],
        "query_pre_attn_scalar": draw.of(1, 7, 16),
        "final_logit_softcapping": draw.of(None, 5.0, 30.0),
        "attention_bias": draw.chance(),
    }


def _gemma2(draw: _Choice) -> dict[str, Any]:
    return _gemma(draw) | {"attn_logit_softcapping": draw.of(None, 2.0, 50.0)}


def _gemma3(draw: _Choice) -> dict[str, Any]:
    shape = _gemma(draw)
    plain = {"rope_type": "default", "rope_theta": draw.of(10.0, 1e3)}
    full = {**shape["rope_parameters"], **draw.of({}, {"rope_type": "linear", "factor": 8.0})}
    return shape | {"rope_parameters": {"sliding_attention": plain, "full_attention": full}}


def _olmo2(draw: _Choice) -> dict[str, Any]:
    return _with_heads(draw) | {"attention_bias": draw.chance()}


def _phi3(draw: _Choice) -> dict[str, Any]:
    return _with_heads(draw) | {"sliding_window": draw.of(None, 3, 8)}


def _gemma1(draw: _Choice) -> dict[str, Any]:
    return _with_heads(draw) | {"attention_bias": draw.chance()}


def _phi4(draw: _Choice) -> dict[str, Any]:
    """Its class wants factors for heads that fill the width."""
    shape, rotated = _rotary(draw), draw.of(2, 4, 6)
    shape["hidden_size"] = 8 * shape["num_attention_heads"]
    share = {"partial_rotary_factor": (rotated + 0.5) / 8}
    factors = {side: [draw.of(1.0, 1.5, 3.0)] * (rotated // 2) for side in ("short", "long")}
    long = {"rope_type": "longrope"} | {f"{k}_factor": v for k, v in factors.items()}
    shape["rope_parameters"] |= share | draw.of({}, long)
    return shape | {"max_position_embeddings": 256, "original_max_position_embeddings": 97}


def _smollm3(draw: _Choice) -> dict[str, Any]:
    shape = _with_heads(draw)
    return shape | {
        "no_rope_layers": [draw.of(0, 1) for _ in range(shape["num_hidden_layers"])],
        "use_sliding_window": draw.chance(),
        "sliding_window": draw.of(None, 5, 13),
        "mlp_bias": draw.chance(),
    }


def _cwm(draw: _Choice) -> dict[str, Any]:
    own = {"sliding_window": draw.of(3, 8), "mlp_bias": draw.chance(), "bos_token_id": 2}
    return _with_heads(draw) | own


def _mixed_windows(draw: _Choice, shape: dict[str, Any]) -> dict[str, Any]:
    """Each layer with a window or without; in one of four shapes all by what the class says."""
    kinds = "sliding_attention", "full_attention"
    types = [draw.of(*kinds) for _ in range(shape["num_hidden_layers"])]
    return shape | {
        "sliding_window": draw.of(1, 3, 8),
        "layer_types": draw.of(None, types, types, types),
    }


def _olmo(draw: _Choice) -> dict[str, Any]:
    return _with_heads(draw) | {
        "attention_bias": draw.chance(),
        "clip_qkv": draw.of(None, 0.5, 2.0),
    }


def _olmo3(draw: _Choice) -> dict[str, Any]:
    shape = _mixed_windows(draw, _with_heads(draw)) | {"attention_bias": draw.chance()}
    plain = {"rope_type": "default", "rope_theta": draw.of(10.0, 1e3)}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    full = {**shape["rope_parameters"], **draw.of({}, yarn)}
    return shape | {"rope_parameters": {"sliding_attention": plain, "full_attention": full}}


def _exaone4(draw: _Choice) -> dict[str, Any]:
    shape = _mixed_windows(draw, _with_heads(draw))
    unwindowed = {
        "sliding_window": None,
        "layer_types": ["full_attention"] * shape["num_hidden_layers"],
    }
    return shape | draw.of({}, {}, unwindowed)


def _granite(draw: _Choice) -> dict[str, Any]:
    return _with_heads(draw) | {
        "embedding_multiplier": draw.of(1.0, 12.0, 0.3),
        "attention_multiplier": draw.of(0.015625, 0.5),
        "residual_multiplier": draw.of(1.0, 0.22),
        "logits_scaling": draw.of(1.0, 8.0, 0.3),
        "attention_bias": draw.chance(),
        "mlp_bias": draw.chance(),
    }


def _glm(draw: _Choice) -> dict[str, Any]:
    shape, d_head = _with_heads(draw), draw.of(4, 6, 10)
    rotated = draw.of(*range(2, d_head + 1, 2))
    shape["rope_parameters"] |= {"partial_rotary_factor": (rotated + 0.5) / d_head}
    if rotated == d_head:
        shape["rope_parameters"] |= {"partial_rotary_factor": 1.0}
    return shape | {"head_dim": d_head, "attention_bias": draw.chance()}


def _layer_normed(draw: _Choice) -> dict[str, Any]:
    """What relatives of Llama with layer norms share.

    Norms of four numbers magnify rounding: PyTorch's own logits are 4e-4 from those in float64.
    """
    shape = _rotary(draw) | {"layer_norm_eps": draw.of(1e-5, 1e-3)}
    shape["hidden_size"] = shape["num_attention_heads"] * draw.of(6, 8, 12)
    return {name: value for name, value in shape.items() if name != "rms_norm_eps"}


def _cohere2(draw: _Choice) -> dict[str, Any]:
    own = {"logit_scale": draw.of(0.0625, 0.5, 1.0), "attention_bias": draw.chance()}
    return _layer_normed(draw) | own


def _cohere(draw: _Choice) -> dict[str, Any]:
    return _cohere2(draw) | {"use_qk_norm": draw.chance()}


def _starcoder2(draw: _Choice) -> dict[str, Any]:
    shape = _layer_normed(draw)
    own = {"norm_epsilon": shape.pop("layer_norm_eps"), "use_bias": draw.chance()}
    return shape | own | {"sliding_window": draw.of(None, 3, 8)}


def _phi(draw: _Choice) -> dict[str, Any]:
    """Rotations are of an even share of heads that fill the width."""
    shape = _layer_normed(draw)
    shape["hidden_size"] = 8 * shape["num_attention_heads"]
    shape["rope_parameters"] |= {"partial_rotary_factor": draw.of(0.25, 0.5, 0.8)}
    return shape | {"qk_layernorm": draw.chance(), "tie_word_embeddings": False}


def _stablelm(draw: _Choice) -> dict[str, Any]:
    own = {"use_qkv_bias": draw.chance(), "use_parallel_residual": draw.chance()}
    return _phi(draw) | own | {"tie_word_embeddings": draw.chance()}


def _falcon(draw: _Choice) -> dict[str, Any]:
    """What the older layout can express is exported in it, with another order of its sums."""
    heads, kv_heads = draw.of((1, 1), (3, 1), (6, 2), (6, 3), (5, 5))
    new = {"new_decoder_architecture": True, "num_kv_heads": kv_heads}
    grouped = 1 < kv_heads < heads
    new |= {"num_ln_in_parallel_attn": draw.of(None, 1 if grouped else 2, 2)}
    old = {"multi_query": draw.chance(), "parallel_attn": draw.chance()}
    return _ends(draw) | {
        "hidden_size": heads * draw.of(4, 6, 10),
        "num_attention_heads": heads,
        "num_hidden_layers": draw.of(1, 2, 2, 3),
        "ffn_hidden_size": draw.of(None, 7, 33),
        "max_position_embeddings": draw.of(80, 97),
        "rope_parameters": {"rope_type": "default", "rope_theta": draw.of(100.0, 1e4)},
        "bias": draw.chance(),
        "activation": draw.of("gelu", "relu"),
        "layer_norm_epsilon": draw.of(1e-5, 1e-3),
        **draw.of(new, old),
    }


def _gemma4(draw: _Choice) -> dict[str, Any]:
    shape = _mixed_windows(draw, _with_heads(draw))
    kv_heads = shape["num_key_value_heads"]
    full = {
        "rope_type": "proportional", "partial_rotary_factor": draw.of(0.25, 0.6, 1.0),
        "rope_theta": draw.of(100.0, 1e6),
    }  # fmt: skip
    sliding = {"rope_type": "default", "rope_theta": draw.of(10.0, 1e3)}
    return {name: value for name, value in shape.items() if name != "hidden_act"} | {
        "hidden_activation": draw.of("gelu_pytorch_tanh", "silu"),
        "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
        "attention_k_eq_v": draw.chance(),
        "global_head_dim": draw.of(4, 8, 14),
        "num_global_key_value_heads": draw.of(None, 1, kv_heads),
        "final_logit_softcapping": draw.of(None, 5.0, 30.0),
        "attention_bias": draw.chance(),
        "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 61,
    }


def _gemma4_small(draw: _Choice) -> dict[str, Any]:
    """The last layers read caches of earlier ones, of each kind or of the only one.

    Norms of few or small numbers magnify rounding: PyTorch's own logits were 7e-4 from those in
    float64. Without layers' vectors transformers cannot share caches.
    """
    sliding, full = "sliding_attention", "full_attention"
    shared = draw.of(1, 3, 4)
    own = draw.of([full], [sliding, full], [full, sliding, full, sliding])
    kinds = [*own, *(draw.of(*own) for _ in range(shared - 1)), full]
    shape = _gemma4(draw)
    shape |= {
        "hidden_size": 8 * shape["num_attention_heads"],
        "head_dim": draw.of(6, 10),
        "rms_norm_eps": 1e-3,
        "num_hidden_layers": len(kinds),
        "num_kv_shared_layers": shared,
        "layer_types": kinds,
        "sliding_window": draw.of(2, 3, 8),
        "use_double_wide_mlp": draw.chance(),
        "hidden_size_per_layer_input": draw.of(9, 14),
    }
    return shape | {"vocab_size_per_layer_input": shape["vocab_size"] + draw.of(0, 3)}


def _gemma3n(draw: _Choice) -> dict[str, Any]:
    """With the kinds of layers and wider norms of small models of Gemma 4."""
    shape = _gemma4_small(draw)
    layers, kv_heads = shape["num_hidden_layers"], shape["num_key_value_heads"]
    names = "attention_k_eq_v", "global_head_dim", "num_global_key_value_heads"
    streams = draw.of(1, 2, 4)
    plain = {"rope_type": "default", "rope_theta": draw.of(100.0, 1e6)}
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    sliding = shape["rope_parameters"]["sliding_attention"]
    kept = {
        name: value
        for name, value in shape.items()
        if name not in (*names, "use_double_wide_mlp")
        and (name != "final_logit_softcapping" or value)
    }
    return kept | {
        "num_key_value_heads": kv_heads,
        "rope_parameters": {"full_attention": draw.of(plain, linear), "sliding_attention": sliding},
        "vocab_size_per_layer_input": shape["vocab_size"] + draw.of(-3, 0, 3),
        "altup_num_inputs": streams,
        "altup_active_idx": draw.of(0, streams - 1),
        "altup_correct_scale": draw.chance(),
        "laurel_rank": draw.of(1, 4, 7),
        "activation_sparsity_pattern": [draw.of(0.0, 0.5, 0.9) for _ in range(layers)],
    }


def _ministral(draw: _Choice) -> dict[str, Any]:
    return _mixed_windows(draw, _with_heads(draw))


def _ministral3(draw: _Choice) -> dict[str, Any]:
    shape = _mistral(draw)
    shape["rope_parameters"] |= {
        "rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": draw.of(0.0, 0.1, 0.5),
        "original_max_position_embeddings": draw.of(4, 16), "mscale": 1.0, "mscale_all_dim": 1.0,
    }  # fmt: skip
    return shape


def _gpt_neox(draw: _Choice) -> dict[str, Any]:
    heads, d_head = draw.of(1, 3, 5), draw.of(4, 6, 10)
    rotated = draw.of(*range(2, d_head + 1, 2))
    return _ends(draw) | {
        "hidden_size": heads * d_head,
        "num_attention_heads": heads,
        "num_hidden_layers": draw.of(1, 2, 2, 3),
        "intermediate_size": draw.of(7, 33),
        "max_position_embeddings": draw.of(80, 97),
        "rotary_pct": (rotated + draw.of(0.0, 0.5)) / d_head,
        "rotary_emb_base": draw.of(100, 10_000),
        "use_parallel_residual": draw.chance(),
        "attention_bias": draw.chance(),
        "hidden_act": draw.of("gelu", "gelu_new", "relu"),
        "layer_norm_eps": draw.of(1e-5, 1e-3),
    }


def _opt(draw: _Choice) -> dict[str, Any]:
    heads = draw.of(1, 3, 5)
    return _ends(draw) | {
        "hidden_size": heads * draw.of(3, 5, 8),
        "num_attention_heads": heads,
        "num_hidden_layers": draw.of(1, 2, 2, 3),
        "ffn_dim": draw.of(7, 33),
        "max_position_embeddings": draw.of(80, 97),
        "enable_bias": draw.chance(),
        "activation_function": draw.of("relu", "relu", "gelu"),
    }


def _opt_350m(draw: _Choice) -> dict[str, Any]:
    shape = _opt(draw)
    return shape | {
        "word_embed_proj_dim": draw.of(3, 11, shape["hidden_size"]),
        "do_layer_norm_before": draw.of(False, False, True),
        "_remove_final_layer_norm": draw.chance(),
    }


def _gpt2_scaled(draw: _Choice) -> dict[str, Any]:
    return _gpt2(draw) | {
        "scale_attn_by_inverse_layer_idx": draw.chance(),
        "scale_attn_weights": draw.chance(),
    }


def _mixture(draw: _Choice, count: str) -> dict[str, Any]:
    """Widths are multiples of 4: PyTorch's grouped products take no others."""
    shape = _with_heads(draw)
    experts, chosen = draw.of((1, 1), (3, 1), (5, 2), (4, 4), (8, 3))
    return shape | {
        "hidden_size": 4 * shape["num_attention_heads"],
        count: experts,
        "num_experts_per_tok": chosen,
    }


def _mixtral(draw: _Choice) -> dict[str, Any]:
    own = {"intermediate_size": draw.of(4, 16, 28), "sliding_window": draw.of(3, None)}
    return _mixture(draw, "num_local_experts") | own


def _bloom(draw: _Choice) -> dict[str, Any]:
    """Heads that are no power of two, too."""
    heads = draw.of(1, 2, 3, 5, 6, 12)
    return _ends(draw) | {
        "hidden_size": heads * draw.of(2, 3, 6),
        "n_head": heads,
        "n_layer": draw.of(1, 2, 2, 3),
        "layer_norm_epsilon": draw.of(1e-5, 1e-3),
    }


def _mpt(draw: _Choice) -> dict[str, Any]:
    """The longest text fits `max_seq_len`, which transformers' biases do not exceed."""
    shape = _bloom(draw)
    attention = {"clip_qkv": draw.of(None, 0.7, 2.0), "softmax_scale": draw.of(None, 0.4)}
    return _ends(draw) | {
        "d_model": shape["hidden_size"],
        "n_heads": shape["n_head"],
        "n_layers": shape["n_layer"],
        "layer_norm_epsilon": shape["layer_norm_epsilon"],
        "max_seq_len": draw.of(80, 97),
        "attn_config": draw.of({}, attention, attention),
    }


def _llama4(draw: _Choice) -> dict[str, Any]:
    """Chunks that prompts exceed, perhaps in layers that do not rotate; experts in some layers."""
    shape = _llama(draw)
    del shape["mlp_bias"]
    layers, experts = shape["num_hidden_layers"], draw.of(1, 3, 6)
    kinds = "chunked_attention", "full_attention"
    return shape | {
        "intermediate_size_mlp": draw.of(5, 16, 31),
        "num_local_experts": experts,
        "num_experts_per_tok": min(experts, draw.of(1, 1, 2)),
        "moe_layers": draw.of(None, [draw.of(*range(layers))], []),
        "interleave_moe_layer_step": draw.of(1, 2),
        "use_qk_norm": draw.of(True, True, False),
        "no_rope_layers": [draw.of(0, 1) for _ in range(layers)],
        "layer_types": draw.of(None, None, [draw.of(*kinds) for _ in range(layers)]),
        "attention_chunk_size": draw.of(1, 3, 8, 17),
        "attn_temperature_tuning": draw.of(True, True, False),
        "floor_scale": draw.of(1, 4, 20),
        "attn_scale": draw.of(0.1, 0.7),
    }


def _phimoe(draw: _Choice) -> dict[str, Any]:
    """Texts outgrow the first length, after which the short factors still count."""
    shape, scale = _mixtral(draw), draw.of(0.7, 1.3)
    factors = [draw.of(1.0, 1.5, 3.0)] * (shape["head_dim"] // 2)
    shape["rope_parameters"] |= draw.of({}, {
        "rope_type": "longrope", "short_factor": factors, "long_factor": [7.0] * len(factors),
        "short_mscale": scale, "long_mscale": scale, "original_max_position_embeddings": 16,
    })  # fmt: skip
    head_bias = not shape["tie_word_embeddings"] and draw.chance()
    return shape | {
        "num_local_experts": draw.of(2, 3, 6),
        "num_experts_per_tok": 2,
        "router_jitter_noise": draw.of(0.0, 0.01, 0.3, 1.0),
        "attention_bias": draw.chance(),
        "lm_head_bias": head_bias,
    }


def _qwen3_moe(draw: _Choice) -> dict[str, Any]:
    shape = _mixture(draw, "num_experts")
    layers = shape["num_hidden_layers"]
    return shape | {
        "moe_intermediate_size": draw.of(4, 12, 20),
        "decoder_sparse_step": draw.of(1, layers),
        "mlp_only_layers": draw.of([], [0] if layers > 1 else []),
        "norm_topk_prob": draw.chance(),
        "attention_bias": draw.chance(),
        "use_sliding_window": draw.chance(),
        "sliding_window": draw.of(2, 5, 13),
    }


def _qwen2_moe(draw: _Choice) -> dict[str, Any]:
    shape = _qwen3_moe(draw)
    del shape["attention_bias"]
    return shape | {
        "shared_expert_intermediate_size": draw.of(4, 8, 24),
        "qkv_bias": draw.chance(),
        "max_window_layers": draw.of(0, 1, 28),
    }


def _gpt_oss(draw: _Choice) -> dict[str, Any]:
    shape = _mixture(draw, "num_local_experts")
    shape.pop("hidden_act", None)  # there is one gate for all
    return shape | {
        "intermediate_size": draw.of(4, 16, 28),
        "sliding_window": draw.of(2, 5, 13),
        "attention_bias": draw.chance(),
        "swiglu_limit": draw.of(0.7, 7.0),
        "swiglu_alpha": draw.of(0.5, 1.702),
    }


def _deepseek_experts(draw: _Choice) -> dict[str, Any]:
    experts, groups, best, chosen = draw.of((4, 1, 1, 1), (4, 2, 1, 2), (6, 3, 2, 3), (9, 3, 1, 2))
    return {
        "n_routed_experts": experts,
        "n_group": groups,
        "topk_group": best,
        "num_experts_per_tok": chosen,
        "moe_intermediate_size": draw.of(4, 12, 20),
        "n_shared_experts": draw.of(1, 2, 3),
        "routed_scaling_factor": draw.of(0.5, 1.0, 2.5),
        "norm_topk_prob": draw.chance(),
        "first_k_dense_replace": draw.of(0, 0, 1),
        "num_hidden_layers": draw.of(2, 3),
    }


def _latent(draw: _Choice) -> dict[str, Any]:
    shape = _with_heads(draw) | _deepseek_experts(draw)
    del shape["head_dim"]
    heads = shape["num_attention_heads"]
    return shape | {
        "hidden_size": 4 * heads,
        "num_key_value_heads": heads,
        "kv_lora_rank": draw.of(2, 6, 14),
        "q_lora_rank": draw.of(None, 3, 8),
        "qk_nope_head_dim": draw.of(2, 4, 10),
        "qk_rope_head_dim": draw.of(2, 4, 8),
        "v_head_dim": draw.of(1, 5, 12),
        "attention_bias": draw.chance(),
    }


def _deepseek_v2(draw: _Choice) -> dict[str, Any]:
    shape = _latent(draw) | {"topk_method": draw.of("greedy", "group_limited_greedy")}
    return shape | {"norm_topk_prob": False}


def _deepseek_v3(draw: _Choice) -> dict[str, Any]:
    scaling = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 16}
    scaling |= {"rope_theta": 500.0, "mscale": 1.0, "mscale_all_dim": draw.of(0.0, 0.8, 1.0)}
    shape = _latent(draw) | {"rope_interleave": draw.chance()}
    return shape | ({"rope_parameters": scaling} if draw.chance() else {})


def _mistral4(draw: _Choice) -> dict[str, Any]:
    """Of more than four numbers, whose norms magnify rounding where attention is sharp."""
    shape = _latent(draw) | {"rope_interleave": draw.chance()}
    shape["rope_parameters"] |= {
        "rope_type": "yarn", "factor": 4.0, "llama_4_scaling_beta": draw.of(0.0, 0.1, 0.2),
        "original_max_position_embeddings": draw.of(4, 16), "mscale": 1.0,
        "mscale_all_dim": draw.of(0.0, 0.8, 1.0),
    }  # fmt: skip
    rotated, plain = draw.of((4, 4), (2, 6), (8, 8), (6, 2))  # shares that floats have exactly
    widths = {"qk_rope_head_dim": rotated, "qk_nope_head_dim": plain}
    return shape | widths | {"hidden_size": 3 * shape["hidden_size"]}


def _glm4_moe(draw: _Choice) -> dict[str, Any]:
    shape = _with_heads(draw) | _deepseek_experts(draw)
    width, heads = shape["head_dim"], shape["num_attention_heads"]
    return shape | {
        "hidden_size": 4 * heads,
        "head_dim": width + width % 2,
        "rope_parameters": {"partial_rotary_factor": draw.of(2.0, width + width % 2) / width},
        "attention_bias": draw.chance(),
        "use_qk_norm": draw.chance(),
    }


def _hybrid(draw: _Choice) -> dict[str, Any]:
    """With some layer that attends: transformers has no cache of recurrent ones alone."""
    heads, groups = draw.of((1, 1), (2, 1), (3, 3), (6, 2), (4, 2))
    width = draw.of(4, 8, 10)
    shape = _with_heads(draw)
    layers = shape["num_hidden_layers"]
    kinds = [draw.of("linear_attention", "full_attention") for _ in range(layers - 1)]
    shape["rope_parameters"] |= {"partial_rotary_factor": draw.of(2.0, width) / width}
    return shape | {
        "head_dim": width,
        "layer_types": [*kinds, "full_attention"][:: draw.of(1, -1)],
        "linear_num_key_heads": groups,
        "linear_num_value_heads": heads,
        "linear_key_head_dim": draw.of(3, 8),
        "linear_value_head_dim": draw.of(5, 6),
        "linear_conv_kernel_dim": draw.of(2, 3, 4),
        "attention_bias": draw.chance(),
    }


def _qwen3_next(draw: _Choice) -> dict[str, Any]:
    mixed = _qwen3_moe(draw)
    shape = mixed | _hybrid(draw) | {"hidden_size": 24}
    for name in ("use_sliding_window", "sliding_window"):
        del shape[name]
    return shape | {
        "shared_expert_intermediate_size": draw.of(4, 8, 24),
        "decoder_sparse_step": 1,
        "mlp_only_layers": [0] if shape["num_hidden_layers"] > 1 else [],
    }


def _qwen3_5_moe(draw: _Choice) -> dict[str, Any]:
    shape = _qwen3_next(draw)
    for name in ("intermediate_size", "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"):
        del shape[name]
    return shape


def _recurrent_gemma(draw: _Choice) -> dict[str, Any]:
    """With some layer that attends, as in `_hybrid`; transformers' caches are as wide as states."""
    shape, kinds = _rotary(draw), ("recurrent", "attention")
    del shape["hidden_act"]
    heads = shape["num_attention_heads"]
    width = heads * draw.of(4, 8)
    return shape | {
        "hidden_size": width,
        "lru_width": draw.of(None, width),
        "num_hidden_layers": draw.of(2, 3),
        "block_types": draw.of(kinds, kinds[::-1]),
        "conv1d_width": draw.of(2, 3, 4),
        "attention_window_size": draw.of(3, 8, 17),
        "logits_soft_cap": draw.of(5.0, 30.0),
        "attention_bias": draw.chance(),
    }


def _nemotron_h(draw: _Choice) -> dict[str, Any]:
    """With some layer that attends, as in `_hybrid`; PyTorch's experts have widths of fours."""
    shape, experts = _with_heads(draw), _deepseek_experts(draw)
    for name in ("hidden_act", "rope_parameters", "num_hidden_layers", "rms_norm_eps"):
        del shape[name]
    for name in ("first_k_dense_replace", "n_shared_experts", "num_hidden_layers"):
        del experts[name]
    heads, groups = draw.of((1, 1), (2, 1), (3, 3), (6, 2))
    kinds = [draw.of("linear_attention", "full_attention", "moe", "mlp") for _ in range(4)]
    return (
        shape
        | experts
        | {
            "hidden_size": 4 * draw.of(2, 3, 7),
            "layers_block_type": [*kinds, "full_attention", "moe"][:: draw.of(1, -1)],
            "moe_latent_size": draw.of(None, 4, 12),
            "moe_shared_expert_intermediate_size": draw.of(3, 24),
            "mamba_num_heads": heads,
            "n_groups": groups,
            "mamba_head_dim": draw.of(1, 4, 10),
            "ssm_state_size": draw.of(1, 3, 8),
            "conv_kernel": draw.of(2, 3, 4),
            "use_conv_bias": draw.chance(),
            "use_bias": draw.chance(),
            "mlp_bias": draw.chance(),
            "mlp_hidden_act": draw.of("relu2", "relu2", "silu"),
            "layer_norm_epsilon": draw.of(1e-5, 1e-3),
            "tie_word_embeddings": False,
            "time_step_min": draw.of(1e-6, 1e-5),
        }
    )


def _granite_moe(draw: _Choice) -> dict[str, Any]:
    factors = _granite(draw)
    del factors["mlp_bias"]
    return factors | _mixture(draw, "num_local_experts") | {"intermediate_size": draw.of(4, 16, 28)}


def _granite_shared(draw: _Choice) -> dict[str, Any]:
    return _granite_moe(draw) | {"shared_intermediate_size": draw.of(0, 4, 24)}


def _mamba(draw: _Choice, width: int) -> dict[str, Any]:
    """Layers whose heads are as wide together as some times the model."""
    expand = draw.of(1, 2)
    heads, groups = draw.of((1, 1), (2, 1), (2, 2), (4, 2))
    return {
        "mamba_expand": expand,
        "mamba_n_heads": heads,
        "mamba_n_groups": groups,
        "mamba_d_head": draw.of("auto", expand * width // heads),
        "mamba_d_state": draw.of(1, 3, 8),
        "mamba_d_conv": draw.of(2, 3, 4),
        "mamba_conv_bias": draw.chance(),
        "mamba_proj_bias": draw.chance(),
    }


def _granite_hybrid(draw: _Choice) -> dict[str, Any]:
    """With some layer that attends, as in `_hybrid`."""
    shape = _granite_moe(draw) | {"shared_intermediate_size": draw.of(4, 24)}
    if draw.chance():
        shape["num_local_experts"] = 0
    kinds = [draw.of("mamba", "attention") for _ in range(shape["num_hidden_layers"] - 1)]
    return (
        shape
        | _mamba(draw, shape["hidden_size"])
        | {
            "layer_types": [*kinds, "attention"][:: draw.of(1, -1)],
            "position_embedding_type": draw.of(None, "rope"),
        }
    )


def _bamba(draw: _Choice) -> dict[str, Any]:
    shape, width = _with_heads(draw), draw.of(4, 8, 12)
    layers = shape["num_hidden_layers"]
    shape |= {"hidden_size": 4 * shape["num_attention_heads"], "head_dim": width}
    shape["rope_parameters"] |= draw.of({}, {"partial_rotary_factor": 1.0})
    return (
        shape
        | _mamba(draw, shape["hidden_size"])
        | {
            "attn_layer_indices": draw.of([0], [layers - 1], list(range(layers))),
            "attention_bias": draw.chance(),
            "mlp_bias": draw.chance(),
        }
    )


_MAKERS = {
    "t5_v1_0": _t5_v1_0, "t5_v1_1": _gated_t5, "mt5": _gated_t5, "gpt2": _gpt2, "llama": _llama,
    "mistral": _mistral, "qwen2": _qwen2, "qwen3": _qwen3,
    "bart": _bart, "mbart": _bart, "marian": _sinusoids, "m2m_100": _sinusoids,
    "gemma2": _gemma2, "gemma3_text": _gemma3, "olmo2": _olmo2, "phi3": _phi3, "smollm3": _smollm3,
    "gpt_neox": _gpt_neox, "opt": _opt,
    "mixtral": _mixtral, "qwen3_moe": _qwen3_moe,
    "umt5": _gated_t5, "longt5": _longt5, "switch_transformers": _switch, "led": _led,
    "pegasus_x": _pegasus_x,
    "t5gemma": _t5gemma, "t5gemma2": _t5gemma2,
    "gemma": _gemma1, "phi4": _phi4, "opt_350m": _opt_350m, "gpt2_scaled": _gpt2_scaled,
    "pegasus": _sinusoids, "marian_two": _marian_two, "cwm": _cwm, "qwen2_moe": _qwen2_moe,
    "glm4_moe": _glm4_moe, "gpt_oss": _gpt_oss,
    "olmo": _olmo, "olmo3": _olmo3, "exaone4": _exaone4, "granite": _granite, "glm": _glm,
    "glm4": _glm, "cohere": _cohere, "starcoder2": _starcoder2, "stablelm": _stablelm,
    "cohere2": lambda draw: _mixed_windows(draw, _cohere2(draw)), "phi": _phi,
    "falcon": _falcon, "ministral": _ministral, "ministral3": _ministral3,
    "gemma4_text": _gemma4,
    "gemma4_small": _gemma4_small,
    "deepseek_v2": _deepseek_v2, "deepseek_v3": _deepseek_v3,
    "qwen3_5_text": _hybrid, "qwen3_next": _qwen3_next,
    "granitemoehybrid": _granite_hybrid, "bamba": _bamba,
    "granitemoe": _granite_moe, "granitemoeshared": _granite_shared,
    "qwen3_5_moe_text": _qwen3_5_moe, "recurrent_gemma": _recurrent_gemma,
    "phimoe": _phimoe, "llama4_text": _llama4, "bloom": _bloom, "mpt": _mpt,
    "nemotron_h": _nemotron_h, "mistral4": _mistral4, "gemma3n_text": _gemma3n,
}  # fmt: skip
