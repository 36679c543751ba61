"""What HBM bandwidth alone says of Leviathan et al. (2023), Table 2, beside what they measured.

    python benchmarks/bandwidth_bound.py

T5-XXL on one TPU v4, En-De: every call reads all weights that it uses and its whole cache, in
bfloat16. Then how many tokens a call feeds on other chips before arithmetic takes longer than its
reads, which is how large a tree may be. From shapes alone; nothing is compiled, downloaded or run.
docs/lab_book/accelerators.md has the table.
"""

from __future__ import annotations

import jax.numpy as jnp

from specjax.accelerators.chips import CHIPS
from specjax.accelerators.predict import Share, build_round, free_tokens, speedup
from specjax.accelerators.program import WeightReads
from specjax.contracts.spec import Call
from specjax.drafting.neural import Neural
from specjax.hf.descriptions import describe
from specjax.measuring.roofline import step_bytes

SOURCE, NEW = 256, 128
"""Tokens of the longest prompts and outputs, as in configs/t5xxl_ende.py."""

TABLE = (
    # drafter, temperature, draft length, acceptance rate, measured speedup
    ("small", 0, 7, 0.75, 3.4),
    ("base", 0, 7, 0.80, 2.8),
    ("large", 0, 7, 0.82, 1.7),
    ("small", 1, 7, 0.62, 2.6),
    ("base", 1, 5, 0.68, 2.4),
    ("large", 1, 3, 0.71, 1.4),
)


def share(name: str) -> Share:
    """A model whole on one device, its weights read at every call."""
    model = describe(f"google/t5-v1_1-{name}", jnp.bfloat16)
    weights = int(step_bytes(model, 1, 0, 0))
    cache = int(step_bytes(model, 1, NEW, SOURCE)) - weights
    return Share(model, WeightReads(weights, weights), cache, ways=1, rows=1)


def main() -> None:
    """Prints the table."""
    chip, shares = CHIPS["v4"], {name: share(name) for name in ("xxl", "small", "base", "large")}
    baseline = build_round([Call("xxl", 1, 1)], shares, NEW, SOURCE).seconds(chip)
    print(f"autoregressive: {baseline * 1e3:.2f} ms a token")
    for drafter, temperature, length, alpha, measured in TABLE:
        calls = (*Neural(length, drafter).spec.calls, Call("xxl", length + 1, length + 1))
        took = build_round(calls, shares, NEW, SOURCE).seconds(chip)
        found = speedup(alpha, length, took, baseline)
        print(
            f"{drafter:5} T={temperature} K={length}: {took * 1e3:.2f} ms a round, predicted"
            f" {found:.2f}, measured {measured}"
        )
    for name, chip in CHIPS.items():
        print(f"{name}: {free_tokens(shares['xxl'], 'xxl', chip, NEW, SOURCE)} tokens free")


if __name__ == "__main__":
    main()
