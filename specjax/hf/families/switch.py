"""Switch Transformers: T5 with mixtures of experts in some layers (Fedus et al. 2022)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.schema import choice, flag, size
from specjax.hf.families.t5 import T5Family
from specjax.models.experts import Mixture
from specjax.models.layers import ACTIVATIONS
from specjax.models.t5 import T5Config

STACKS = {"encoder": 1, "decoder": 2}
"""Stacks of layers, and the number of a layer's feed-forward network."""

TRAINING = (
    "router_jitter_noise",
    "router_z_loss_coef",
    "router_aux_loss_coef",
    "router_ignore_padding_tokens",
    "add_router_probs",
)
"""Fields of training, and one that transformers' router reads and does not use."""


@FAMILIES.register("switch_transformers")
class SwitchFamily(T5Family[T5Config]):
    """Switch Transformers: T5 whose sparse layers have one expert for each token."""

    schema = T5Family.schema.without(
        "feed_forward_proj", "is_gated_act", "scale_decoder_outputs", "classifier_dropout"
    ).derive(
        "switch_transformers",
        TRAINING,
        dense_act_fn=choice("relu", ACTIVATIONS),
        tie_word_embeddings=flag(True),
        num_experts=size(8),
        expert_capacity=size(64),
        num_sparse_encoder_layers=size(3, least=0),
        num_sparse_decoder_layers=size(3, least=0),
        encoder_sparse_step=size(None, least=0),
        decoder_sparse_step=size(None, least=0),
        router_bias=flag(False),
        router_dtype=choice("float32", ("float32",)),
    )
    words: ClassVar[dict[str, str]] = {
        ours: theirs for ours, theirs in T5Family.words.items() if ours != "gated"
    }
    constants: ClassVar[dict[str, Any]] = {"gated": False}
    architecture = "SwitchTransformersForConditionalGeneration"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        attributes = super().from_fields(fields, hf)
        layers = {"encoder": fields["num_layers"], "decoder": attributes["num_decoder_layers"]}
        mixture = Mixture(
            fields["num_experts"], 1, fields["d_ff"], normalized=False, gated=False,
            router_bias=fields["router_bias"],
        )  # fmt: skip
        limited = dataclasses.replace(mixture, capacity=fields["expert_capacity"])
        steps = {stack: _find_step(fields, stack, count) for stack, count in layers.items()}
        return attributes | {
            "encoder_mixtures": _mix_layers(limited, layers["encoder"], steps["encoder"]),
            "mixtures": _mix_layers(mixture, layers["decoder"], steps["decoder"]),
        }

    def find_activation(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def scales(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> bool:
        return fields["tie_word_embeddings"]

    def to_fields(self, config: Any) -> dict[str, Any]:
        written = {"tie_word_embeddings": config.tied or config.scale_outputs}
        for stack, mixtures in _of_stacks(config).items():
            step = _recover_step(stack, mixtures)
            written |= {f"{stack}_sparse_step": step}
            written |= {f"num_sparse_{stack}_layers": len(list(filter(None, mixtures)))}
        found = _find_mixture(config)
        if found is None:
            return written
        own = {"num_experts": found.experts, "router_bias": found.router_bias}
        return written | own | ({"expert_capacity": found.capacity} if found.capacity else {})

    def repeat_tensors(
        self, config: Any, tensors: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Where the output layer is its own, Hugging Face ties no embedding either."""
        if config.scale_outputs:
            return {}
        return {f"{stack}.embed_tokens.weight": tensors["shared.weight"] for stack in STACKS}

    def table(self, config: Any) -> Tensors:
        named = {
            name: entry.replace("DenseReluDense", "mlp").replace(".wi_1", ".wi")
            for name, entry in self.tensors.items()
            if isinstance(entry, str)
        }
        found = _find_mixture(config)
        return {**named, **(_name_experts(found.experts) if found else {})}


def _find_step(fields: Mapping[str, Any], stack: str, layers: int) -> int:
    """A layer in how many is sparse; the given step wins over the number of sparse layers."""
    step, sparse = fields[f"{stack}_sparse_step"], fields[f"num_sparse_{stack}_layers"]
    if step is not None:
        return step
    return layers // sparse if sparse else layers


def _mix_layers(mixture: Mixture, layers: int, step: int) -> tuple[Mixture | None, ...]:
    """Mixtures of the layers 1, 1 + step and so on; of all where step is 1, of none where it is 0.

    The steps of transformers' class: without sparse layers the step is the number of layers, so
    that the second layer is sparse nevertheless, or the only one.
    """
    sparse = (step == 1 or (step > 1 and layer % step == 1) for layer in range(layers))
    return tuple(mixture if one else None for one in sparse)


def _recover_step(stack: str, mixtures: tuple[Mixture | None, ...]) -> int:
    """The step that gives these mixtures.

    Raises:
      ValueError: when none does.
    """
    for step in range(len(mixtures) + 2):
        mixture = next(filter(None, mixtures), None)
        if mixture is None or _mix_layers(mixture, len(mixtures), step) == mixtures:
            return step
    raise ValueError(f"no {stack}_sparse_step describes which layers of the {stack} are sparse")


def _of_stacks(config: T5Config) -> dict[str, tuple[Mixture | None, ...]]:
    return {"encoder": config.encoder_mixtures, "decoder": config.mixtures}


def _find_mixture(config: T5Config) -> Mixture | None:
    """A mixture of the model, one with a capacity if there is one."""
    return next(filter(None, (*config.encoder_mixtures, *config.mixtures)), None)


def _name_experts(experts: int) -> Tensors:
    """Places of the mixtures of both stacks."""
    named: dict[str, str | Stored] = {}
    for stack, number in STACKS.items():
        layer = f"{stack}.block.{{}}.layer.{number}.mlp"
        named[f"{stack}_{{}}.ff.router.logits"] = f"{layer}.router.classifier"
        for ours, theirs in (("ups", "wi"), ("downs", "wo")):
            tensor = f"{layer}.experts.expert_{{{{}}}}.{theirs}.weight"
            named[f"{stack}_{{}}.ff.{ours}"] = Stored(tensor, True, stacked=experts)
    return named
