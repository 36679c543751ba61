"""Shapes in annotations are checked while tests run, and never else."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError
from shape_checks import CHECKED

from specjax.contracts.draft import Draft
from specjax.contracts.rule import leading_run

PASSED = jnp.ones((2, 3), bool)

USE = f"""
import importlib, json, sys
import jax.numpy as jnp
for name in {CHECKED}:
    importlib.import_module(name)
from specjax.contracts.rule import leading_run
count = leading_run(jnp.ones((2, 3), bool), jnp.ones(1, jnp.int32))
print(json.dumps([count.tolist(), "beartype" in sys.modules]))
"""


def test_arguments_of_another_shape_or_dtype_are_caught():
    for length in (jnp.ones(1, jnp.int32), jnp.ones((2, 1), jnp.int32), jnp.ones(2)):
        with pytest.raises(TypeCheckError, match="length"):
            leading_run(PASSED, length)


def test_arguments_are_checked_while_a_program_is_traced():
    with pytest.raises(TypeCheckError, match="length"):
        jax.jit(leading_run)(PASSED, jnp.ones(1, jnp.int32))


def test_results_of_another_shape_are_caught():
    draft = Draft.chain(jnp.ones((2, 3), jnp.int32)).replace(parents=jnp.ones(2, jnp.int32))
    with pytest.raises(TypeCheckError, match="return value"):
        _ = draft.tree_parents


def test_rows_may_be_mapped_over():
    assert jax.vmap(leading_run)(PASSED[None], jnp.ones((1, 2), jnp.int32)).shape == (1, 2)


def test_nothing_is_checked_outside_of_tests():
    line = [sys.executable, "-c", USE]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == [[1, 1], False]
