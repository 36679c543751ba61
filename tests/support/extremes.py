"""Distributions of which single precision has few digits: certain of a token up to 1e-12."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from specjax.sampling import adjust, make_sampling

ROUNDING = 1e-6
"""Of a probability: the sum of a few roundings of numbers up to 1."""
DIGITS = range(3, 13)
TEMPERATURES = (0.1, 1.0, 2.0)
SMALL, LARGE = (2, 6), 150_000


def certain(size: int, digits: int, seed: int, top: int = 1) -> np.ndarray:
    """Probabilities [V] of one token with 1 - 10^-digits; the others differ by orders."""
    rest = np.exp(4.0 * np.random.default_rng(seed).standard_normal(size))
    rest[top] = 0.0
    made = rest / rest.sum() * 10.0**-digits
    made[top] = 1.0 - 10.0**-digits
    return made


def targets(size: int, digits: int) -> dict[str, np.ndarray]:
    """Distributions that overlap with a certain one of the first token a lot or hardly at all."""
    flat = np.full(size, 0.9 / (size - 1))
    flat[1] = 0.1
    return {
        "flat": flat,
        "the same": certain(size, digits, digits),
        "surer": certain(size, digits + 1, 50 + digits),
        "less sure": certain(size, max(digits - 2, 1), 60 + digits),
        "sure of another": certain(size, digits, 70 + digits, top=0),
    }


def round_probs(probs: np.ndarray, temperature: float) -> np.ndarray:
    """The same as a model has it: from logits in single precision, at a temperature."""
    logits = jnp.asarray(temperature * np.log(np.maximum(probs, 1e-300)), jnp.float32)
    return np.asarray(adjust(logits, make_sampling(temperature)))


def pairs(sizes=SMALL, all_digits=DIGITS) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The drafter's and the target's probabilities [V] of every case."""
    for size, digits in itertools.product(sizes, all_digits):
        temperature = TEMPERATURES[digits % len(TEMPERATURES)]
        q = round_probs(certain(size, digits, digits), temperature)
        for p in targets(size, digits).values():
            yield q, round_probs(p, temperature)


def exact_distribution(probs) -> np.ndarray:
    """In double precision, with a sum of 1."""
    exact = np.asarray(probs, np.float64)
    return exact / exact.sum(axis=-1, keepdims=True)
