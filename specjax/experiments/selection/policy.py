"""Trains a policy that chooses a drafter, from offline data.

See docs/methods/selection.md, "Policy".

Writes the policy's folder for decodes, and results.json: the value of its choices on held-out
queries, compared with every single arm, the best choice and chance. If the evaluation queries were
timed, `oracle.json` lists the fastest arm of each, for decodes of the same queries.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from specjax.measuring.environment import environment
from specjax.models.base import Params
from specjax.reporting.table import align_columns
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json
from specjax.selection import data, policy
from specjax.selection.data import Queries
from specjax.selection.fit import Fit, fit
from specjax.selection.policy import Policy
from specjax.selection.reward import Reward
from specjax.selection.scores import ALL, probabilities, scores

CHOICES = 200
"""Number of timed choices; their median is reported."""

POLICY, ORACLE = "policy", "oracle.json"
"""Files in the workdir: folder of the policy; the fastest arms of `config.test`."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Training and evaluation queries."""

    train: Queries
    test: Queries

    def policy(self, reward: Reward, hidden: int) -> Policy:
        """A policy for these queries."""
        width = self.train.embeddings.shape[1]
        return Policy(self.train.arms, self.train.source, width, reward, hidden)


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains and evaluates a policy; returns the content of results.json.

    Raises:
      UserError: when a field or the data cannot be used.
    """
    reward, settings = make_reward(config), fit_of(config)
    split = read(config)
    made = split.policy(reward, config.hidden)
    split.test.rewards(reward)  # refuses a mistake before training
    start = time.perf_counter()
    params = train_policy(made, settings, split.train, config.seed)
    seconds = time.perf_counter() - start
    policy.save(workdir / POLICY, made, params)
    if config.test and split.test.times is not None:
        fastest = np.argmax(split.test.times.speedups, axis=1)
        write_json(workdir / ORACLE, [made.arms[arm] for arm in fastest])
    content = {
        "environment": environment(),
        "config": config.to_dict(),
        "arms": list(made.arms),
        "queries": {"train": len(split.train), "test": len(split.test)},
        "fit_seconds": seconds,
        "choice_ms": choice_ms(params, split.test.embeddings[:1]),
        "train": policy_figures(params, split.train, reward),
        "test": policy_figures(params, split.test, reward),
    }
    write_json(workdir / "results.json", content)
    print(shares_table(content["test"], made.arms), table(content["test"]), sep="\n\n")
    print(f"{len(split.train)} queries in {seconds:.1f} s; policy in {workdir / POLICY}")
    print(f"a choice takes {content['choice_ms']:.3f} ms")
    return content


def train_policy(made: Policy, settings: Fit, queries: Queries, seed: int) -> Params:
    """Parameters of a policy fitted to all the queries.

    Raises:
      UserError: when the queries lack the data of the reward.
    """
    gains = jnp.asarray(queries.rewards(made.reward), jnp.float32)
    params = fit(made, settings, jnp.asarray(queries.embeddings), gains, jax.random.key(seed))
    return jax.block_until_ready(params)


def choice_ms(params: Params, embedding: np.ndarray) -> float:
    """Median milliseconds of a policy's logits for one embedding [1, D], the dispatch included."""
    forward, one = jax.jit(policy.logits), jnp.asarray(embedding)
    jax.block_until_ready(forward(params, one))
    taken = []
    for _ in range(CHOICES):
        start = time.perf_counter()
        jax.block_until_ready(forward(params, one))
        taken.append(time.perf_counter() - start)
    return float(np.median(taken)) * 1e3


def policy_figures(params: Params, queries: Queries, reward: Reward) -> dict[str, Any]:
    """Figures of a policy on queries."""
    policy = probabilities(params, queries.embeddings)
    return scores(queries, policy, queries.rewards(reward))


def plan(config: ConfigDict) -> None:
    """Prints the data that a policy would be trained on.

    Raises:
      UserError: when a field or the data cannot be used.
    """
    reward, settings = make_reward(config), fit_of(config)
    split = read(config)
    made = split.policy(reward, config.hidden)
    print(f"arms: {', '.join(made.arms)}; embeddings: {made.source} of width {made.width}")
    for name, queries in (("train", split.train), ("test", split.test)):
        tasks = (f"{task} {np.sum(queries.tasks == task)}" for task in queries.task_names)
        print(f"{name}: {len(queries)} queries ({', '.join(tasks)})")
    print(f"reward: {reward}")
    print(f"training: {settings}")


def make_reward(config: ConfigDict) -> Reward:
    """The reward of a policy.

    Raises:
      UserError: when a setting is invalid.
    """
    return _build(Reward, "reward", config.reward)


def fit_of(config: ConfigDict) -> Fit:
    """The training settings of a policy.

    Raises:
      UserError: when a setting is invalid.
    """
    return _build(Fit, "fit", config.fit)


def _build(kind: type, group: str, fields: ConfigDict) -> Any:
    try:
        return kind(**fields.to_dict())
    except (TypeError, ValueError) as error:
        raise UserError(f"config.{group}.{error}") from None


def read(config: ConfigDict) -> Split:
    """The queries of a config: of `data`, and of `test` or a share of `data` held out.

    Raises:
      UserError: when they cannot be read, or do not fit each other.
    """
    if not config.data:
        raise UserError("config.data is empty; it must be a folder written by select_data")
    queries = data.load(config.data)
    queries = queries.only(config.arms or queries.arms)
    if len(queries.arms) < 2:
        raise UserError(f"config.arms is {tuple(config.arms)!r}; it must name at least two arms")
    if config.test:
        return Split(queries, _check_source(queries, data.load(config.test).only(queries.arms)))
    order = np.random.default_rng(config.seed).permutation(len(queries))
    count = round(config.heldout * len(queries))
    if not 0 < count < len(queries):
        raise UserError(
            f"config.heldout is {config.heldout!r} of {len(queries)} queries; it must leave some on"
            " both sides"
        )
    return Split(queries.take(order[count:]), queries.take(order[:count]))


def _check_source(train: Queries, test: Queries) -> Queries:
    mine, its = ((queries.source, queries.embeddings.shape[1]) for queries in (train, test))
    if mine != its:
        raise UserError(
            f"config.test has embeddings {its[0]} of width {its[1]}; config.data has {mine[0]} of"
            f" width {mine[1]}"
        )
    return test


def shares_table(figures: dict[str, Any], arms: tuple[str, ...]) -> str:
    """How often the greedy policy takes each arm, by task."""
    head = ["share of queries", *arms]
    return align_columns(
        head, [[task, *(f"{own['shares'][a]:.3f}" for a in arms)] for task, own in figures.items()]
    )


def table(figures: dict[str, Any]) -> str:
    """Reward, and speedup where it was measured, of every way of choosing, by task."""
    fields = [field for field in ("reward", "speedup") if field in figures[ALL]]
    columns = [(field, task) for field in fields for task in figures]
    head = ["", *(f"{field} {task}" for field, task in columns)]
    return align_columns(
        head,
        [
            [way, *(f"{figures[task][field][way]:.3f}" for field, task in columns)]
            for way in figures[ALL]["reward"]
        ],
    )
