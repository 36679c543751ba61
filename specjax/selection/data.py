"""Offline data: outputs and times of every arm on every query.

See docs/methods/selection.md, "Offline data".

A folder written by the job `select_data`: `data.json` (arms, kind of embeddings), `queries.jsonl`
(one row for each query) and `embeddings.safetensors`. Rewards are computed from it for any setting,
without generating again. Letters: N queries, D width of an embedding, k arms.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specjax.hf.trees import load_tree, save_tree
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import read_json, write_json, write_jsonl
from specjax.selection import reward as rewards
from specjax.selection.reward import Reward

SHAPE, ROWS, EMBEDDINGS = "data.json", "queries.jsonl", "embeddings.safetensors"
"""Files of a folder of offline data."""

SECONDS, TOKENS = "seconds", "tokens"
ALONE = "alone"
"""Key in the measured fields of a row, next to the arms: the target without a drafter."""


@dataclasses.dataclass(frozen=True)
class Times:
    """Measured decodes of every query, one at a time; the target alone is at the end."""

    seconds: np.ndarray  # [N, k + 1] float64
    tokens: np.ndarray  # [N, k + 1] float64: generated

    @property
    def speedups(self) -> np.ndarray:
        """Speed [N, k] of every arm over the target alone, in milliseconds per token."""
        per_token = self.seconds / np.maximum(self.tokens, 1)
        return per_token[:, -1:] / per_token[:, :-1]

    def take(self, index: np.ndarray) -> Times:
        """Some of the queries."""
        return Times(self.seconds[index], self.tokens[index])

    def only(self, columns: np.ndarray) -> Times:
        """Some of the arms, and the target alone."""
        kept = [*columns, self.seconds.shape[1] - 1]
        return Times(self.seconds[:, kept], self.tokens[:, kept])


@dataclasses.dataclass(frozen=True)
class Queries:
    """Queries with the outputs and times of every arm."""

    arms: tuple[str, ...]
    parameters: np.ndarray  # [k] float64: that a drafted token runs through
    source: str  # of the embeddings, one of `policy.SOURCES`
    ids: list[str]
    tasks: np.ndarray  # [N] names
    embeddings: np.ndarray  # [N, D] float32
    agreement: Mapping[str, np.ndarray]  # measure -> [N, k] in [0, 1]; NaN: no output of its own
    times: Times | None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def task_names(self) -> list[str]:
        """The tasks, in their first order."""
        return list(dict.fromkeys(self.tasks.tolist()))

    def take(self, index: np.ndarray) -> Queries:
        """Some of the queries, by integer index."""
        return dataclasses.replace(
            self,
            ids=[self.ids[i] for i in index],
            tasks=self.tasks[index],
            embeddings=self.embeddings[index],
            agreement={name: scores[index] for name, scores in self.agreement.items()},
            times=self.times and self.times.take(index),
        )

    def only(self, arms: Sequence[str]) -> Queries:
        """The same queries with some of the arms, in the order given.

        Raises:
          UserError: when there is no such arm.
        """
        for name in arms:
            if name not in self.arms:
                raise UserError(f"arms has {name!r}; the data have {', '.join(self.arms)}")
        columns = np.array([self.arms.index(name) for name in arms])
        return dataclasses.replace(
            self,
            arms=tuple(arms),
            parameters=self.parameters[columns],
            agreement={name: scores[:, columns] for name, scores in self.agreement.items()},
            times=self.times and self.times.only(columns),
        )

    def rewards(self, reward: Reward) -> np.ndarray:
        """Rewards [N, k] float64 of the arms.

        Raises:
          UserError: when the data lack the inputs of the reward.
        """
        if reward.kind == rewards.SPEEDUP:
            if self.times is None:
                raise UserError("reward.kind is 'speedup', but the data were made without seconds")
            return self.times.speedups
        agreement = self.agreement[reward.measure]
        silent = np.flatnonzero(np.isnan(agreement).any(axis=0))
        if len(silent):
            raise UserError(
                f"reward.kind is 'alignment', but arm {self.arms[silent[0]]!r} writes nothing by"
                " itself; it must be 'speedup', or the arm left out"
            )
        cheap = rewards.cheapness(self.parameters, reward.unit)
        return rewards.blend(agreement, cheap, reward.align_weight)


def save(
    folder: Path, description: Mapping[str, Any], rows: list[dict[str, Any]], embeddings: np.ndarray
) -> None:
    """Writes the three files; `data.json` last, so that a folder with it is complete."""
    (folder / SHAPE).unlink(missing_ok=True)
    write_jsonl(folder / ROWS, rows)
    save_tree({"embeddings": embeddings}, folder / EMBEDDINGS)
    write_json(folder / SHAPE, description)


def load(folder: str | Path) -> Queries:
    """Reads a folder of offline data.

    Raises:
      UserError: when it is not one, is unfinished, or is damaged.
    """
    folder = Path(folder)
    if not os.path.isfile(folder / SHAPE):
        raise UserError(
            f"data {str(folder)!r} is not a folder with {SHAPE}; configs/selection/data.py makes"
            " one, and resumes an unfinished run when called again"
        )
    shape = read_json(folder / SHAPE)
    lines = (folder / ROWS).read_text("utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    if len(rows) != shape["queries"]:
        raise UserError(
            f"data {str(folder)!r} have {len(rows)} queries instead of {shape['queries']}"
        )
    like = jax.ShapeDtypeStruct((len(rows), shape["width"]), np.float32)
    tree = load_tree(folder / EMBEDDINGS, {"embeddings": like}, "embeddings", SHAPE)
    arms = tuple(shape["arms"])
    return Queries(
        arms=arms,
        parameters=np.array([shape["arms"][arm]["parameters"] for arm in arms], np.float64),
        source=shape["source"],
        ids=[row["id"] for row in rows],
        tasks=np.array([row["task"] for row in rows]),
        embeddings=np.asarray(tree["embeddings"]),
        agreement={measure: _columns(rows, measure, arms) for measure in rewards.MEASURES},
        times=_times(rows, arms) if shape["timed"] else None,
    )


def _times(rows: list[dict[str, Any]], arms: tuple[str, ...]) -> Times:
    measured = (*arms, ALONE)
    return Times(_columns(rows, SECONDS, measured), _columns(rows, TOKENS, measured))


def _columns(rows: list[dict[str, Any]], field: str, names: tuple[str, ...]) -> np.ndarray:
    """A field of all rows by name [N, len(names)] float64; NaN where it is null."""
    return np.array([[row[field][name] for name in names] for row in rows], np.float64)
