"""Closed forms of cascade speculative drafting.

Chen et al., "Cascade Speculative Drafting for Even Faster LLM Inference" (2024), section 4. EWIF is
the expected walltime improvement factor: tokens of a round over its time in target steps. For one
drafter of constant acceptance and cost it is `speculative.walltime_improvement` (Corollary 4.2).
Every function raises ValueError on impossible arguments.

Letters: n drafted positions, J stages of a horizontal cascade, M models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count, non_negative, positive, probability
from specjax.theory.speculative import expected_tokens, expected_tokens_by_position, improvement

MODEL_MILLIONS = {"small": 60, "base": 220, "large": 770, "xl": 3000, "xxl": 11_300}
"""Parameters in millions, the call prices of FLAN-T5 in the authors' MS setting."""

PREVIOUS_WORK_COSTS = {"small": 0.02, "base": 0.04, "large": 0.11, "xxl": 1.0}
"""Cost coefficients of their PW setting, measured by Leviathan et al. (2023) for T5 (Table 2)."""


def ewif(alphas: ArrayLike, costs: ArrayLike) -> np.ndarray:
    """EWIF [...] of drafts whose token j has acceptance alphas[..., j] and cost costs[..., j].

    Theorem 4.1; alphas are conditional on acceptance of all earlier drafts, alphas and costs [...,
    n].
    """
    tokens = expected_tokens_by_position(alphas)
    return improvement(tokens, non_negative("costs", costs).sum(axis=-1))


def ewif_gradient(alphas: ArrayLike, costs: ArrayLike) -> np.ndarray:
    """Derivative [..., n] of EWIF by each of alphas [..., n], with costs [..., n] (Corollary 4.3).

    Entry i sums the products of all acceptances but the i-th over every draft that contains it:
    early tokens matter most, so they should come from the best drafter.
    """
    alphas = probability("alphas", alphas)
    others = np.where(np.eye(alphas.shape[-1], dtype=bool), 1.0, alphas[..., None, :])
    tokens = np.triu(np.cumprod(others, axis=-1)).sum(axis=-1)
    return improvement(tokens, non_negative("costs", costs).sum(axis=-1)[..., None])


def horizontal_ewif(alphas: ArrayLike, costs: ArrayLike, lengths: ArrayLike) -> np.ndarray:
    """EWIF [...] of stages that draft one after the other (a horizontal cascade).

    Stage j drafts lengths[..., j] tokens of acceptance alphas[..., j] and cost costs[..., j].
    """
    alphas, lengths = probability("alphas", alphas), count("lengths", lengths)
    all_stand = np.cumprod(alphas**lengths, axis=-1)
    reached = np.concatenate([np.ones_like(all_stand[..., :1]), all_stand[..., :-1]], axis=-1)
    tokens = 1.0 + (reached * (expected_tokens(alphas, lengths) - 1.0)).sum(axis=-1)
    return improvement(tokens, (lengths * non_negative("costs", costs)).sum(axis=-1))


def optimal_horizontal(
    alphas: Sequence[float], costs: Sequence[float], longest: int
) -> tuple[tuple[int, ...], float]:
    """Tokens of each of J drafters in the best draft of at most `longest` tokens, and its EWIF.

    The drafter of highest acceptance goes first, the others follow in order of acceptance. This is
    optimal: giving a position to one drafter at random, with acceptance and cost between the
    two, never helps (Theorem 4.4: in each such probability EWIF is a ratio of affine functions,
    hence monotone), and moving the better of two neighbors ahead keeps the cost and can only
    raise a running product. All splits are tried, about longest^J / J!.
    """
    chances, prices = probability("alphas", alphas), non_negative("costs", costs)
    order = np.argsort(-chances, kind="stable")
    bound = int(count("longest", longest)) + 1
    splits = np.indices((bound,) * len(alphas)).reshape(len(alphas), -1).T
    splits = splits[splits.sum(axis=1) < bound]
    values = horizontal_ewif(chances[order], prices[order], splits)
    best = values.argmax()
    lengths = np.empty(len(alphas), int)
    lengths[order] = splits[best]
    return tuple(lengths.tolist()), float(values[best])


def reviewed_tokens_transform(z: ArrayLike, alpha: ArrayLike, length: ArrayLike) -> np.ndarray:
    """phi(z) = E[z^N], N the tokens of one round at acceptance `alpha`, z between 0 and 1.

    P(N > i) = alpha^i up to `length`, so phi(z) = 1 - (1 - z) (1 + az + ... + (az)^length): the
    paper's form without its cancelling denominators.
    """
    z, alpha = probability("z", z), probability("alpha", alpha)
    return 1.0 - (1.0 - z) * expected_tokens(z * alpha, length)


def vertical_ewif(
    alpha: ArrayLike,
    inner_alpha: ArrayLike,
    steps: ArrayLike,
    length: ArrayLike,
    cost: ArrayLike,
    inner_cost: ArrayLike,
) -> np.ndarray:
    """EWIF of a drafter that is itself accelerated: `steps` inner rounds, then one target review.

    In an inner round the small drafter proposes `length` tokens that the big one accepts with
    `inner_alpha`; the target accepts what comes out with `alpha`. `cost` and `inner_cost` are the
    big and the small drafter's cost coefficients. Equal to
    (1 - alpha phi(alpha)^steps) / (1 - alpha) over 1 + steps cost + steps length inner_cost.
    """
    alpha, inner = probability("alpha", alpha), probability("inner_alpha", inner_alpha)
    steps, length = count("steps", steps), count("length", length)
    phi = reviewed_tokens_transform(alpha, inner, length)
    earlier_steps = expected_tokens(phi, steps) - phi**steps  # sum of phi^m below `steps`
    tokens = 1.0 + alpha * expected_tokens(inner * alpha, length) * earlier_steps
    calls = non_negative("cost", cost) + length * non_negative("inner_cost", inner_cost)
    return improvement(tokens, steps * calls)


def relative_costs(prices: Mapping[str, float], target: str) -> dict[str, float]:
    """Cost coefficient by model: its price over the target's.

    With sizes (`MODEL_MILLIONS`, or parameters) the paper's MS setting, with milliseconds per call
    the measured one.
    """
    if target not in prices:
        raise ValueError(f"target is {target!r}; it must be one of {', '.join(prices)}")
    unit = float(positive(f"the price of {target}", prices[target]))
    return {
        name: float(non_negative(f"the price of {name}", p)) / unit for name, p in prices.items()
    }


def standardized_walltime_improvement(
    tokens: ArrayLike, calls: ArrayLike, costs: ArrayLike
) -> np.ndarray:
    """SWI [...]: `tokens` [...] over the cost of all model runs.

    See docs/methods/cascade.md, "Standardized walltime improvement".

    `calls` and `costs` [..., M] hold runs and cost coefficients per model, the target with cost 1
    included; a run costs the same at any width.
    """
    cost = (non_negative("calls", calls) * non_negative("costs", costs)).sum(axis=-1)
    return non_negative("tokens", tokens) / positive("the cost of all calls", cost)
