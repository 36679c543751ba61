"""Parallel heads on disk."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parallel_heads import heads_on_target, random_heads
from safetensors.numpy import load_file, save_file

from specjax.hf import heads
from specjax.models.heads import Heads, LoadedHeads
from specjax.runtime.errors import UserError

METADATA = {"count": "3", "d_model": "6", "width": "8", "activation": "relu"}


@pytest.fixture
def file(tmp_path):
    """A file of three random heads of width 6."""
    heads.save(random_heads(3, 6, seed=0), tmp_path / "heads.safetensors")
    return tmp_path / "heads.safetensors"


def test_heads_survive_their_file(file):
    made, again = random_heads(3, 6, seed=0), heads.load(file)
    assert again.heads == made.heads
    jax.tree.map(np.testing.assert_array_equal, again.params, made.params)
    assert [path.name for path in file.parent.iterdir()] == [file.name]  # nothing partial


def test_activation_and_dtype_are_kept_and_chosen(tmp_path):
    shape = Heads(1, 4, 5, "gelu_new")
    heads.save(LoadedHeads(shape, shape.init(jax.random.key(0))), tmp_path / "file")
    again = heads.load(tmp_path / "file", jnp.bfloat16)
    assert again.heads == shape
    assert {leaf.dtype for leaf in jax.tree.leaves(again.params)} == {jnp.dtype(jnp.bfloat16)}


def test_heads_on_the_target_say_so(tmp_path):
    made = heads_on_target(2, 4, sequential=True)
    heads.save(made, tmp_path / "file")
    again = heads.load(tmp_path / "file")
    assert again.heads == made.heads and again.heads.sequential is True
    jax.tree.map(np.testing.assert_array_equal, again.params, made.params)


def test_shapes_are_those_of_what_is_loaded(file):
    found = jax.tree.map(lambda x: (x.shape, x.dtype), heads.shapes(file))
    assert found == jax.tree.map(lambda x: (x.shape, x.dtype), heads.load(file))


def run_refused(file, named: str) -> None:
    with pytest.raises(UserError, match=named) as found:
        heads.load(file)
    assert "\n" not in str(found.value)


def test_a_missing_or_damaged_file_is_refused(file):
    run_refused(file.with_name("nothing"), "nothing' is not a readable safetensors file")
    whole = file.read_bytes()
    for kept in (0, 5, len(whole) - 4):
        file.write_bytes(whole[:kept])
        run_refused(file, "is not a readable safetensors file")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"count": None}, "have no 'count' in their metadata"),
        ({"count": "4"}, "lack the tensor 'head_4.down.bias'"),
        ({"width": "9"}, r"shape \(8, 6\); their metadata asks for \(9, 6\)"),
        ({"width": "wide"}, "unusable metadata"),
        ({"activation": "cube"}, "activation is 'cube'"),
        ({"behind": "2"}, "state_lag is 2; it must be 0 or 1"),
        ({"sequential": "1"}, r"shape \(6, 8\); their metadata asks for \(12, 8\)"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(file, changes, named):
    metadata = {k: v for k, v in (METADATA | changes).items() if v is not None}
    save_file(load_file(file), file, metadata)
    run_refused(file, named)
