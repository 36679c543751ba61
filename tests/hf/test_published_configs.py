"""Configurations of popular models are read, or refused for what they are refused for."""

from __future__ import annotations

import copy

import jax.numpy as jnp
import pytest
from published_configs import read_published

from specjax.hf.families.schema import collect_ignored
from specjax.hf.huggingface import parse_config
from specjax.runtime.errors import UserError

PUBLISHED = read_published()
READ = {name: one for name, one in PUBLISHED.items() if not one.refused}


@pytest.mark.parametrize("name", READ)
def test_a_published_configuration_is_read_and_what_is_ignored_is_named(name: str) -> None:
    one = PUBLISHED[name]
    with collect_ignored() as ignored:
        parse_config("it", copy.deepcopy(one.config), one.generation, jnp.float32)
    assert sorted(ignored.get("config.json", [])) == sorted(one.ignored)
    assert "generation_config.json" not in ignored


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) - set(READ)))
def test_a_configuration_that_is_not_supported_is_refused_in_one_sentence(name: str) -> None:
    one = PUBLISHED[name]
    with pytest.raises(UserError) as caught:
        parse_config("it", copy.deepcopy(one.config), one.generation, jnp.float32)
    assert one.refused in str(caught.value) and "\n" not in str(caught.value)


def test_there_are_enough_of_them() -> None:
    """At least 60 models, of all families that transformers has."""
    families = {one.config["model_type"] for one in READ.values()}
    assert len(READ) >= 60 and len(families) >= 23
