"""A made-up results.json with every field, consistent enough to be drawn."""

from __future__ import annotations

import math
from typing import Any

from specjax.reporting.table import HANDOVERS

STRATEGIES = {
    # name: (alpha, draft length, temperature)
    "autoregressive": (0.0, 0, 0.0),
    "speculative_3": (0.74, 3, 0.0),
    "speculative_5": (0.74, 5, 0.0),
    "speculative_10": (0.74, 10, 0.0),
    "sampled": (0.0, 0, 1.0),
    "speculative_sampling": (0.7, 3, 1.0),
    "bigram": (0.31, 2, 0.0),
    "max_gram": (0.32, 4, 0.0),
    "lenient": (0.87, 5, 0.0),
    "a <b>strategy</b> & $\\alpha$ of a name that is too long for any plot": (0.9, 4, 0.0),
}
STEP, C = 1.9, 0.05  # ms of a target step, drafter step over it
TOKENS, EXAMPLES, FIXED = 3000, 200, 4.0


def v(width: int) -> float:
    return 1 + 0.07 * (width - 1)


def expected_tokens(alpha: float, length: int) -> float:
    return sum(alpha**i for i in range(length + 1))


def entry(alpha: float, length: int, temperature: float) -> dict[str, Any]:
    """One strategy whose drafts stand independently with `alpha`."""
    gain = expected_tokens(alpha, length)
    predicted = gain / (length * C + v(length + 1))
    speedup = predicted * (1 - 0.03 * length)
    rounds = round(TOKENS / gain)
    seconds = TOKENS * (STEP + 0.1) / speedup / 1e3
    parts = {
        "target": rounds * v(length + 1) * STEP / 1e3,
        "drafter": rounds * length * C * STEP / 1e3,
        "fixed": EXAMPLES * FIXED / 1e3 * 0.2,
    }
    tested = [round(rounds * alpha**i) for i in range(length)]
    positions = [
        {"position": i + 1, "tested": n, "accepted": round(n * alpha), **interval(alpha, n)}
        for i, n in enumerate(tested)
    ]
    flops = {"target": 56e6 * (length + 1) / gain, "drafter": 5e6 * length / gain}
    memory = {"target": 29e6 / gain, "drafter": 2.6e6 * length / gain}
    if not length:
        del flops["drafter"], memory["drafter"]
    made = {
        "tokens": TOKENS, "seconds": seconds, "ms_per_token": seconds / TOKENS * 1e3,
        "ms_per_token_median": seconds / TOKENS * 1e3, "speedup": speedup,
        "speedup_predicted": predicted, "engine_efficiency": speedup / predicted,
        "fixed_ms": FIXED, "compile_seconds": 2.0, "acceptance_rate": alpha,
        "tokens_per_target_call": gain, "calls": {"target": rounds, "drafter": rounds * length},
        "fallback_percent": 0.0, "rollback_percent": 10.0,
        "standardized_walltime_improvement": predicted,
        "standardized_walltime_improvement_measured": predicted,
        "identical_to_target": None if temperature else 1.0, "lossless": alpha != 0.87,
        "baseline": "sampled" if temperature else "autoregressive",
        "differing": None if temperature else 0, "near_ties": None if temperature else 0,
        "quality": {"bleu": (21.0 if temperature else 34.5) - 1.5 * (alpha == 0.87)},
        "acceptance": {
            "rate": None, "low": None, "high": None, "tested": 0, "analytic": None,
            "by_position": [], "along_text": [],
        },
        "rounds": {"count": rounds, "tokens_per_round": {"1": rounds}, "stop_reasons": {}},
        "handovers": {
            field: 72.81 if form.endswith("f") else 21_402 for _, field, form in HANDOVERS
        } | {"dropped": max(rounds * (length + 1) - TOKENS, 0)},
        "predicted": {
            "theorem_3_8": 1.0, "with_v": 1.0, "calls_alone": 1.0, "priced": "in place",
            "round_ms": STEP, "calls_ms": STEP, "measured": 1.0, "error_percent": 0.0,
        },
        "time": {"total": seconds, **parts, "rest": seconds - sum(parts.values())},
        "operations": {
            name: make_counts(flops[name], memory[name]) for name in flops
        } | {"total": make_counts(sum(flops.values()), sum(memory.values()))},
    }  # fmt: skip
    if length:
        made["acceptance"] = {
            **interval(alpha, sum(tested)), "tested": sum(tested), "analytic": alpha + 0.004,
            "by_position": positions,
            "along_text": [
                {"from": i, "to": i + 8, "overlap": alpha - 0.004 * i, "positions": 900 - 9 * i}
                for i in range(0, 64, 8)
            ],
        }  # fmt: skip
        shares = [alpha**i * (1 - alpha) for i in range(length)] + [alpha**length]
        made["rounds"] = {
            "count": rounds,
            "tokens_per_round": {str(i + 1): round(s * rounds) for i, s in enumerate(shares)},
            "stop_reasons": {"length": rounds - 30, "eos": 20, "confidence": 10},
        }
        made["predicted"] = {
            "theorem_3_8": gain / (length * C + 1),
            "with_v": predicted,
            "calls_alone": 1.2 * predicted,
            "priced": "in place",
            "round_ms": 1.2 * STEP * (length * C + v(length + 1)),
            "calls_ms": STEP * (length * C + v(length + 1)),
            "measured": speedup,
            "error_percent": 100 * (predicted / speedup - 1),
        }
    return made


def make_counts(flops: float, memory: float) -> dict[str, float]:
    return {"flops": flops, "memory_operations": memory, "intensity": flops / memory}


def interval(rate: float, n: int) -> dict[str, float]:
    half = 1.96 * math.sqrt(rate * (1 - rate) / max(n, 1))
    return {"rate": rate, "low": max(rate - half, 0.0), "high": min(rate + half, 1.0)}


def texts() -> list[dict[str, Any]]:
    """Three examples with markup, a line break, a rejected and a missing token in them."""
    words = ["Zwei", "junge", "Männer", "in", "<blauen>", "Hemden", "&", "lachen\n", "auf", "Wiese"]
    rounds = [
        {
            "drafted": [f" {word}" for word in words[i : i + 3]],
            "accepted": (i + 1) % 4,
            "writer": "drafter" if i % 2 else "bigram",
            "writers": ["bigram", "drafter", "drafter"][: len(words[i : i + 3])]
            if i == 2
            else None,
            "next": f" {words[9 - i]}" if i < 9 else None,
            "next_writer": "target",
        }
        for i in range(10)
    ] + [{"drafted": [], "accepted": 0, "writer": None, "next": "</s>", "next_writer": "target"}]
    source = "translate English to German: Two young men in blue shirts <play> & laugh."
    return [
        {"source": source, "strategy": strategy, "rounds": rounds * repeats}
        for strategy, repeats in (("speculative_3", 1), ("lenient", 3), ("max_gram", 1))
    ]


def roof(size: float, measured: float) -> dict[str, float]:
    bandwidth = 120e9
    bound = size / bandwidth * 1e3
    return {
        "bytes_per_step": size, "bandwidth": bandwidth, "bound_ms": bound,
        "measured_ms": measured, "percent": 100 * bound / measured,
    }  # fmt: skip


def results() -> dict[str, Any]:
    """All of results.json."""
    widths = (1, 2, 3, 4, 5, 6, 11)
    return {
        "environment": {
            "device": "cpu", "platform": "cpu", "devices": 1, "packages": {"jax": "0.10.2"},
        },
        "config": {
            "batch_size": 1, "dtype": "float32", "name": "Multi30k <test>",
            "data": {"path": "https://example.org/test.en.gz"},
        },
        "data": {"name": "Multi30k <test>", "examples": EXAMPLES},
        "models": {
            "target": {"parameters": 27_857_280, "step_ms": STEP},
            "drafter": {"parameters": 2_428_640, "step_ms": STEP * C},
        },
        "strategies": {name: entry(*settings) for name, settings in STRATEGIES.items()},
        "costs": {"greedy": {
            "target": {
                "step_ms": {str(w): STEP * v(w) for w in widths}, "c": 1.0,
                "v": {str(w): v(w) for w in widths},
            },
            "drafter": {"step_ms": {"1": STEP * C}, "c": C, "v": {"1": 1.0}},
        }},
        "roofline": {"target": roof(4 * 29e6, STEP), "drafter": roof(4 * 2.6e6, STEP * C)},
        "texts": texts(),
    }  # fmt: skip


OLD = ("acceptance", "handovers", "rounds", "time", "predicted", "operations", "baseline")
"""Fields of strategies that older results lack."""


def old_results() -> dict[str, Any]:
    """What runs left before they measured all this."""
    found = results()
    for field in ("costs", "roofline", "texts"):
        del found[field]
    for name, each in found["strategies"].items():
        found["strategies"][name] = {k: x for k, x in each.items() if k not in OLD}
    return found
