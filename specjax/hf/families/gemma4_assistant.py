"""Gemma 4 assistants: small drafters without keys and values of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import SANDWICH
from specjax.hf.families.family import Family, Stored, Tensors, nest_modules
from specjax.hf.families.gemma4 import Gemma4Text
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import (
    CAUSAL,
    COMMON,
    Schema,
    flag,
    format_value,
    only,
    raw,
    read,
    read_declared,
    read_object,
    size,
)
from specjax.models.assistant import Assistant
from specjax.models.assistant_modules import AssistantCausalConfig
from specjax.models.causal import CausalConfig

SHARED = "num_kv_shared_layers"
LACKING = {
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
    "use_double_wide_mlp": False,
}
"""Fields of the text part of which transformers reads one value alone."""


@FAMILIES.register("gemma4_assistant")
class Gemma4Assistant(Family[AssistantCausalConfig]):
    """Drafters of Gemma 4 targets, whose keys and values their layers read."""

    model, shape = Assistant, AssistantCausalConfig
    schema = Schema(
        CAUSAL
        | {
            "text_config": raw(),
            "backbone_hidden_size": size(1536),
            "use_ordered_embeddings": flag(False),
            "num_centroids": size(2048),
            "centroid_intermediate_top_k": size(32),
            "tie_word_embeddings": only(True, "its output layer is its embedding"),
        },
        COMMON,
        "gemma4_assistant",
    )
    architecture = "Gemma4AssistantForCausalLM"
    tensors: ClassVar[Tensors] = {
        "output_embedding": "model.embed_tokens.weight",
        "final_norm": "model.norm",
        "join": "pre_projection",
        "next_state": "post_projection",
        "centroids": "masked_embedding.centroids",
        "order": Stored("masked_embedding.token_ordering", integer=True),
        "layers_{}.scale": "model.layers.{}.layer_scalar",
        **nest_modules("layers_{}", "model.layers.{}", SANDWICH),
    }
    ignored = r".*rotary_emb\..*|lm_head\.weight"

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> AssistantCausalConfig:
        fields = read(self.schema, hf, GENERATION)

        def read_text(words: dict[str, Any]) -> CausalConfig:
            return Gemma4Text().config_from_hf(_check_text(words), None, dtype)

        text = read_object(hf, "text_config", read_text)
        attributes = {one.name: getattr(text, one.name) for one in dataclasses.fields(text)}
        centroids = fields["num_centroids"] if fields["use_ordered_embeddings"] else 0
        best = fields["centroid_intermediate_top_k"]
        if centroids and (text.vocab_size % centroids or best > centroids):
            raise ValueError(
                f"num_centroids is {centroids}; it must divide vocab_size, {text.vocab_size}, and"
                f" be at least centroid_intermediate_top_k, {best}"
            )
        return AssistantCausalConfig(
            **attributes
            | {
                "family": "gemma4_assistant",
                "reads_cache": True,
                "tied": False,
                "logit_cap": 0.0,
                "eos": (),
                "bos": None,
                "embedding_scale": fields["backbone_hidden_size"] ** 0.5,
            },
            target_width=fields["backbone_hidden_size"],
            features=(text.num_layers,),
            draft_vocab=text.vocab_size,
            embedded=False,
            normed=True,
            centroids=centroids,
            best_centroids=best if centroids else 0,
        )

    def config_to_hf(self, config: AssistantCausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        ends = self.ends(config)
        names = [one.name for one in dataclasses.fields(CausalConfig)]
        text = CausalConfig(**{name: getattr(config, name) for name in names})
        text = dataclasses.replace(text, family="gemma4_text", reads_cache=False, tied=True)
        fields = {
            "model_type": config.family,
            "architectures": [self.architecture],
            "tie_word_embeddings": True,
            "text_config": Gemma4Text().config_to_hf(text)[0]
            | LACKING
            | {SHARED: config.num_layers},
            "backbone_hidden_size": config.target_width,
            "use_ordered_embeddings": config.centroids > 0,
        }
        if config.centroids:
            fields["num_centroids"] = config.centroids
            fields["centroid_intermediate_top_k"] = config.best_centroids
        return fields | ends, ends


def _check_text(words: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the text part, as those of a model whose layers own their caches.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    layers, shared = words.get("num_hidden_layers"), words.get(SHARED, 0)
    if shared not in (0, layers):
        raise ValueError(
            f"{SHARED} is {format_value(shared)}; it must be num_hidden_layers,"
            f" {format_value(layers)}: no layer of an assistant has a cache"
        )
    defaults = read_declared("gemma4_text").defaults
    for name, allowed in LACKING.items():
        value = words.get(name, defaults[name])
        if value != allowed:
            raise ValueError(f"{name} is {format_value(value)}; it must be {allowed!r}")
    if words.get("model_type", "gemma4_text") != "gemma4_text":
        raise ValueError(f"model_type is {words['model_type']!r}; it must be 'gemma4_text'")
    return {**words, "model_type": "gemma4_text", SHARED: 0}
