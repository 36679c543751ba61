"""Scores of evaluations during training: loss, quality of outputs, acceptance."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np

from specjax.acceptance import Written, acceptance_on, write
from specjax.api import Generator
from specjax.data.batching import Prompt
from specjax.data.pipeline import Arrays
from specjax.data.text import Reference
from specjax.experiments.train.subject import Subject
from specjax.loading import LoadedModel
from specjax.metrics.metric import get_metric
from specjax.models.base import Params
from specjax.parallel.fully_sharded import FullySharded, gather_params
from specjax.runtime.errors import UserError
from specjax.training.objective import Frozen
from specjax.training.step import Setup, evaluate_batch, measure_batch
from specjax.training.trainer import split_batch


@dataclasses.dataclass(frozen=True)
class Heldout:
    """Held-out rows: token ids, references, and padded batches with labels."""

    prompts: Sequence[Prompt]
    references: Sequence[Reference | None]
    batches: list[Arrays]


@dataclasses.dataclass
class Scores:
    """Measures parameters; larger is better for everything but the loss."""

    setup: Setup
    frozen: Frozen
    subject: Subject
    heldout: Heldout
    metric: str
    max_new_tokens: int
    max_prompt_tokens: int
    bucket: int
    batch_size: int
    target: LoadedModel | None = None
    temperatures: tuple[float, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        figures = self.setup.objective.figures(self.setup.model)
        measured = map(acceptance_name, self.temperatures)
        return ("loss", *figures, *get_metric(self.metric).scores, *measured)

    def check(self, keep: str) -> None:
        """Refuses a name that is not measured."""
        if keep not in self.names():
            raise UserError(
                f"config.evaluation.keep is {keep!r}; what is measured is {', '.join(self.names())}"
            )

    def __call__(self, params: Params) -> dict[str, float]:
        """All scores of parameters; quality in percent, loss in nats per token."""
        start = self.subject.start
        model = dataclasses.replace(start, params=self.subject.model_params(params))
        model = decodable(self.setup.sharded, model)
        scores = {"loss": self._loss(params), **self._figures(params), **self._quality(model)}
        for temperature, (target, written) in self._written.items():
            mean, _ = acceptance_on(written, decodable(self.setup.sharded, target), model)
            scores[acceptance_name(temperature)] = mean
        return scores

    def _loss(self, params: Params) -> float:
        sums = [
            evaluate_batch(
                self.setup, params, self.frozen, split_batch(batch, self.subject.start.mesh)
            )
            for batch in self.heldout.batches
        ]
        total, count = map(sum, zip(*jax.device_get(sums), strict=True))
        return float(total / count)

    def _figures(self, params: Params) -> dict[str, float]:
        """Of the objective, over all batches."""
        if not self.setup.objective.figures(self.setup.model):
            return {}
        mesh = self.subject.start.mesh
        made = jax.device_get(
            [
                measure_batch(self.setup, params, self.frozen, split_batch(batch, mesh))
                for batch in self.heldout.batches
            ]
        )
        totals = {name: np.sum([of[name] for of in made], axis=0) for name in made[0]}
        return {name: float(total / count) for name, (total, count) in totals.items()}

    def _quality(self, model: LoadedModel) -> dict[str, float]:
        metric = get_metric(self.metric)
        if not metric.scores:
            return {}
        generator = Generator(
            model,
            max_new_tokens=self.max_new_tokens,
            max_prompt_tokens=self.max_prompt_tokens,
            bucket=self.bucket,
        )
        texts = generator(self.heldout.prompts, batch_size=self.batch_size).texts
        return metric(texts or [], [each for each in self.heldout.references if each is not None])

    @functools.cached_property
    def _written(self) -> dict[float, tuple[LoadedModel, Written]]:
        """The target and its outputs for the held-out prompts; empty without a target."""
        target = self.target
        if target is None:
            return {}
        return {each: (target, self._write(target, each)) for each in self.temperatures}

    def _write(self, target: LoadedModel, temperature: float) -> Written:
        return write(
            decodable(self.setup.sharded, target),
            self.heldout.prompts,
            temperature=temperature,
            max_new_tokens=self.max_new_tokens,
            batch_size=self.batch_size,
            bucket=self.bucket,
        )


def decodable(sharded: FullySharded | None, loaded: LoadedModel) -> LoadedModel:
    """A model for decoding, with parameters replicated over the mesh's `data` axis."""
    params = gather_params(sharded, loaded.model, loaded.params)
    return dataclasses.replace(loaded, params=params)


def acceptance_name(temperature: float) -> str:
    """`acceptance_0`, `acceptance_1`, `acceptance_0.7`, ..."""
    return f"acceptance_{temperature:g}"
