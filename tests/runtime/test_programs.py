"""Programs that are compiled side by side."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.runtime.programs import side_by_side


@functools.partial(jax.jit, static_argnames="times")
def scale(x: jax.Array, times: int) -> jax.Array:
    return x * times


def test_a_call_finds_what_was_compiled_ahead_of_it() -> None:
    compiled: list[str] = []

    def hear(event: str, seconds: float, **_: object) -> None:
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    x = jnp.ones(3)
    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        compilers = {
            str(n): functools.partial(lambda n: scale.lower(x, n).compile(), n) for n in (5, 6, 7)
        }
        seconds = dict(side_by_side(compilers))
        assert set(seconds) == set(compilers) and min(seconds.values()) > 0
        assert len(compiled) == 3
        assert np.asarray(scale(x, 6)).tolist() == [6.0] * 3
        assert len(compiled) == 3
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)


def test_what_does_not_compile_says_so() -> None:
    def fail() -> None:
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        list(side_by_side({"good": lambda: None, "bad": fail}))
