"""Shapes of published decoder-only checkpoints.

Facts of their `config.json`. The lm1b shapes are those of Leviathan et al. (2023), section 4.1,
whose weights were not published.
"""

from __future__ import annotations

from typing import Any

Shape = dict[str, Any]


def _llama(width: int, ff: int, layers: int, heads: int, context: int, eps: float) -> Shape:
    return {
        "model_type": "llama",
        "vocab_size": 32_000,
        "hidden_size": width,
        "intermediate_size": ff,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "max_position_embeddings": context,
        "rms_norm_eps": eps,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _gpt(width: int, ff: int, layers: int, heads: int) -> Shape:
    return {
        "model_type": "gpt2",
        "vocab_size": 8_192,
        "n_embd": width,
        "n_inner": ff,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": 512,
        "tie_word_embeddings": False,
        "eos_token_id": 0,
    }


def _pythia(vocab: int, width: int, layers: int, heads: int) -> Shape:
    return {
        "model_type": "gpt_neox",
        "vocab_size": vocab,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "rotary_pct": 0.25,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def _opt(width: int, layers: int, heads: int) -> Shape:
    return {
        "model_type": "opt",
        "vocab_size": 50_272,
        "hidden_size": width,
        "ffn_dim": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "bos_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
    }


def _rotary(
    model_type: str, vocab: int, width: int, ff: int, layers: int, heads: tuple[int, int]
) -> Shape:
    """What Llama's younger relatives share; `heads` of queries, and of keys and values."""
    return {
        "model_type": model_type,
        "vocab_size": vocab,
        "hidden_size": width,
        "intermediate_size": ff,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
    }


def _qwen3(width: int, ff: int, layers: int, heads: tuple[int, int], tied: bool) -> Shape:
    return _rotary("qwen3", 151_936, width, ff, layers, heads) | {
        "head_dim": 128,
        "max_position_embeddings": 40_960,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": tied,
        "use_sliding_window": False,
        "sliding_window": None,
        "bos_token_id": 151_643,
        "eos_token_id": 151_645,
    }


_GEMMA_TOKENS = {"bos_token_id": 2, "pad_token_id": 0}

_GEMMAS: dict[str, Shape] = {
    "google/gemma-2b": _rotary("gemma", 256_000, 2048, 16_384, 18, (8, 1))
    | _GEMMA_TOKENS
    | {"eos_token_id": 1},
    "google/gemma-7b": _rotary("gemma", 256_000, 3072, 24_576, 28, (16, 16))
    | _GEMMA_TOKENS
    | {"eos_token_id": 1},
    "google/gemma-2-9b": _rotary("gemma2", 256_000, 3584, 14_336, 42, (16, 8))
    | _GEMMA_TOKENS
    | {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096, "eos_token_id": 1},
    "google/gemma-3-1b-it": _rotary("gemma3_text", 262_144, 1152, 6912, 26, (4, 1))
    | _GEMMA_TOKENS
    | {
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 32_768,
        "eos_token_id": [1, 106],
    },
    "google/gemma-3-27b-it": {
        "model_type": "gemma3",
        "text_config": _rotary("gemma3_text", 262_208, 5376, 21_504, 62, (32, 16))
        | {
            "head_dim": 128,
            "query_pre_attn_scalar": 168,
            "sliding_window": 1024,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
        "eos_token_id": [1, 106],
    }
    | _GEMMA_TOKENS,
}

_MIXTURES: dict[str, Shape] = {
    "mistralai/Mixtral-8x7B-Instruct-v0.1": _rotary("mixtral", 32_000, 4096, 14_336, 32, (32, 8))
    | {
        "max_position_embeddings": 32_768,
        "rope_theta": 1_000_000.0,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "Qwen/Qwen3-30B-A3B": _qwen3(2048, 6144, 48, (32, 4), False)
    | {
        "model_type": "qwen3_moe",
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
    },
}


DECODERS: dict[str, Shape] = {
    "lmsys/vicuna-33b-v1.3": _llama(6656, 17_920, 60, 52, 2048, 1e-6),
    "meta-llama/Llama-2-7b-chat-hf": _llama(4096, 11_008, 32, 32, 4096, 1e-5),
    "meta-llama/Llama-2-13b-chat-hf": _llama(5120, 13_824, 40, 40, 4096, 1e-5),
    "JackFram/llama-68m": _llama(768, 3072, 2, 12, 2048, 1e-6),
    "JackFram/llama-160m": _llama(768, 3072, 12, 12, 2048, 1e-6),
    "double7/vicuna-68m": _llama(768, 3072, 2, 12, 2048, 1e-6),
    "double7/vicuna-160m": _llama(768, 3072, 12, 12, 2048, 1e-6),
    **_GEMMAS,
    "microsoft/Phi-3-mini-4k-instruct": _rotary("phi3", 32_064, 3072, 8192, 32, (32, 32))
    | {"sliding_window": 2047, "bos_token_id": 1, "eos_token_id": 32_000, "pad_token_id": 32_000},
    "allenai/OLMo-2-1124-7B": _rotary("olmo2", 100_352, 4096, 11_008, 32, (32, 32))
    | {
        "max_position_embeddings": 4096,
        "rope_theta": 500_000.0,
        "rms_norm_eps": 1e-6,
        "eos_token_id": 100_257,
        "pad_token_id": 100_277,
    },
    "HuggingFaceTB/SmolLM3-3B": _rotary("smollm3", 128_256, 2048, 11_008, 36, (16, 4))
    | {
        "max_position_embeddings": 65_536,
        "rope_theta": 5_000_000.0,
        "eos_token_id": 128_012,
        "pad_token_id": 128_004,
    },
    "HuggingFaceTB/SmolLM2-135M-Instruct": _rotary("llama", 49_152, 576, 1536, 30, (9, 3))
    | {
        "max_position_embeddings": 8192,
        "rope_theta": 100_000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    },
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": _rotary("qwen2", 151_936, 896, 4864, 24, (14, 2))
    | {
        "max_position_embeddings": 32_768,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 151_643,
        "eos_token_id": 151_645,
    },
    "Qwen/Qwen3-8B": _qwen3(4096, 12_288, 36, (32, 8), False),
    "Qwen/Qwen3-0.6B": _qwen3(1024, 3072, 28, (16, 8), True),
    "EleutherAI/pythia-6.9b": _pythia(50_432, 4096, 32, 32),
    "EleutherAI/pythia-160m": _pythia(50_304, 768, 12, 12),
    "facebook/opt-6.7b": _opt(4096, 32, 32),
    "facebook/opt-125m": _opt(768, 12, 12),
    "facebook/opt-350m": _opt(1024, 24, 16)
    | {"do_layer_norm_before": False, "word_embed_proj_dim": 512},
    **_MIXTURES,
    "gpt-lm1b-97m": _gpt(768, 3072, 12, 12),
    "gpt-lm1b-6m": _gpt(256, 1024, 2, 4),
}
