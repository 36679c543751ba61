"""T5 checkpoints in Hugging Face's words: configuration fields and tensor names."""

from __future__ import annotations

from typing import Any

from specjax.models.families.family import Family, Stored, Where, eos_of, eos_to_hf, positive
from specjax.models.layers import ACTIVATIONS
from specjax.models.t5 import T5, T5Config

IGNORED = r"(en|de)coder\.embed_tokens\.weight|.*EncDecAttention\.relative_attention_bias\.weight"


def config_from_hf(hf: dict[str, Any], generation: dict[str, Any], dtype: Any) -> T5Config:
    """Reads Hugging Face `config.json` and `generation_config.json` contents."""
    projection = hf.get("feed_forward_proj", "relu")
    gated = projection.startswith("gated-")
    activation = projection.removeprefix("gated-")
    if activation not in ACTIVATIONS:
        raise ValueError(f"feed_forward_proj {projection!r}; known are {', '.join(ACTIVATIONS)}")
    positive(hf, "vocab_size", "d_model", "d_kv", "d_ff", "num_heads", "num_layers")
    tied = hf.get("tie_word_embeddings", True)
    return T5Config(
        family=hf["model_type"],
        vocab_size=hf["vocab_size"],
        d_model=hf["d_model"],
        d_kv=hf["d_kv"],
        d_ff=hf["d_ff"],
        num_heads=hf["num_heads"],
        num_layers=hf["num_layers"],
        num_decoder_layers=hf.get("num_decoder_layers") or hf["num_layers"],
        # Published "gated-gelu" checkpoints use the tanh approximation.
        activation="gelu_new" if gated and activation == "gelu" else activation,
        gated=gated,
        tied=tied,
        # mT5 never scales, whatever its configuration says of tying.
        scale_outputs=hf.get("scale_decoder_outputs", tied and hf["model_type"] != "mt5"),
        buckets=hf.get("relative_attention_num_buckets", 32),
        max_distance=hf.get("relative_attention_max_distance", 128),
        eps=hf.get("layer_norm_epsilon", 1e-6),
        dropout=hf.get("dropout_rate", 0.0),
        start_token=generation.get("decoder_start_token_id", hf.get("decoder_start_token_id", 0)),
        eos=eos_of(hf, generation) or (1,),
        pad=hf.get("pad_token_id", 0),
        dtype=dtype,
    )


def names(config: T5Config) -> dict[Where, Stored]:
    """Where each parameter is stored."""
    found = {
        ("embedding",): Stored("shared.weight"),
        ("encoder_norm", "scale"): Stored("encoder.final_layer_norm.weight"),
        ("decoder_norm", "scale"): Stored("decoder.final_layer_norm.weight"),
    }
    if not config.tied:
        found["head", "kernel"] = Stored("lm_head.weight", True)
    cross = {"cross_attention": "EncDecAttention"}
    for stack, layers, extra in (
        ("encoder", config.num_layers, {}),
        ("decoder", config.num_decoder_layers, cross),
    ):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found[f"{stack}_bias", "table"] = Stored(bias)
        for index in range(layers):
            block = f"{stack}.block.{index}.layer"
            found |= _layer(f"{stack}_{index}", block, extra, config.gated)
    return found


def _layer(layer: str, block: str, extra: dict[str, str], gated: bool) -> dict[Where, Stored]:
    found = {}
    attentions = {"self_attention": "SelfAttention", **extra}
    for sub, (ours, theirs) in enumerate(attentions.items()):
        norm = ours.replace("attention", "norm")
        found[layer, norm, "scale"] = Stored(f"{block}.{sub}.layer_norm.weight")
        for w in "qkvo":
            found[layer, ours, w, "kernel"] = Stored(f"{block}.{sub}.{theirs}.{w}.weight", True)
    sub = len(attentions)
    found[layer, "ff_norm", "scale"] = Stored(f"{block}.{sub}.layer_norm.weight")
    matrices = {"gate": "wi_0", "up": "wi_1", "down": "wo"} if gated else {"up": "wi", "down": "wo"}
    for ours, theirs in matrices.items():
        tensor = f"{block}.{sub}.DenseReluDense.{theirs}.weight"
        found[layer, "ff", ours, "kernel"] = Stored(tensor, True)
    return found


def config_to_hf(config: T5Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Contents of `config.json` and `generation_config.json` of a model exported from here."""
    ends = {
        "decoder_start_token_id": config.start_token,
        "eos_token_id": eos_to_hf(config.eos),
        "pad_token_id": config.pad,
    }
    shape = {
        "model_type": config.family,
        "architectures": [f"{config.family.upper()}ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": config.d_kv,
        "d_ff": config.d_ff,
        "num_heads": config.num_heads,
        "num_layers": config.num_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "feed_forward_proj": _projection(config),
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scale_outputs,
        "relative_attention_num_buckets": config.buckets,
        "relative_attention_max_distance": config.max_distance,
        "layer_norm_epsilon": config.eps,
        "dropout_rate": config.dropout,
    }
    return shape | ends, ends


def _projection(config: T5Config) -> str:
    if not config.gated:
        return config.activation
    # Hugging Face calls the gated tanh approximation plain "gated-gelu".
    return "gated-gelu" if config.activation == "gelu_new" else f"gated-{config.activation}"


FAMILY = Family(T5, config_from_hf, config_to_hf, names, ignored=IGNORED)
