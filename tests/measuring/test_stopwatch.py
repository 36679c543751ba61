"""Loops of calls begin with caches that were filled once."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from exits import MODELS, PARAMS

from specjax.contracts.spec import Call
from specjax.measuring import stopwatch
from specjax.measuring.stopwatch import Stopwatch
from specjax.models.altup import AltUp
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope


@pytest.mark.slow
def test_one_prefill_serves_all_loops_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no loop has the encoder in its program."""
    prefill, filled = stopwatch._prefill, []

    def count_calls(model: Any, *args: Any, **more: Any) -> Any:
        filled.append(model)
        return prefill(model, *args, **more)

    monkeypatch.setattr(stopwatch, "_prefill", count_calls)
    watch = Stopwatch({"t5": MODELS["t5"]}, {"t5": PARAMS["t5"]}, prompt=4, capacity=16)
    timing = watch.timing([(Call("t5", 1, 1),), (Call("t5", 2, 1), Call("t5", 1, 1))])
    assert filled == [MODELS["t5"]]
    for run in timing.runs:
        text = run.func.lower(*run.args, jnp.int32(1)).as_text(debug_info=True)
        scopes = re.sub(r'[^"]*\.py"', "", text)  # locations name encoder_decoder.py
        assert "encode" not in scopes
    timing.take()
    assert timing.milliseconds().shape == (1, 2)


@pytest.mark.slow
def test_a_call_that_resumes_gets_states_of_all_residual_streams() -> None:
    model = Causal(
        CausalConfig(
            "gemma3n_text", 12, d_model=8, d_ff=8, num_layers=2, num_heads=2, num_kv_heads=1,
            d_head=4, max_positions=32, rope=Rope(4), altup=AltUp(3),
        )
    )  # fmt: skip
    params = {"it": model.init(jax.random.key(0))}
    watch = Stopwatch({"it": model}, params, prompt=4, capacity=16)
    timing = watch.timing([(Call("it", 2, 2, resume_from=1),)])
    timing.take()
    assert timing.milliseconds().shape == (1, 1)
