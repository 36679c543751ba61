"""Scores of choices: rewards and speedups of policies, single arms, the best choice, chance.

A way of choosing is given by its probabilities [N, k]: a sampling policy has its exact expectation.
 Letters: N queries, k arms.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.base import Params
from specjax.selection.data import Queries, Times
from specjax.selection.policy import logits

GREEDY, DYNAMIC, ORACLE, RANDOM = "policy_greedy", "policy_dynamic", "oracle", "random"
"""Ways of choosing in addition to every single arm."""

ALL = "all"
"""Name of all tasks together, next to the name of every task."""

_logits = jax.jit(logits)


def probabilities(params: Params, embeddings: np.ndarray) -> np.ndarray:
    """A policy's probabilities of the arms [N, k] at embeddings [N, D], float64."""
    probs = jax.nn.softmax(_logits(params, jnp.asarray(embeddings)))
    return np.asarray(probs, np.float64)


def best(values: np.ndarray) -> np.ndarray:
    """Probabilities [N, k] of taking the arm of the largest value [N, k], the first on ties."""
    return np.eye(values.shape[1])[np.argmax(values, axis=1)]


def ways(arms: tuple[str, ...], policy: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Every way of choosing: the policy's two, the best by `values` [N, k], chance, single arms."""
    shape = values.shape
    singles = {
        arm: np.broadcast_to(np.eye(shape[1])[place], shape) for place, arm in enumerate(arms)
    }
    return {
        GREEDY: best(policy),
        DYNAMIC: policy,
        ORACLE: best(values),
        RANDOM: np.full(shape, 1 / shape[1]),
        **singles,
    }


def mean_reward(probs: np.ndarray, rewards: np.ndarray) -> float:
    """Mean expected reward."""
    return float(np.mean(np.sum(probs * rewards, axis=1)))


def expected_speedup(probs: np.ndarray, times: Times) -> float:
    """Expected speed over the target alone: the ratio of milliseconds per token, of totals."""
    baseline = times.seconds[:, -1].sum() / times.tokens[:, -1].sum()
    seconds = np.sum(probs * times.seconds[:, :-1])
    return float(baseline / (seconds / np.sum(probs * times.tokens[:, :-1])))


def scores(queries: Queries, policy: np.ndarray, rewards: np.ndarray) -> dict[str, Any]:
    """Figures by task and of all tasks together.

    `shares` of the arms that the greedy policy takes, mean `reward` and, if measured, `speedup` by
    way of choosing, and `best_single`, the best arm by either when always taken. The oracle is the
    best choice by the figure of its row.
    """
    groups = {ALL: np.arange(len(queries))}
    if len(queries.task_names) > 1:
        groups |= {task: np.flatnonzero(queries.tasks == task) for task in queries.task_names}
    return {
        name: _of_group(queries.take(index), policy[index], rewards[index])
        for name, index in groups.items()
    }


def _of_group(queries: Queries, policy: np.ndarray, rewards: np.ndarray) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "queries": len(queries),
        "shares": dict(zip(queries.arms, best(policy).mean(axis=0).tolist(), strict=True)),
        "reward": {
            way: mean_reward(probs, rewards)
            for way, probs in ways(queries.arms, policy, rewards).items()
        },
    }
    if queries.times is not None:
        choices = ways(queries.arms, policy, queries.times.speedups)
        figures["speedup"] = {way: expected_speedup(p, queries.times) for way, p in choices.items()}
    figures["best_single"] = {
        field: max(queries.arms, key=figures[field].__getitem__)
        for field in ("reward", "speedup")
        if field in figures
    }
    return figures
