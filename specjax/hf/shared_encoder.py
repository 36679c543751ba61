"""Drafters that share their target's encoder of audio or images.

Distil-Whisper (Gandhi et al. 2023, "Distil-Whisper: Robust Knowledge Distillation via Large-Scale
Pseudo Labelling", section 3.2) copies and freezes the encoder of its teacher. Where weights are the
same, so are its states: a decode computes them once, and the drafter's copy is released.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax.models.base import LanguageModel, Params
from specjax.models.with_input import BORROWED, OWN, InputModel, drop_encoder, select_encoder


def with_encoder_of(target: Any, drafter: Any) -> Any:
    """The drafter without an encoder of its own where that equals the target's, else as it is.

    Both are what `specjax.load` returns. Of a drafter without parameters they are taken to be
    equal where their shapes are.
    """
    borrowing = _borrow_encoder(target.model, drafter.model)
    if borrowing is drafter.model or target.mesh != drafter.mesh:
        return drafter
    if drafter.params is None:
        return dataclasses.replace(drafter, model=borrowing)
    if not _equal(select_encoder(target.params), select_encoder(drafter.params)):
        return drafter
    params = drop_encoder(drafter.params)
    return dataclasses.replace(drafter, model=borrowing, params=params)


def _borrow_encoder(target: LanguageModel, drafter: LanguageModel) -> LanguageModel:
    """The drafter without an encoder if its own is of the shape of the target's, else as it is."""
    if not isinstance(target, InputModel) or not isinstance(drafter, InputModel):
        return drafter
    ours, theirs = drafter.config, target.config
    if ours.encoder_use != OWN or ours.encoder_shape != theirs.encoder_shape:
        return drafter
    return drafter.with_encoder(BORROWED)


def _equal(first: Params, second: Params) -> bool:
    """Whether two trees of the same shapes hold the same numbers."""
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(a.dtype == b.dtype and bool(jnp.array_equal(a, b)) for a, b in pairs)
