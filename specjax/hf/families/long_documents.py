"""LED and Pegasus-X in Hugging Face's words: relatives of BART that read long documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.bart import BartLike
from specjax.hf.families.family import Tensors
from specjax.hf.families.schema import flag, format_value, is_int, raw, size
from specjax.models.led import LED, LEDConfig
from specjax.models.pegasus_x import PegasusX, PegasusXConfig
from specjax.models.positions import Sinusoids

ATTENTION = "led.encoder.layers.{}.self_attn"
HARMLESS = (
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "initializer_range",
    "is_decoder",
    "onnx_export",
)
PROJECTIONS = {"q": "query", "k": "key", "v": "value"}
"""Names of the projections of the encoder's attention."""


@FAMILIES.register("led")
class LEDFamily(BartLike[LEDConfig]):
    """LED: BART with windows and global tokens in the encoder, for long documents."""

    model, shape = LED, LEDConfig
    architecture = "LEDForConditionalGeneration"
    schema = BartLike.schema.without("max_position_embeddings", "scale_embedding").derive(
        "led",
        HARMLESS,
        max_encoder_position_embeddings=size(16384),
        max_decoder_position_embeddings=size(1024),
        attention_window=raw(512),
        global_tokens=size(0, least=0),
    )
    words: ClassVar[dict[str, str]] = {
        **{ours: name for ours, name in BartLike.words.items() if ours != "scale_embedding"},
        "max_positions": "max_decoder_position_embeddings",
        "source_positions": "max_encoder_position_embeddings",
        "global_tokens": "global_tokens",
    }
    constants: ClassVar[dict[str, Any]] = {
        "post_norm": True,
        "embedding_norm": True,
        "final_norm": False,
        "logits_bias": True,
    }
    tensors: ClassVar[Tensors] = {
        **{
            name: entry.replace("model.", "led.")
            for name, entry in BartLike.tensors.items()
            if isinstance(entry, str)
        },
        "encoder_{}.self_attention.o": f"{ATTENTION}.output",
        **{
            f"encoder_{{}}.self_attention.{kind}{ours}": (
                f"{ATTENTION}.longformer_self_attn.{theirs}{ending}"
            )
            for ours, theirs in PROJECTIONS.items()
            for kind, ending in (("", ""), ("global_", "_global"))
        },
    }
    prefix = "led."
    ignored = r"led\.(en|de)coder\.(embed_tokens\.weight|version)"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """Windows of all layers, or of each."""
        given, layers = fields["attention_window"], fields["encoder_layers"]
        windows = given if isinstance(given, list) else [given] * layers
        if len(windows) != layers or not all(map(_is_window, windows)):
            raise ValueError(
                f"attention_window is {format_value(given)}; it must be a positive even integer, or"
                f" one for each of the {layers} encoder layers"
            )
        return {"reaches": tuple(window // 2 for window in windows)}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return {"attention_window": [2 * reach for reach in config.reaches]}


def _is_window(value: Any) -> bool:
    return is_int(value) and value > 0 and value % 2 == 0


@FAMILIES.register("pegasus_x")
class PegasusXFamily(BartLike[PegasusXConfig]):
    """Pegasus-X: Pegasus with attention in blocks and learned global tokens in the encoder."""

    model, shape = PegasusX, PegasusXConfig
    architecture = "PegasusXForConditionalGeneration"
    schema = BartLike.schema.derive(
        "pegasus_x",
        num_global_tokens=size(32),
        block_size=size(512),
        stagger_local_blocks=flag(True),
    )
    words: ClassVar[dict[str, str]] = {
        **{ours: name for ours, name in BartLike.words.items() if ours != "max_positions"},
        "global_tokens": "num_global_tokens",
        "block": "block_size",
        "staggered": "stagger_local_blocks",
    }
    constants: ClassVar[dict[str, Any]] = {
        "max_positions": None,
        "key_bias": False,
        "query_value_bias": False,
        "output_bias": False,
    }
    tensors: ClassVar[Tensors] = {
        **BartLike.tensors,
        "global_embedding": "model.encoder.embed_global.weight",
        "encoder_{}.self_norm.of_tokens": "model.encoder.layers.{}.self_attn_layer_norm",
        "encoder_{}.self_norm.of_global": "model.encoder.layers.{}.global_self_attn_layer_norm",
    }

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        width, block = fields["d_model"], fields["block_size"]
        if width % 2:
            raise ValueError(
                f"d_model is {width}; it must be even, for the sines and cosines of positions"
            )
        if fields["stagger_local_blocks"] and block % 2:
            raise ValueError(
                f"block_size is {block}; it must be even where stagger_local_blocks is true"
            )
        return {"sinusoids": Sinusoids(width, to_base=True)}
