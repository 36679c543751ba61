"""A new objective, task and metric: one short class each, and a config may name them."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from specjax.contracts import fields, reference
from specjax.contracts.registry import METRICS, OBJECTIVES, TASKS
from specjax.data import columns
from specjax.data.task import Task
from specjax.experiments.config.defaults import train_config
from specjax.experiments.train import job as train
from specjax.metrics.metric import Metric
from specjax.runtime.errors import UserError
from specjax.training.loss import cross_entropy
from specjax.training.objective import Objective, masked_sum

MOST_LINES = 35


@dataclasses.dataclass(frozen=True)
class Focal(Objective):
    """Cross-entropy that looks away from what is known already (Lin et al. 2017)."""

    focus: float = fields.number(2.0, bounds="[0, inf)", help="power of the probability missed")

    def sums(self, model, params, frozen, batch, key):
        (logits,) = model.teach(params, batch, key=key)
        loss = cross_entropy(logits, batch["labels"])
        missed = 1.0 - jnp.exp(-jax.lax.stop_gradient(loss))
        return masked_sum(missed**self.focus * loss, batch["mask"]), jnp.sum(batch["mask"])


class Echo(Task):
    """A line that is to be said again."""

    source = None
    reads = "source"
    metric = "first_letter"
    example = {"source": "one line"}

    def prompt(self, row):
        return f"say: {columns.text(row, 'source')}"

    def reference(self, row):
        return columns.text(row, "source")


class FirstLetter(Metric):
    """Outputs that begin as the reference does."""

    scores: ClassVar[tuple[str, ...]] = ("first_letter",)

    def __call__(self, outputs, references):
        pairs = zip(outputs, references, strict=True)
        return {"first_letter": 100 * sum(a[:1] == b[:1] for a, b in pairs) / len(outputs)}


@pytest.fixture
def newcomers(monkeypatch) -> None:
    """The three registered, as their files would do on import."""
    for registry, name, cls in (
        (OBJECTIVES, "focal", Focal), (TASKS, "echo", Echo), (METRICS, "first_letter", FirstLetter),
    ):  # fmt: skip
        assert name not in registry  # which also finds what is there already
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(cls, "__module__", f"{registry.package}.{name}")  # the docs' own
        registry.register(name)(cls)


def make_config(pair: Path, **changes):
    """A short training run on the lines of a file."""
    file = str(pair / "source.txt")
    rows = {"kind": "text", "path": file, "reference_path": file}
    config = train_config(
        model={"checkpoint": str(pair / "drafter")},
        train={"task": "echo"},
        validation={"task": "echo", "examples": 4},
        objective={"name": "focal", **changes},
        optimizer={"steps": 30, "warmup": 0, "learning_rate": 1e-2},
        evaluation={"every": 30, "batch_size": 4, "keep": "first_letter"},
        batch_size=8,
        bucket=128,
        max_prompt_tokens=128,
        max_output_tokens=8,
    )
    for side in (config.train, config.validation):
        side.data.update(rows)
    return config


@pytest.mark.parametrize("cls", [Focal, Echo, FirstLetter])
def test_a_newcomer_is_short(cls):
    assert len(inspect.getsource(cls).splitlines()) <= MOST_LINES


@pytest.mark.slow
def test_newcomers_are_trained_asked_and_scored_by_a_config(newcomers, pair, tmp_path):
    results = train.run(make_config(pair, focus=1.0), tmp_path / "run")
    first, last = results["evaluations"]
    assert last["loss"] < first["loss"]
    assert set(last) == {"step", "loss", "first_letter"}
    assert 0 <= last["first_letter"] <= 100
    settings = json.loads((tmp_path / "run" / "settings.json").read_text("utf-8"))
    assert settings["objective"]["focus"] == 1.0


def test_fields_of_a_newcomer_are_checked_as_all_others(newcomers, pair):
    with pytest.raises(UserError) as refused:
        train.check_train_fields(make_config(pair, focus=-1.0))
    assert str(refused.value) == (
        "config.objective.focus is -1.0; it must be a number of at least 0"
    )
    with pytest.raises(UserError, match="config.objective.smoothing is 0.1; objective 'focal' do"):
        train.check_train_fields(make_config(pair, smoothing=0.1))


def test_newcomers_stand_in_help_and_in_the_tables(newcomers):
    words = reference.format_help(OBJECTIVES, TASKS, METRICS)
    assert "focal: Cross-entropy that looks away" in words
    assert "focus: power of the probability missed; a number of at least 0 (default 2)" in words
    assert "| `echo` | A line that is to be said again. | first_letter |" in reference.format_table(
        TASKS
    )
    assert "| `first_letter` | Outputs that begin" in reference.format_table(METRICS)
