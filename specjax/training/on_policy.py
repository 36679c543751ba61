"""Sequences sampled from the model in training (on-policy distillation).

Agarwal et al., "On-Policy Distillation of Language Models" (2024): the drafter learns from the
target on the prefixes that occur when it drafts.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from specjax.data.batching import round_up
from specjax.data.pipeline import Arrays
from specjax.decoding.loop import generate
from specjax.decoding.strategy import autoregressive
from specjax.models.base import LanguageModel, Params
from specjax.parallel.sharding import Layout


@dataclasses.dataclass(frozen=True)
class OwnSequences:
    """Replaces the outputs of a batch by samples of the model; a function of seed and step."""

    model: LanguageModel
    max_new_tokens: int
    temperature: float = 1.0
    seed: int = 0
    bucket: int = 8
    layout: Layout | None = None

    def __call__(self, params: Params, step: int, batch: Arrays) -> Arrays:
        """The batch with the model's samples as `inputs`, `length`, `labels` and `mask`."""
        strategy = autoregressive(temperature=self.temperature)
        models = (("target", self.model),)
        decoder = strategy.decoder(models, self.max_new_tokens, layout=self.layout)
        rows = len(batch["prompt_length"])
        keys = jax.random.split(jax.random.fold_in(jax.random.key(self.seed), step), rows)
        limit = np.full(rows, self.max_new_tokens, np.int32)
        prompt = batch["prompt"], batch["prompt_length"]
        made = generate(decoder, {"target": params}, *prompt, keys, limit, strategy.options())
        tokens, begin, length = jax.device_get((made.tokens, made.begin, made.length))
        width = round_up(int(length.max() - 1), self.bucket)
        prompt = batch["prompt"]
        if not self.model.info.input:
            # One width for both sides, as in the other batches: each pair of widths would compile.
            width = max(width, prompt.shape[1])
            prompt = fit_rows(prompt, width, self.model.info.pad)
        return {
            **batch,
            "prompt": prompt,
            **make_inputs(tokens, begin, length, width, self.model.info.pad),
        }


def make_inputs(
    tokens: np.ndarray, begin: np.ndarray, length: np.ndarray, width: int, pad: int
) -> Arrays:
    """Generated rows as decoder inputs and labels [B, width]."""
    written = np.arange(tokens.shape[1]) < length[:, None]
    whole = fit_rows(np.where(written, tokens, pad), width + 1, pad)
    place = np.arange(width)
    return {
        "inputs": whole[:, :-1],
        "length": length - 1,
        "labels": whole[:, 1:],
        "mask": (place >= begin[:, None] - 1) & (place < length[:, None] - 1),
    }


def fit_rows(rows: np.ndarray, width: int, pad: int) -> np.ndarray:
    """Rows [B, width], truncated or padded at the end."""
    rows = rows[:, :width]
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=pad)
