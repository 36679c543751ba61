"""FLOPs and memory operations of a strategy, from the calls in its traces.

See docs/methods/operations.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.contracts.drafter import Drafter
from specjax.contracts.reader import Reader
from specjax.contracts.spec import Call, list_parts
from specjax.drafting.draft_heads import DraftHeads
from specjax.metrics.traces import Rounds
from specjax.models.bart import BartConfig
from specjax.models.base import LanguageModel
from specjax.models.canary import CanaryConfig
from specjax.models.experts import Mixture
from specjax.models.gated_delta import GatedDelta
from specjax.models.guided import GuidedModel
from specjax.models.latent_attention import Latent
from specjax.models.moonshine import MoonshineConfig
from specjax.models.pix2struct import Pix2StructConfig
from specjax.models.recurrent_layers import Recurrence
from specjax.models.rg_lru import RgLru
from specjax.models.swin import SwinConfig
from specjax.models.t5 import T5Config
from specjax.models.t5gemma import Stack, T5GemmaConfig
from specjax.models.t5gemma2 import T5Gemma2Config
from specjax.models.vision import ImageToTextConfig, VisionConfig
from specjax.models.vit import VitConfig
from specjax.theory.operations import (
    ExpertsShape,
    LatentShape,
    Operations,
    TransformerShape,
    decoder_call,
    output_layer,
    propagation,
    start,
)
from specjax.theory.recurrences import RecurrenceShape
from specjax.verification.calm import SOFTMAX, Calm

NONE = Operations(np.zeros(()), np.zeros(()))


def transformer_shape(model: LanguageModel) -> TransformerShape:
    """The shape that the operations of a model depend on."""
    c = model.config
    if isinstance(c, T5GemmaConfig):
        encoder = _of_stack(c.encoder, c.vocab_size)
        return dataclasses.replace(
            _of_stack(c.decoder, c.vocab_size),
            encoder_layers=encoder.layers,
            encoder=encoder,
            merged=isinstance(c, T5Gemma2Config),
        )
    common = {
        "d_model": c.d_model,
        "d_ff": c.d_ff,
        "heads": c.num_heads,
        "vocab": getattr(c, "draft_vocab", c.vocab_size),
        "ff_matrices": 3 if getattr(c, "gated", False) else 2,
    }
    if isinstance(c, T5Config | BartConfig):
        return TransformerShape(
            layers=c.num_decoder_layers,
            d_head=c.d_kv,
            mixtures=_of_mixtures(getattr(c, "mixtures", ())),
            **common,
            **_of_encoder(c),
        )
    latent = getattr(c, "latent", None)
    return TransformerShape(
        layers=c.num_layers,
        d_head=c.d_head,
        kv_heads=c.num_kv_heads,
        layer_widths=tuple(
            (c.num_heads * each.width, each.kv_heads * each.width)
            for each in getattr(c, "heads", ())
        ),
        projected_width=getattr(c, "projected_width", None),
        d_ffs=getattr(c, "d_ffs", ()),
        mixers=getattr(c, "mixers", ()),
        latent=latent and _of_latent(latent),
        mixtures=_of_mixtures(getattr(c, "mixtures", ())),
        recurrences=tuple(
            one and _of_recurrence(one, c.d_model) for one in getattr(c, "recurrences", ())
        ),
        **common,
    )


def _of_mixtures(mixtures: Sequence[Mixture | None]) -> tuple[ExpertsShape | None, ...]:
    return tuple(
        one and ExpertsShape(one.experts, one.chosen, one.d_ff, one.shared, one.latent)
        for one in mixtures
    )


def _of_latent(latent: Latent) -> LatentShape:
    return LatentShape(
        latent.rank, latent.rotated, latent.plain, latent.value, latent.query_rank or 0
    )


def _of_recurrence(one: Recurrence, d_model: int) -> RecurrenceShape:
    heads, keys, width = one.value_heads, one.key_heads * one.d_key, one.widths[2]
    reads = 2 if isinstance(one, GatedDelta) else 1
    blocks = isinstance(one, RgLru) and 2 * heads**2 // one.blocks
    return RecurrenceShape(
        channels=one.channels,
        width=width,
        taps=one.taps,
        state=width * one.d_key,
        update=keys + width + heads + one.channels,
        rates=blocks or reads * d_model * heads,
        reads=reads,
    )


def idle_weights(model: LanguageModel) -> int:
    """Weights of a model's experts that a token does not have."""
    return transformer_shape(model).idle_weights if getattr(model.config, "mixtures", ()) else 0


def _of_encoder(config: T5Config | BartConfig) -> dict[str, Any]:
    """Attributes of the shape of an encoder-decoder model that are its encoder's."""
    if isinstance(config, ImageToTextConfig):
        return _of_vision(config.vision)
    own: dict[str, Any] = {}
    if isinstance(config, MoonshineConfig):  # only its decoder is gated
        own = {"encoder": _of_layers(config, config.encoder_ff, config.encoder_heads, config.d_kv)}
    if isinstance(config, CanaryConfig):  # a layer's convolutions are 3 d^2 weights
        one = config.conformer
        width, d_head = 2 * one.d_ff + 3 * one.d_model // 2, one.d_model // one.num_heads
        own = {"encoder": _of_layers(config, width, one.num_heads, d_head)}
    if isinstance(config, Pix2StructConfig):
        one = config.vision
        own = {"encoder": _of_layers(config, one.d_ff, one.num_heads, one.d_kv, ff_matrices=3)}
    return {"encoder_layers": config.num_layers} | own


def _of_layers(
    config: T5Config | BartConfig, d_ff: int, heads: int, d_head: int, **own: Any
) -> TransformerShape:
    """The shape of an encoder whose layers differ from the decoder's."""
    sizes = {"d_model": config.d_model, "d_ff": d_ff, "heads": heads, "d_head": d_head}
    return TransformerShape(layers=config.num_layers, vocab=1, **sizes, **own)  # it writes nothing


def _of_vision(vision: VisionConfig) -> dict[str, Any]:
    """Attributes of the shape of a model with an encoder of images."""
    layers = vision.num_layers if isinstance(vision, VitConfig) else 1
    encoder = TransformerShape(
        layers=layers,
        d_model=vision.width,
        d_ff=vision.d_ff,
        heads=vision.num_heads,
        d_head=vision.width // vision.num_heads,
        vocab=1,  # an encoder writes nothing
    )
    reading = _read_in_windows(vision) if isinstance(vision, SwinConfig) else None
    return {"encoder_layers": layers, "encoder": encoder, "reading": reading}


def _read_in_windows(swin: SwinConfig) -> tuple[float, float]:
    """FLOPs and elements moved by a Swin transformer that reads an image."""
    flops = memory = 0.0
    for stage, depth in enumerate(swin.depths):
        width, ff = swin.get_width(stage), swin.get_ff(stage)
        states = math.prod(swin.get_grid(stage))
        weights = 4 * width**2 + 2 * width * ff
        flops += depth * states * (2 * weights + 4 * width * swin.window**2)
        memory += depth * (weights + states * (12 * width + 2 * ff))
        if stage:  # four states of the stage before became one
            flops += 4 * states * width**2
            memory += 2 * width**2 + 3 * states * width
    return flops, memory


def _of_stack(stack: Stack, vocab_size: int) -> TransformerShape:
    return TransformerShape(
        layers=stack.num_layers,
        d_model=stack.d_model,
        d_ff=stack.d_ff,
        heads=stack.num_heads,
        d_head=stack.d_head,
        vocab=vocab_size,
        ff_matrices=3,
        kv_heads=stack.num_kv_heads,
    )


def part_shape(model: LanguageModel, call: Call) -> TransformerShape:
    """The shape of the layers of a model that run in a call."""
    shape = transformer_shape(model)
    if call.read_out:
        return shape.slice_layers(0, 0)
    return shape.slice_layers(call.resume_from, call.exit or shape.layers)


def target_calls(shape: TransformerShape, rounds: Rounds, prompt: np.ndarray) -> Operations:
    """Operations of the target's calls, each of its full compiled width.

    `prompt` [N] is the length of each row's prompt. Rejected tokens count like accepted ones.
    """
    rows, _ = np.nonzero(rounds.reviewed)
    cached = rounds.begin[rows] + rounds.started[rounds.reviewed] - 1
    return decoder_call(
        shape, rounds.width[rounds.reviewed] + 1, cached, _source(shape, prompt[rows])
    ).total()


def drop_prompt(rounds: Rounds, prompt: np.ndarray) -> Rounds:
    """The rounds without the prompt except its last token, as guidance reads them."""
    return dataclasses.replace(rounds, begin=rounds.begin - (prompt - 1))


def calm_calls(
    shape: TransformerShape, rounds: Rounds, prompt: np.ndarray, calm: Calm
) -> Operations:
    """Operations of tokens that left the decoder at their own layers.

    The layers above computed keys and values from the exit state. With `SOFTMAX` the output layer
    ran after each layer except the last, for the confidence, and once for the token.
    """
    heads = calm.measure == SOFTMAX
    rows, _ = np.nonzero(rounds.ran)
    cached = rounds.begin[rows] + rounds.started[rounds.ran] - 1
    if rounds.layers is None:
        raise ValueError("the rounds do not say how many layers their tokens ran")
    layers, total = rounds.layers[rounds.ran], NONE
    for ran in np.unique(layers).tolist():
        here = layers == ran
        source = _source(shape, prompt[rows[here]])
        part = shape.slice_layers(0, ran)
        calls = decoder_call(part, 1, cached[here], source)
        looks = min(ran, shape.layers - 1) * heads
        above = propagation(shape) * (shape.layers - ran)
        total += calls.total() + (output_layer(shape, 1) * looks + above) * here.sum()
    return total


def drafter_calls(
    models: Mapping[str, LanguageModel],
    rounds: Rounds,
    prompt: np.ndarray,
    drafter: Drafter,
    part: str,
) -> Operations:
    """Operations of the calls of one of the drafter's `parts`.

    A trace knows how many calls of a row were not the first of their rounds, not of which rounds:
    they are counted at the row's mean cache length, on which their operations depend linearly, and
    as the mean of a draft's calls after its first. A part with fewer calls than rounds has a share
    of one in each.
    """
    calls = [call for call in drafter.spec.calls if call.part == part]
    first, later = calls[0], calls[1:] or calls
    shape = part_shape(models[first.model], first)
    rows, _ = np.nonzero(rounds.ran)
    length = rounds.begin[rows] + rounds.started[rounds.ran]
    cached = np.maximum(length - first.tokens, 0)
    source = _source(shape, prompt)
    count = np.bincount(rows, minlength=len(prompt))
    share = np.minimum(rounds.calls[part] / np.maximum(count, 1), 1)[rows]
    opening = decoder_call(shape, first.tokens, cached, source[rows], first.logits)
    opening = (opening * share).total()
    more = np.maximum(rounds.calls[part] - count, 0)
    if not more.any():
        return opening
    per_row = np.bincount(rows, weights=length, minlength=len(prompt)) / np.maximum(count, 1)
    middle = np.rint(per_row + (more / np.maximum(count, 1) - 1) / 2)
    owner = np.repeat(np.arange(len(prompt)), more)
    rest = [
        decoder_call(shape, call.tokens, middle[owner], source[owner], call.logits).total() * count
        for call, count in Counter(later).items()
    ]
    return opening + sum(rest, start=NONE) * (1 / len(later))


def head_calls(drafter: Drafter, params: Mapping[str, Any], rounds: Rounds) -> Operations:
    """Operations of the networks of parallel heads in every round."""
    if not isinstance(drafter, DraftHeads):
        return NONE
    heads = params[drafter.heads].heads
    weights = [heads.count_weights(head) for head in range(1, drafter.depth + 1)]
    runs = drafter.fed if drafter.sequential else (1,) * drafter.depth
    flops = sum(2 * own * states for own, states in zip(weights, runs, strict=True))
    memory = np.asarray(sum(weights), np.float64)
    return Operations(np.asarray(flops, np.float64), memory) * rounds.ran.sum()


def operations(
    rounds: Rounds,
    prompt: np.ndarray,
    drafter: Drafter,
    models: Mapping[str, LanguageModel],
    params: Mapping[str, Any],
    target: str,
    reader: Reader,
) -> dict[str, Any]:
    """Operations per generated token by part and in total, with and without reading prompts.

    Parts are the models and early exits (`Call.part`); an early exit reads no prompt of its own.
    `models` and `params` by name hold what the strategy uses, the target first; `prompt` [N] the
    lengths of the prompts. Counted as at batch size 1: every row reads the weights for itself. A
    guided target is called twice, the second time on the text without its prompt.
    """
    shape = part_shape(models[target], reader.make_call(target, 0))
    if isinstance(reader, Calm):
        decoding = {target: calm_calls(shape, rounds, prompt, reader)}
    else:
        decoding = {target: target_calls(shape, rounds, prompt)}
    guided = isinstance(models[target], GuidedModel)
    if guided:
        free = drop_prompt(rounds, prompt)
        decoding[target] += target_calls(transformer_shape(models[target]), free, prompt)
    for part in list_parts(drafter.spec.calls):
        decoding[part] = drafter_calls(models, rounds, prompt, drafter, part)
    reading = dict.fromkeys(decoding, NONE)
    reading |= {
        name: start(transformer_shape(model), prompt, model.info.borrows_encoder).total()
        for name, model in models.items()
    }
    if guided:
        reading[target] += start(transformer_shape(models[target]), np.ones_like(prompt)).total()
    if drafter.spec.calls:
        decoding[drafter.spec.calls[0].part] += head_calls(drafter, params, rounds)
    decoding["total"], reading["total"] = sum_operations(decoding), sum_operations(reading)
    return {
        name: entry(decoding[name], rounds.tokens)
        | {"with_prompt": entry(decoding[name] + reading[name], rounds.tokens)}
        for name in decoding
    }


def sum_operations(parts: Mapping[str, Operations]) -> Operations:
    return sum(parts.values(), start=NONE)


def entry(total: Operations, tokens: int) -> dict[str, float]:
    """Operations per token and their intensity; 0 without any."""
    return {
        "flops": float(total.flops) / max(tokens, 1),
        "memory_operations": float(total.memory) / max(tokens, 1),
        "intensity": float(total.intensity) if total.memory else 0.0,
    }


def _source(shape: TransformerShape, prompt: np.ndarray) -> np.ndarray:
    """Length [N] of the text that cross-attention reads."""
    return prompt if shape.cross else np.zeros_like(prompt)
