"""Published configurations of families with parts of their own: shapes and numbers of parameters.

The numbers are those of transformers' classes.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from specjax.hf.descriptions import describe
from specjax.hf.huggingface import parse_config
from specjax.models.quantized_weights import count_numbers
from specjax.models.shapes import get_parameter_shapes

GEMMA_2B = {
    "architectures": ["GemmaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu",
    "hidden_activation": None, "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 16384, "max_position_embeddings": 8192, "model_type": "gemma",
    "num_attention_heads": 8, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "use_cache": True, "vocab_size": 256000,
}  # fmt: skip
PHI_4_MINI = {
    "architectures": ["Phi3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "hidden_act": "silu",
    "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "phi3",
    "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096, "pad_token_id": 199999,
    "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [4.0] * 48},
    "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 200064,
}  # fmt: skip
OPT_350M = {
    "_remove_final_layer_norm": False, "activation_dropout": 0.0, "activation_function": "relu",
    "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2,
    "do_layer_norm_before": False, "dropout": 0.1, "eos_token_id": 2, "ffn_dim": 4096,
    "hidden_size": 1024, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
    "model_type": "opt", "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 1,
    "prefix": "</s>", "torch_dtype": "float16", "use_cache": True, "vocab_size": 50272,
    "word_embed_proj_dim": 512,
}  # fmt: skip
STACKS = {
    f"{side}_{name}": count
    for side in ("encoder", "decoder")
    for name, count in {"attention_heads": 16, "ffn_dim": 4096, "layerdrop": 0.0}.items()
}
PEGASUS_XSUM = STACKS | {
    "activation_dropout": 0.1, "activation_function": "relu", "add_bias_logits": False,
    "add_final_layer_norm": True, "architectures": ["PegasusForConditionalGeneration"],
    "attention_dropout": 0.1, "bos_token_id": 0, "classif_dropout": 0.0, "classifier_dropout": 0.0,
    "d_model": 1024, "decoder_layers": 16, "decoder_start_token_id": 0, "dropout": 0.1,
    "encoder_layers": 16, "eos_token_id": 1, "extra_pos_embeddings": 1,
    "force_bos_token_to_be_generated": False, "forced_eos_token_id": 1,
    "gradient_checkpointing": False, "init_std": 0.02, "is_encoder_decoder": True,
    "length_penalty": 0.6, "max_length": 64, "max_position_embeddings": 512,
    "model_type": "pegasus", "normalize_before": True, "normalize_embedding": False,
    "num_beams": 8, "num_hidden_layers": 16, "pad_token_id": 0, "scale_embedding": True,
    "static_position_embeddings": True, "use_cache": True, "vocab_size": 96103,
}  # fmt: skip
MARIAN_OF_TWO = STACKS | {
    "activation_dropout": 0.0, "activation_function": "relu", "architectures": ["MarianMTModel"],
    "bad_words_ids": [[32000]], "bos_token_id": 0, "d_model": 1024, "decoder_layers": 6,
    "decoder_start_token_id": 32000, "decoder_vocab_size": 32001, "encoder_layers": 6,
    "eos_token_id": 0, "forced_eos_token_id": 0, "is_encoder_decoder": True, "max_length": 512,
    "max_position_embeddings": 1024, "model_type": "marian", "normalize_embedding": False,
    "num_beams": 4, "num_hidden_layers": 6, "pad_token_id": 32000, "scale_embedding": True,
    "share_encoder_decoder_embeddings": False, "static_position_embeddings": True,
    "vocab_size": 32001,
}  # fmt: skip

PARAMETERS = {
    "gemma": (GEMMA_2B, 2_506_172_416),
    "phi4": (PHI_4_MINI, 3_836_021_760),
    "opt": (OPT_350M, 331_196_416),
    "pegasus": (PEGASUS_XSUM, 568_699_904),
    "marian": (MARIAN_OF_TWO, 241_895_424),
}
KNOWN = {
    "google/gemma-2b": GEMMA_2B, "facebook/opt-350m": OPT_350M, "google/pegasus-xsum": PEGASUS_XSUM,
}  # fmt: skip


def shape(words: dict[str, Any]) -> Any:
    family, config = parse_config("config.json", words, None, jnp.float32)
    return family.model(config)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_a_published_configuration_has_the_parameters_of_its_model(name: str) -> None:
    """The bias of the logits, which PyTorch counts as a buffer, aside."""
    words, count = PARAMETERS[name]
    model = shape(words)
    bias = getattr(model.config, "logits_bias", False) * model.info.vocab_size
    assert count_numbers(get_parameter_shapes(model)) - bias == count


@pytest.mark.parametrize("name", KNOWN)
def test_a_model_is_planned_with_the_shape_that_it_has(name: str) -> None:
    found, known = shape(KNOWN[name]).config, describe(name, jnp.float32).config
    unread = {"dropout": 0.0, "ff_dropout": 0.0}
    assert found.__dict__ | unread == known.__dict__ | unread
