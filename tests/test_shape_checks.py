"""Shapes in annotations are checked while tests run, and never else."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import types
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from shape_checks import CHECKED, has_shape

from specjax.contracts.draft import Draft
from specjax.contracts.rule import count_leading

PASSED = jnp.ones((2, 3), bool)

USE = f"""
import importlib, json, sys
import jax.numpy as jnp
for name in {CHECKED}:
    importlib.import_module(name)
from specjax.contracts.rule import count_leading
count = count_leading(jnp.ones((2, 3), bool), jnp.ones(1, jnp.int32))
print(json.dumps([count.tolist(), "beartype" in sys.modules]))
"""


def check_modules() -> Iterator[str]:
    for name in CHECKED:
        yield name
        path = getattr(importlib.import_module(name), "__path__", [])
        yield from (found.name for found in pkgutil.iter_modules(path, f"{name}."))


def annotations(module: types.ModuleType) -> Iterator[str]:
    """Those of the functions and methods that a module defines."""
    for one in vars(module).values():
        members = vars(one).values() if inspect.isclass(one) else [one]
        for member in members:
            function = getattr(member, "fget", getattr(member, "__func__", member))
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                yield from function.__annotations__.values()


def test_arguments_of_another_shape_or_dtype_are_caught():
    for length in (jnp.ones(1, jnp.int32), jnp.ones((2, 1), jnp.int32), jnp.ones(2)):
        with pytest.raises(TypeCheckError, match="length"):
            count_leading(PASSED, length)


def test_arrays_of_numpy_are_taken_and_their_shapes_checked():
    assert count_leading(np.ones((2, 3), bool), np.array([1, 3], np.int32)).tolist() == [1, 3]
    for length in (np.ones(1, np.int32), np.ones(2)):
        with pytest.raises(TypeCheckError, match="length"):
            count_leading(PASSED, length)


def test_arguments_are_checked_while_a_program_is_traced():
    with pytest.raises(TypeCheckError, match="length"):
        jax.jit(count_leading)(PASSED, jnp.ones(1, jnp.int32))


def test_results_of_another_shape_are_caught():
    draft = Draft.chain(jnp.ones((2, 3), jnp.int32)).replace(parents=jnp.ones(2, jnp.int32))
    with pytest.raises(TypeCheckError, match="return value"):
        _ = draft.tree_parents


def test_every_shape_is_valid():
    """One that is not would be passed over without a word."""
    count = 0
    for module in map(importlib.import_module, check_modules()):
        for hint in annotations(module):
            if "[Array, " in str(hint):
                count += has_shape(eval(hint, vars(module)))
    assert count > 500


def test_rows_may_be_mapped_over():
    assert jax.vmap(count_leading)(PASSED[None], jnp.ones((1, 2), jnp.int32)).shape == (1, 2)


def test_nothing_is_checked_outside_of_tests():
    line = [sys.executable, "-c", USE]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == [[1, 1], False]
