"""Copies beside the most probable nodes: those of a search and a walk by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs
from feature_drafters import make_setting

from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.decoding.strategy import Strategy
from specjax.drafting.dflash import DFlash
from specjax.drafting.grafting import LONGEST, graft_copy
from specjax.drafting.neural import Neural
from specjax.models.dflash import DFlash as Model

V, ROWS, NODES, COUNT = 4, 300, 5, 6

graft = jax.jit(graft_copy, static_argnums=2)


@pytest.fixture(scope="module")
def context() -> Context:
    """Rows with texts of different lengths, over few tokens, so that they repeat themselves."""
    models, params = make_setting("llama", Model)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, 2 + V, size=rng.integers(1, 10)).tolist() for _ in range(ROWS)]
    strategy = Strategy(DFlash(2), temperature=0.0)
    given = inputs(prompts, 14)
    return first_state(decoder(models, strategy, 14), params, *given, strategy.options()).context


def random_trees(seed: int) -> Draft:
    """Trees whose siblings differ, of one to five nodes."""
    rng = np.random.default_rng(seed)
    parents = np.zeros((ROWS, NODES), np.int32)
    tokens = np.zeros((ROWS, NODES), np.int32)
    for row in range(ROWS):
        taken: set[tuple[int, int]] = set()
        while len(taken) < NODES:
            child = int(rng.integers(-1, len(taken))), int(rng.integers(2, 2 + V))
            if child not in taken:
                parents[row, len(taken)], tokens[row, len(taken)] = child
                taken.add(child)
    length = jnp.array(rng.integers(1, NODES + 1, size=ROWS), jnp.int32)
    return Draft.chain(jnp.array(tokens), length).replace(parents=jnp.array(parents))


def copied_by_hand(text: list[int]) -> list[int]:
    """The tokens after the longest earlier match, over and over; none without a match."""
    best, begin = 0, 0
    for end in range(1, len(text)):
        size = 0
        while size < min(end, LONGEST) and text[end - 1 - size] == text[-1 - size]:
            size += 1
        if size > best:
            best, begin = size, end
    period = text[begin:]
    return [period[i % len(period)] for i in range(COUNT)] if best else []


def paths(draft: Draft, row: int) -> list[tuple[int, ...]]:
    """The paths to the nodes of a row, in their order."""
    made: dict[int, tuple[int, ...]] = {-1: ()}
    for node in range(int(draft.length[row])):
        parent = int(draft.tree_parents[row, node])
        made[node] = (*made[parent], int(draft.tokens[row, node]))
    return list(made.values())[1:]


def test_the_copy_goes_on_below_the_last_node_that_it_shares(context):
    draft = random_trees(seed=1)
    whole = jax.device_get(graft(draft, context, COUNT))
    draft, context = jax.device_get((draft, context))
    assert whole.width == NODES + COUNT
    shared = 0
    for row in range(ROWS):
        text = np.asarray(context.tokens[row, : context.length[row]]).tolist()
        copy = copied_by_hand(text)
        before = paths(draft, row)
        prefixes = [tuple(copy[:size]) for size in range(1, len(copy) + 1)]
        added = [path for path in prefixes if path not in before]
        assert paths(whole, row) == before + added
        writers = np.asarray(whole.drafted_by[row, : len(before + added)])
        assert writers.tolist() == [0] * len(before) + [1] * len(added)
        shared += 0 < len(added) < len(copy)
    assert shared > ROWS / 10


def test_copied_nodes_were_fed_to_no_model(context):
    draft = random_trees(seed=2)
    slots = jnp.broadcast_to(jnp.arange(NODES), (ROWS, NODES))
    whole = jax.device_get(graft(draft.replace(slots=slots), context, COUNT))
    there = np.arange(whole.width) < whole.length[:, None]
    assert np.all(whole.node_slots[there & (whole.drafted_by == 1)] == -1)
    assert np.all(whole.node_slots[there & (whole.drafted_by == 0)] >= 0)


def test_a_row_that_has_ended_gets_none(context):
    idle = context.replace(active=jnp.zeros_like(context.active))
    draft = random_trees(seed=3)
    np.testing.assert_array_equal(graft(draft, idle, COUNT).length, draft.length)


def test_its_spec_has_room_for_the_copy():
    spec = DFlash(length=2, nodes=4, copy_length=6).spec
    assert spec.width == 10 and spec.longest == 6 and spec.writers[1] == "copy"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"length": 3, "copy_length": 4}, "copy_length is 4; it must be 0 without nodes"),
        ({"widths": (2, 2), "copy_length": 4}, "copy_length is 4; it must be 0 without nodes"),
        (
            {"widths": (4, 4, 4, 4, 4), "nodes": 900, "copy_length": 200},
            "nodes is 900 and copy_length 200; together they must be at most 1,000",
        ),
    ],
)
def test_copies_are_refused_beside_other_drafts(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        Neural(**fields)
