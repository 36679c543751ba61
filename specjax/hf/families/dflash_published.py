"""Published DFlash drafters: the layout of z-lab, which SpecForge, SGLang and vLLM share.

Stored are layers like Qwen3's, the matrix that fuses the target's states, and two norms; embedding
and output layer are the target's, and a mask is one of its tokens
(docs/how_to/published_drafters.md has the sources).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import corrections
from specjax.hf.families.causal import FIELDS, LAYER, Decoder
from specjax.hf.families.dflash import BLOCK, LAYERS, layers_read, published_layers
from specjax.hf.families.eagle3_fields import is_p_eagle
from specjax.hf.families.family import Tensors, nest_modules
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.layer_types import KINDS, WINDOWS, windows_of
from specjax.hf.families.llama import Llama
from specjax.hf.families.on_target import refuse_other_positions
from specjax.hf.families.published import (
    UNUSED,
    get_object,
    read_agreeing,
    read_nested,
    refuse_images,
    refuse_rotation,
)
from specjax.hf.families.rotary import get_rope
from specjax.hf.families.schema import (
    Field,
    Schema,
    choice,
    flag,
    format_value,
    is_int,
    is_number,
    number,
    only,
    raw,
    read,
    size,
)
from specjax.hf.families.speculators import TYPE
from specjax.models.base import LanguageModel
from specjax.models.dflash import DFlash, DFlashCausalConfig

FAMILY, ARCHITECTURE = "dflash", "DFlashDraftModel"

DSPARK = "DSparkDraftModel", "Qwen3DSparkModel"
"""SpecForge's and DeepSpec's classes; blocks of both begin with the anchor's own place."""

ARCHITECTURES = (
    ARCHITECTURE,
    "QwenDFlashDraftModel",
    "Qwen3DFlashDraftModel",
    *DSPARK,
    "DFlash2DraftModel",
    "DominoDraftModel",
)
"""Names of such layers by z-lab, SpecForge, AngelSlim, NeMo Automodel and DeepSpec."""

PROJECTORS = "dflash", "dspark", "domino", "causal_v5"
PROJECTOR_OF = {DSPARK[0]: "dspark", "DominoDraftModel": "domino"}
"""Values of `projector_type`, and those of SpecForge's classes."""


def _layers() -> Field:
    def fits(value: Any) -> bool:
        numbers = isinstance(value, list | tuple) and bool(value) and all(map(is_int, value))
        return numbers and len(set(value)) == len(value) and min(value) >= 0

    return Field(None, "a list of different layers of the target, from 0 on", fits)


def _one(why: str) -> Field:
    return Field(1.0, f"1: {why}", lambda value: is_number(value) and value == 1)


TWICE = {
    "block_size": size(None, least=2),
    "mask_token_id": size(None, least=0),
    "target_layer_ids": _layers(),
}
"""Fields in `dflash_config`, next to it, or in both places."""

NESTED = Schema(
    TWICE
    | corrections.FIELDS
    | {
        "causal": flag(None),
        "causal_head": flag(None),
        "use_swa": only(False, "a drafter has no sliding window"),
        "attention_sink_bias": only(False, "attention has no sinks"),
        "fc_layernorm": only(False, "states are fused without a norm of each"),
        "attention_mode": choice("gqa", ("gqa", "mha")),
        "projector_type": choice(None, PROJECTORS),
        "shift_label": flag(None),
        "input_embedding_scale": _one("embeddings are the target's as they are"),
        "output_multiplier": number(1.0),
        "final_logit_softcapping": number(None),
    },
    # A window is used where `use_swa` says so; the others are of training.
    harmless=("swa_window_size", "confidence_head_alpha", "num_anchors"),
)
"""`dflash_config`."""


@FAMILIES.register(FAMILY)
class PublishedDFlash(Decoder[DFlashCausalConfig]):
    """DFlash drafters as z-lab and SpecForge publish them."""

    model, shape = DFlash, DFlashCausalConfig
    prefix = ""
    # DeepSpec's files have copies of the target's embedding and output layer.
    ignored = r"(.*\.)?rotary_emb\.inv_freq|embed_tokens\.weight|lm_head\.weight"
    schema = Schema(
        FIELDS
        | TWICE
        | {
            # Their layers are Qwen3's for any target.
            "model_type": choice("qwen3", ("qwen3", FAMILY)),
            "attention_bias": flag(False),
            "mlp_bias": only(False, "such biases are not supported"),
            "dflash_config": raw(),
            "is_causal": flag(None),
            **WINDOWS,
            "use_sliding_window": flag(None),
            "num_target_layers": size(None),
            **corrections.FIELDS,
        },
        UNUSED - {"sliding_window"},
        "qwen3",
    )
    tensors: ClassVar[Tensors] = {
        "fuse": "fc",
        "fused_norm": "hidden_norm",
        "final_norm": "norm",
        **nest_modules("layers_{}", "layers.{}", {**LAYER, **corrections.CONVOLUTIONS}),
    }

    def table(self, config: Any) -> Tensors:
        return {**self.tensors, **corrections.correction_tensors(config)}

    @classmethod
    def claims(cls, hf: Mapping[str, Any]) -> bool:
        if TYPE in hf or is_p_eagle(hf):
            return False
        return "dflash_config" in hf or hf.get("architectures") in [[one] for one in ARCHITECTURES]

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> DFlashCausalConfig:
        # Null is hidden_size over num_attention_heads in their class, and refused in Qwen3's.
        null: dict[str, Any] = {"head_dim": None} if hf.get("head_dim", 0) is None else {}
        given = {name: value for name, value in hf.items() if name not in null}
        fields = read(self.schema, given, GENERATION) | null
        inside = read_nested(NESTED, get_object(fields, "dflash_config"), "dflash_config")
        fields |= {
            key: read_agreeing(key, fields[key], inside[key], "dflash_config") for key in TWICE
        }
        refuse_images(fields)
        # The target sets the end tokens: here in training, elsewhere when both are fitted.
        named = (hf if fields["model_type"] == FAMILY else {}) | {"model_type": FAMILY}
        own = read(Schema(corrections.FIELDS), _corrections(hf))
        windows = _windows(fields, hf)
        made = self.build(
            fields,
            named,
            None,
            dtype,
            anchor_first=_anchor_first(hf, inside),
            is_causal=_causal(fields, inside, bool(windows)),
            windows=windows,
            correction=corrections.read_correction(own),
            convolution=corrections.read_convolution(own, fields["hidden_size"] or 0),
            logit_multiplier=inside["output_multiplier"],
            logit_limit=inside["final_logit_softcapping"] or 0.0,
            qk_norm=True,
            tied=False,
            target_width=fields["hidden_size"],
            features=tuple(number + 1 for number in _read(fields)),
            draft_vocab=fields["vocab_size"],
            embedded=False,
            headed=False,
            block_size=fields["block_size"] or BLOCK,
            mask_token=mask_token(fields["mask_token_id"], fields["vocab_size"]),
            target_depth=fields["num_target_layers"],
        )
        refuse_rotation(get_rope(made))
        return made

    def config_to_hf(self, config: DFlashCausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        words, ends = super().config_to_hf(config)
        nested_fields = {
            "mask_token_id": config.mask_token,
            "target_layer_ids": [number - 1 for number in config.features],
            **corrections.written_corrections(config),
        }
        words |= {
            "architectures": [_architecture(config)],
            "model_type": "qwen3",
            "block_size": config.block_size,
            "dflash_config": nested_fields,
            "layer_types": [KINDS[bool(window)] for window in config.layer_windows],
            "num_target_layers": config.target_depth,
        }
        if config.windows:
            words |= {"sliding_window": max(config.windows), "use_sliding_window": True}
        if config.is_causal is not None:
            words["is_causal"] = config.is_causal
        if words["architectures"][0] in PROJECTOR_OF:
            nested_fields["projector_type"] = PROJECTOR_OF[words["architectures"][0]]
        if config.anchor_first and words["architectures"][0] not in DSPARK:
            nested_fields["shift_label"] = True
        if config.logit_multiplier != 1.0:
            nested_fields["output_multiplier"] = config.logit_multiplier
        if config.logit_limit:
            nested_fields["final_logit_softcapping"] = config.logit_limit
        return words, ends

    def get_target_fields(self, target: LanguageModel) -> dict[str, Any]:
        refuse_other_positions(FAMILY, target)
        words, _ = Llama().config_to_hf(target.config)
        # Of a shallow target the last layer is among them, and its states are not published.
        below = [
            number - 1 for number in layers_read(target.info.depth) if number < target.info.depth
        ]
        return words | {
            "architectures": [ARCHITECTURE],
            "model_type": FAMILY,
            "attention_bias": False,
            "mlp_bias": False,
            "num_hidden_layers": min(LAYERS, target.info.depth),
            "num_target_layers": target.info.depth,
            "target_layer_ids": below,
        }


def _corrections(hf: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of corrections, which are in `dflash_config` or next to it."""
    inside = hf.get("dflash_config") or {}
    read_field = functools.partial(read_agreeing, where="dflash_config")
    both = {name: read_field(name, hf.get(name), inside.get(name)) for name in corrections.FIELDS}
    return {name: value for name, value in both.items() if value is not None}


def _anchor_first(hf: Mapping[str, Any], inside: Mapping[str, Any]) -> bool:
    """Whether a place gives the token after it: DeepSpec's blocks, and Domino's that say so."""
    of_dspark = any(name in DSPARK for name in hf.get("architectures") or ())
    named = of_dspark or inside["projector_type"] == "dspark" or "markov_rank" in hf
    return named or bool(inside["shift_label"])


def _causal(fields: Mapping[str, Any], inside: Mapping[str, Any], slides: bool) -> bool | None:
    """Whether places see none after them; None: in layers with a window (z-lab's own rule).

    Raises:
      ValueError: when two fields say otherwise.
    """
    given = {
        name: value
        for name, value in (
            ("is_causal", fields["is_causal"]),
            ("causal", inside["causal"]),
            ("causal_head", inside["causal_head"]),
        )
        if value is not None
    }
    if len(set(given.values())) > 1:
        settings = " and ".join(f"{name} is {format_value(value)}" for name, value in given.items())
        raise ValueError(f"{settings}; they name the same thing and must agree")
    if given:
        return next(iter(given.values()))
    return None if slides else False


def _windows(fields: Mapping[str, Any], hf: Mapping[str, Any]) -> tuple[int, ...]:
    """The window of each layer, 0 for none; empty where no layer has one.

    Their class reads the window where `layer_types` says so; Qwen3's drops it without its switch.
    """
    switch = hf.get("use_sliding_window") is not False
    given = {**fields, "sliding_window": hf.get("sliding_window"), "use_sliding_window": switch}
    return windows_of(given, [False] * fields["num_hidden_layers"])


def _architecture(config: DFlashCausalConfig) -> str:
    """The class that reads such a drafter."""
    kind = config.correction and config.correction.kind
    if kind == "gru":
        return "DominoDraftModel"
    if kind == "selector" or config.convolution:
        return "DFlash2DraftModel"
    return DSPARK[0] if config.anchor_first else ARCHITECTURE


def mask_token(token: int | None, size: int) -> int:
    """The token whose embedding is at all masked positions, one of `size` ids.

    Raises:
      ValueError: when there is none.
    """
    if token is None or token >= size:
        raise ValueError(
            f"mask_token_id is {format_value(token)}; it must be an id of the target, from 0 to "
            f"{size - 1}"
        )
    return token


def _read(fields: Mapping[str, Any]) -> list[int]:
    """Layers of the target, from 0 on, after which its states are read."""
    ids, depth = fields["target_layer_ids"], fields["num_target_layers"]
    if ids is None and depth is None:
        raise ValueError(
            "target_layer_ids is None; it must name layers of the target where num_target_layers"
            " does not say how many there are"
        )
    if ids is None:
        ids = [number - 1 for number in published_layers(depth, fields["num_hidden_layers"])]
    if depth is not None and max(ids) > depth - 2:
        # After the last layer the published states are normed.
        raise ValueError(
            f"target_layer_ids is {format_value(ids)}; of {depth} layers they must be at most "
            f"{depth - 2}"
        )
    return list(ids)
