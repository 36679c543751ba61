"""Learning curves of a policy over training queries and `align_weight`, from offline data.

Context-aware assistant selection, docs/methods/selection.md, "Experiments": the learning curve
(experiment 3) and the sweep of `align_weight` (experiment 2, Figure 2). Nothing is generated.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from specjax.experiments.selection.policy import (
    Split,
    fit_of,
    make_reward,
    policy_figures,
    read,
    train_policy,
)
from specjax.measuring.environment import environment
from specjax.reporting.plots import style
from specjax.reporting.plots.selection import choices_by_weight, learning_curve
from specjax.reporting.report import PLOTS
from specjax.reporting.table import align_columns
from specjax.runtime.errors import UserError
from specjax.runtime.files import write_csv
from specjax.runtime.json_files import write_json
from specjax.runtime.progress import progress
from specjax.selection.fit import Fit
from specjax.selection.reward import ALIGNMENT, Reward, cheapness
from specjax.selection.scores import ALL, DYNAMIC, GREEDY, best, expected_speedup, probabilities

CURVE, WEIGHTS = "curve.csv", "align_weight.csv"
"""Files in the workdir: a line by number of queries and seed, and by weight and seed."""

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Study:
    """The varied and the fixed settings."""

    split: Split
    reward: Reward
    settings: Fit
    hidden: int
    sizes: list[int]
    weights: list[float]
    seeds: int

    @property
    def fits(self) -> int:
        """Number of policies to train."""
        return (len(self.sizes) + len(self.weights)) * self.seeds


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains all policies, writes tables and plots; returns the content of results.json.

    Raises:
      UserError: when a field or the data cannot be used.
    """
    study = make_study(config)
    study.split.test.rewards(study.reward)  # refuses a mistake before training
    with progress(total=study.fits, desc="policies", unit="fit") as bar:
        curve, levels = curve_rows(study, bar)
        weights = weight_rows(study, bar)
    field = "reward" if study.split.test.times is None else "speedup"
    workdir.mkdir(parents=True, exist_ok=True)
    write_csv(workdir / CURVE, curve)
    style.save(learning_curve(curve, levels[field], field), workdir / PLOTS, "learning_curve")
    if weights:
        write_csv(workdir / WEIGHTS, weights)
        made = choices_by_weight(weights, study.split.train.arms)
        style.save(made, workdir / PLOTS, "align_weight")
    content = {
        "environment": environment(),
        "config": config.to_dict(),
        "queries": {"train": len(study.split.train), "test": len(study.split.test)},
        "levels": levels,
        "curve": curve,
        "align_weight": weights,
    }
    write_json(workdir / "results.json", content)
    tables = {"queries": curve} | ({"align_weight": weights} if weights else {})
    print("\n\n".join(table(rows, by) for by, rows in tables.items()))
    print(f"tables and plots in {workdir}")
    return content


def plan(config: ConfigDict) -> None:
    """Prints the policies that would be trained.

    Raises:
      UserError: when a field or the data cannot be used.
    """
    study = make_study(config)
    print(f"queries: {', '.join(map(str, study.sizes))} of {len(study.split.train)}")
    print(f"align_weight: {', '.join(f'{weight:g}' for weight in study.weights) or 'not varied'}")
    print(f"seeds: {study.seeds}; {study.fits} policies, judged on {len(study.split.test)} queries")


def make_study(config: ConfigDict) -> Study:
    """The study of a config.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    reward, settings = make_reward(config), fit_of(config)
    weights = [float(weight) for weight in config.align_weights]
    split = read(config)
    sizes = list(config.sizes) or _sizes(len(split.train))
    for size in sizes:
        if size > len(split.train):
            raise UserError(
                f"config.sizes has {size!r}; it must be an integer from 1 to {len(split.train)},"
                " the training queries"
            )
    weights = weights if reward.kind == ALIGNMENT else []
    return Study(split, reward, settings, config.hidden, sizes, weights, config.seeds)


def _sizes(count: int) -> list[int]:
    """10, 30, 100, 300, ... and all."""
    steps = (step * 10**power for power in range(1, 12) for step in (1, 3))
    return [*(size for size in steps if size < count), count]


def curve_rows(study: Study, bar: tqdm) -> tuple[list[Row], dict[str, Any]]:
    """One row for each number of queries and seed, and rows that depend on neither."""
    made, ways = study.split.policy(study.reward, study.hidden), (GREEDY, DYNAMIC)
    rows: list[Row] = []
    levels: dict[str, Any] = {}
    for size in study.sizes:
        for seed in range(study.seeds):
            order = np.random.default_rng(seed).permutation(len(study.split.train))
            params = train_policy(made, study.settings, study.split.train.take(order[:size]), seed)
            judged = policy_figures(params, study.split.test, study.reward)[ALL]
            fields = [field for field in ("reward", "speedup") if field in judged]
            figures = {f"{way}_{f}": judged[f][way] for f in fields for way in ways}
            rows.append({"queries": size, "seed": seed, **figures})
            bar.update()
            levels = {f: {w: x for w, x in judged[f].items() if w not in ways} for f in fields}
    return rows, levels


def weight_rows(study: Study, bar: tqdm) -> list[Row]:
    """One row for each weight and seed: choices of greedy policies of all queries."""
    test, rows = study.split.test, []
    agreement = test.agreement[study.reward.measure]
    cheap = cheapness(test.parameters.tolist(), study.reward.unit)
    for weight in study.weights:
        reward = dataclasses.replace(study.reward, align_weight=weight)
        made = study.split.policy(reward, study.hidden)
        for seed in range(study.seeds):
            params = train_policy(made, study.settings, study.split.train, seed)
            taken = best(probabilities(params, test.embeddings))
            shares = {f"share_{a}": float(s) for a, s in zip(test.arms, taken.mean(0), strict=True)}
            row = {"align_weight": weight, "seed": seed, **shares}
            row["agreement"] = float((taken * agreement).sum(1).mean())
            row["cheapness"] = float((taken * cheap).sum(1).mean())
            if test.times is not None:
                row["speedup"] = expected_speedup(taken, test.times)
            rows.append(row)
            bar.update()
    return rows


def table(rows: list[Row], by: str) -> str:
    """Means over the seeds."""
    fields = [field for field in rows[0] if field not in (by, "seed")]
    groups = {value: [row for row in rows if row[by] == value] for value in _values(rows, by)}
    return align_columns(
        [by, *fields],
        [
            [f"{value:g}", *(f"{np.mean([row[f] for row in own]):.3f}" for f in fields)]
            for value, own in groups.items()
        ],
    )


def _values(rows: list[Row], by: str) -> list[Any]:
    return list(dict.fromkeys(row[by] for row in rows))
