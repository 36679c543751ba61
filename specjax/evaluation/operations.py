"""FLOPs and memory operations of a strategy, from the calls in its traces (methods.md 2.12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from specjax.drafting.base import Drafter
from specjax.evaluation.traces import Rounds
from specjax.models.base import LanguageModel
from specjax.models.heads import LoadedHeads
from specjax.models.t5 import T5Config
from specjax.theory.operations import Operations, TransformerShape, decoder_call, start

NONE = Operations(np.float64(0), np.float64(0))


def shape_of(model: LanguageModel) -> TransformerShape:
    """What the operations of a model depend on."""
    c = model.config
    common = {
        "d_model": c.d_model,
        "d_ff": c.d_ff,
        "heads": c.num_heads,
        "vocab": c.vocab_size,
        "ff_matrices": 3 if c.gated else 2,
    }
    if isinstance(c, T5Config):
        return TransformerShape(
            layers=c.num_decoder_layers, d_head=c.d_kv, encoder_layers=c.num_layers, **common
        )
    return TransformerShape(layers=c.num_layers, d_head=c.d_head, kv_heads=c.num_kv_heads, **common)


def target_calls(shape: TransformerShape, rounds: Rounds, prompt: np.ndarray) -> Operations:
    """Operations of the target's calls, each on the pending token and those it had room for.

    `prompt` [N] is the length of each row's prompt. Rejected tokens count like accepted ones.
    """
    rows, _ = np.nonzero(rounds.reviewed)
    cached = rounds.begin[rows] + rounds.started[rounds.reviewed] - 1
    return decoder_call(
        shape, rounds.width[rounds.reviewed] + 1, cached, _source(shape, prompt[rows])
    ).total()


def drafter_calls(
    shape: TransformerShape, rounds: Rounds, prompt: np.ndarray, drafter: Drafter, name: str
) -> Operations:
    """Operations of the calls of the drafter's model `name`.

    A trace knows how many calls of a row were not the first of their rounds, not of which rounds:
    they are counted at the row's mean cache length, on which their operations depend linearly.
    """
    calls = [call for call in drafter.schedule if call.model == name]
    first, later = calls[0], calls[-1]
    rows, _ = np.nonzero(rounds.ran)
    length = rounds.begin[rows] + rounds.started[rounds.ran]
    cached = np.maximum(length - first.tokens, 0)
    source = _source(shape, prompt)
    opening = decoder_call(shape, first.tokens, cached, source[rows], first.logits).total()
    count = np.bincount(rows, minlength=len(prompt))
    more = np.maximum(rounds.calls[name] - count, 0)
    if not more.any():
        return opening
    per_row = np.bincount(rows, weights=length, minlength=len(prompt)) / np.maximum(count, 1)
    middle = np.rint(per_row + (more / np.maximum(count, 1) - 1) / 2)
    each = np.repeat(np.arange(len(prompt)), more)
    rest = decoder_call(shape, later.tokens, middle[each], source[each], later.logits)
    return opening + rest.total()


def head_calls(drafter: Drafter, params: Mapping[str, Any], rounds: Rounds) -> Operations:
    """Operations of the networks of parallel heads, on one state in every round."""
    loaded = [params[table] for table in drafter.tables]
    heads = [tree.heads for tree in loaded if isinstance(tree, LoadedHeads)]
    weights = sum(2 * drafter.width * each.d_model * each.width for each in heads)
    count = rounds.ran.sum()
    return Operations(2.0 * weights * count, 1.0 * weights * count)


def operations(
    rounds: Rounds,
    prompt: np.ndarray,
    drafter: Drafter,
    models: Mapping[str, LanguageModel],
    params: Mapping[str, Any],
    target: str,
) -> dict[str, Any]:
    """Operations per generated token by model and in total, with and without reading prompts.

    `models` and `params` by name hold what the strategy uses, the target first; `prompt` [N] the
    lengths of the prompts. Counted as at batch size 1: every row reads the weights for itself.
    """
    decoding, reading = {}, {}
    for name, model in models.items():
        shape = shape_of(model)
        reading[name] = start(shape, prompt).total()
        if name == target:
            decoding[name] = target_calls(shape, rounds, prompt)
        else:
            decoding[name] = drafter_calls(shape, rounds, prompt, drafter, name)
    if drafter.models:
        decoding[drafter.models[0]] += head_calls(drafter, params, rounds)
    decoding["total"], reading["total"] = sum_of(decoding), sum_of(reading)
    return {
        name: entry(decoding[name], rounds.tokens)
        | {"with_prompt": entry(decoding[name] + reading[name], rounds.tokens)}
        for name in decoding
    }


def sum_of(parts: Mapping[str, Operations]) -> Operations:
    return sum(parts.values(), start=NONE)


def entry(total: Operations, tokens: int) -> dict[str, float]:
    """Operations per token and their intensity, 0 without any."""
    return {
        "flops": float(total.flops) / max(tokens, 1),
        "memory_operations": float(total.memory) / max(tokens, 1),
        "intensity": float(total.intensity) if total.memory else 0.0,
    }


def _source(shape: TransformerShape, prompt: np.ndarray) -> np.ndarray:
    """Length [N] of the text that cross-attention looks at."""
    return prompt if shape.cross else np.zeros_like(prompt)
