"""Shapes of published checkpoints, to plan a run before anything is downloaded.

Facts of their `config.json`; a local or cached copy comes first. MADLAD's drafter is what
configs/madlad.py trains.
"""

from __future__ import annotations

from typing import Any

from specjax.hf.known_decoders import DECODERS, Shape


def _t5(model_type: str, vocab: int, width: int, ff: int, layers: int, heads: int) -> Shape:
    """T5 v1.1, Flan-T5 and mT5: gated GELU, an output layer of its own."""
    return {
        "model_type": model_type,
        "vocab_size": vocab,
        "d_model": width,
        "d_kv": 64,
        "d_ff": ff,
        "num_layers": layers,
        "num_heads": heads,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }


def _t5_v1_0(width: int, ff: int, layers: int, heads: int) -> Shape:
    plain = {"feed_forward_proj": "relu", "tie_word_embeddings": True}
    return _t5("t5", 32_128, width, ff, layers, heads) | plain


def _t5gemma(encoder: str, decoder: str) -> Shape:
    """T5Gemma of two of the sizes `_GEMMA_SIZES`; its class has the other fields' defaults."""
    stacks = {"encoder": _GEMMA_SIZES[encoder], "decoder": _GEMMA_SIZES[decoder]}
    sides = {side: _stack(256_000, sizes) for side, sizes in stacks.items()}
    return {"model_type": "t5gemma", **sides}


def _stack(vocab: int, sizes: tuple[int, ...]) -> Shape:
    """Half of a T5Gemma."""
    names = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
    )
    return {"vocab_size": vocab, **dict(zip(names, sizes, strict=True))}


def _t5gemma2(window: int, *sizes: int) -> Shape:
    """T5Gemma 2, whose halves are alike."""
    half = _stack(262_144, sizes) | {"sliding_window": window}
    return {"model_type": "t5gemma2", "encoder": {"text_config": half}, "decoder": half}


def _bart(model_type: str, vocab: int, width: int, ff: int, layers: int, heads: int) -> Shape:
    """BART and its relatives, whose stacks are as deep and as wide as each other."""
    sides = {"layers": layers, "ffn_dim": ff, "attention_heads": heads}
    stacks = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in sides.items()}
    return {
        "model_type": model_type,
        "vocab_size": vocab,
        "d_model": width,
        **stacks,
        "max_position_embeddings": 1024,
        "scale_embedding": True,
        "decoder_start_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
    }


_MARIAN = {
    "activation_function": "swish",
    "max_position_embeddings": 512,
    "decoder_start_token_id": 58_100,
    "eos_token_id": 0,
    "pad_token_id": 58_100,
}


_PEGASUS = {
    "activation_function": "relu",
    "max_position_embeddings": 512,
    "decoder_start_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def _whisper(width: int, encoder: int, decoder: int, heads: int, **more: Any) -> Shape:
    """Multilingual Whisper up to its second large size, told to transcribe English."""
    return {
        "model_type": "whisper",
        "vocab_size": 51_865,
        "num_mel_bins": 80,
        "d_model": width,
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "decoder_start_token_id": 50_258,
        "eos_token_id": 50_257,
        "pad_token_id": 50_257,
        "forced_decoder_ids": [[1, 50_259], [2, 50_359], [3, 50_363]],
    } | more


_ENGLISH = {
    "vocab_size": 51_864,
    "decoder_start_token_id": 50_257,
    "eos_token_id": 50_256,
    "pad_token_id": 50_256,
    "forced_decoder_ids": [[1, 50_362]],
}
_LARGE_V3 = {
    "vocab_size": 51_866,
    "num_mel_bins": 128,
    "forced_decoder_ids": [[1, 50_259], [2, 50_360], [3, 50_364]],
}

_T5_SIZES = {
    "small": (512, 1024, 8, 6),
    "base": (768, 2048, 12, 12),
    "large": (1024, 2816, 24, 16),
    "xl": (2048, 5120, 24, 32),
    "xxl": (4096, 10_240, 24, 64),
}
_T5_V1_0_SIZES = {
    "small": (512, 2048, 6, 8),
    "base": (768, 3072, 12, 12),
    "large": (1024, 4096, 24, 16),
}

_BYT5_SIZES = {
    "small": (1472, 3584, 12, 4, 6),
    "base": (1536, 3968, 18, 6, 12),
    "large": (1536, 3840, 36, 12, 16),
    "xl": (2560, 6720, 36, 12, 32),
    "xxl": (4672, 12_352, 36, 12, 64),
}
"""Width, feed-forward width, encoder layers, decoder layers, heads."""

_GEMMA_SIZES = {"2b": (2304, 9216, 26, 8, 4), "9b": (3584, 14_336, 42, 16, 8)}

_T5GEMMA2_SIZES = {
    "270m": (512, 640, 2048, 18, 4, 1),
    "1b": (512, 1152, 6912, 26, 4, 1),
    "4b": (1024, 2560, 10_240, 34, 8, 4),
}
"""Of T5Gemma 2: window, then as above. Those of Gemma 3, whose weights its halves began with."""

_MADLAD = {"d_kv": 128, "eos_token_id": 2, "pad_token_id": 1}
"""The 10B's was not read from its config.json: its 10.7B parameters agree with 32 heads of 128, but
16 of 256 have as many."""


def _byt5(width: int, ff: int, layers: int, decoder_layers: int, heads: int) -> Shape:
    return _t5("t5", 384, width, ff, layers, heads) | {"num_decoder_layers": decoder_layers}


SHAPES: dict[str, Shape] = {
    **{f"google/t5-v1_1-{k}": _t5("t5", 32_128, *v) for k, v in _T5_SIZES.items()},
    **{f"google/flan-t5-{k}": _t5("t5", 32_128, *v) for k, v in _T5_SIZES.items()},
    **{f"google/mt5-{k}": _t5("mt5", 250_112, *v) for k, v in _T5_SIZES.items()},
    **{f"google/umt5-{k}": _t5("umt5", 256_384, *v) for k, v in _T5_SIZES.items() if k != "large"},
    **{f"google/byt5-{k}": _byt5(*v) for k, v in _BYT5_SIZES.items()},
    "google/flan-ul2": _t5("t5", 32_128, 4096, 16_384, 32, 16)
    | {"d_kv": 256, "feed_forward_proj": "gated-silu"},
    "CohereForAI/aya-101": _t5("t5", 250_112, *_T5_SIZES["xxl"]),
    "google/madlad400-3b-mt": _t5("t5", 256_000, 1024, 8192, 32, 16) | _MADLAD,
    "google/madlad400-7b-mt": _t5("t5", 256_000, 2048, 8192, 48, 16) | _MADLAD,
    "google/madlad400-10b-mt": _t5("t5", 256_000, 2048, 16_384, 32, 32) | _MADLAD,
    "madlad400-3b-mt-drafter": _t5("t5", 256_000, 1024, 8192, 4, 16)
    | _MADLAD
    | {"num_decoder_layers": 2},
    **{
        f"google/t5gemma-{e}-{d}-{how}": _t5gemma(e, d)
        for e, d in (("2b", "2b"), ("9b", "2b"), ("9b", "9b"))
        for how in ("ul2", "prefixlm", "ul2-it", "prefixlm-it")
    },
    **{f"google/t5gemma-2-{k}-{k}": _t5gemma2(*v) for k, v in _T5GEMMA2_SIZES.items()},
    **{f"google-t5/t5-{k}": _t5_v1_0(*v) for k, v in _T5_V1_0_SIZES.items()},
    "facebook/bart-large-cnn": _bart("bart", 50_264, 1024, 4096, 12, 16)
    | {"scale_embedding": False},
    "facebook/mbart-large-50": _bart("mbart", 250_054, 1024, 4096, 12, 16),
    "facebook/m2m100_418M": _bart("m2m_100", 128_112, 1024, 4096, 12, 16),
    "facebook/nllb-200-3.3B": _bart("m2m_100", 256_206, 2048, 8192, 24, 16),
    "facebook/nllb-200-distilled-600M": _bart("m2m_100", 256_206, 1024, 4096, 12, 16),
    "google/pegasus-xsum": _bart("pegasus", 96_103, 1024, 4096, 16, 16) | _PEGASUS,
    "Helsinki-NLP/opus-mt-en-de": _bart("marian", 58_101, 512, 2048, 6, 8) | _MARIAN,
    "openai/whisper-tiny": _whisper(384, 4, 4, 6),
    "openai/whisper-tiny.en": _whisper(384, 4, 4, 6, **_ENGLISH),
    "openai/whisper-base": _whisper(512, 6, 6, 8),
    "openai/whisper-small": _whisper(768, 12, 12, 12),
    "openai/whisper-medium": _whisper(1024, 24, 24, 16),
    "openai/whisper-large-v2": _whisper(1280, 32, 32, 20),
    "openai/whisper-large-v3": _whisper(1280, 32, 32, 20, **_LARGE_V3),
    "distil-whisper/distil-large-v2": _whisper(1280, 32, 2, 20),
    "distil-whisper/distil-large-v3": _whisper(1280, 32, 2, 20, **_LARGE_V3),
    **DECODERS,
}
