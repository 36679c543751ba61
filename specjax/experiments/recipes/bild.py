"""Shared recipes of the Big Little Decoder configs (Kim et al. 2023, section 4)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    bild_spec,
    decode_config,
    neural_spec,
)
from specjax.runtime.errors import UserError

NUCLEUS = {"temperature": 1.0, "top_p": 0.8}
"""Sampling settings of Table 5."""

WINDOWS = (3, 5, 7, 9)
"""Draft lengths of the baselines without a fallback."""


def bild_config(
    fallback: Sequence[float], rollback: Sequence[float], aligned: str = "", **changes: Any
) -> ConfigDict:
    """BiLD and lossless decoding with each drafter, BiLD's ablations, and their sweep.

    `aligned` is the directory or hub id of a drafter that was trained on the target's outputs;
    empty: the other one alone. Ablations and sampling take it if there is one. Decodes at the
    middle of the thresholds; `configs/sweep.py` takes all of them.
    """
    middle = fallback[len(fallback) // 2], rollback[len(rollback) // 2]
    thresholds = {"fallback": tuple(fallback), "rollback": tuple(rollback)}
    strategies: dict[str, Any] = {"autoregressive": AUTOREGRESSIVE}
    sweep: dict[str, Any] = {}
    models = _models(aligned)
    for ending, model in models.items():
        strategies[f"bild{ending}"] = bild_spec(*middle, model=model)
        strategies[f"speculative{ending}"] = neural_spec(model, WINDOWS[0])
        sweep[f"bild{ending}"] = thresholds
        sweep[f"speculative{ending}"] = {"length": WINDOWS}
    model = _best(models)
    strategies |= {
        "no_rollback": bild_spec(middle[0], "inf", model=model),
        "no_fallback": bild_spec(0.0, middle[1], model=model, length=WINDOWS[1]),
        "nucleus": {"drafter": "none", **NUCLEUS},
        "bild_nucleus": bild_spec(*middle, model=model, **NUCLEUS),
        "speculative_nucleus": neural_spec(model, WINDOWS[0], **NUCLEUS),
    }
    sweep |= {
        "no_rollback": {"fallback": tuple(fallback)},
        "no_fallback": {"length": WINDOWS, "rollback": tuple(rollback)},
    }
    return decode_config(strategies=strategies, sweep=sweep, drafters=_others(aligned), **changes)


def side_by_side_config(
    fallback: Sequence[float],
    rollback: Sequence[float],
    window: int,
    aligned: str = "",
    verify_eos: bool = False,
    **changes: Any,
) -> ConfigDict:
    """Every point of the same families as a separate strategy of one decode.

    BiLD drafts up to `window` tokens. Names contain the fallback in percent and the rollback.
    """
    models = _models(aligned)
    common = {"length": window, "verify_eos": verify_eos}
    points = [(f"{low * 100:g}_{high:g}", low, high) for low in fallback for high in rollback]
    strategies: dict[str, Any] = {"autoregressive": AUTOREGRESSIVE}
    for ending, model in models.items():
        for length in WINDOWS:
            strategies[f"speculative{ending}_{length}"] = neural_spec(model, length)
        for name, *thresholds in points:
            strategies[f"bild{ending}_{name}"] = bild_spec(*thresholds, model=model, **common)
    common["model"] = _best(models)
    for low in fallback:
        strategies[f"no_rollback_{low * 100:g}"] = bild_spec(low, "inf", **common)
    for length, high in itertools.product((*WINDOWS[1:-1], window), rollback):
        strategies[f"no_fallback_{length}_{high:g}"] = bild_spec(
            0.0, high, **(common | {"length": length})
        )
    return decode_config(strategies=strategies, drafters=_others(aligned), **changes)


def _models(aligned: str) -> dict[str, str]:
    """Names of the drafters, by the ending of their strategies' names."""
    return {"": "drafter"} | ({"_aligned": "aligned"} if aligned else {})


def _best(models: dict[str, str]) -> str:
    """The drafter of ablations: the aligned one if there is one."""
    return models.get("_aligned", models[""])


def _others(aligned: str) -> dict[str, str]:
    return {"aligned": aligned} if aligned else {}


def early_exit_config(
    method: str,
    *,
    fallback: Sequence[float],
    rollback: Sequence[float],
    threshold: Sequence[float],
    tau: Sequence[float],
    **changes: Any,
) -> ConfigDict:
    """The target's first layer drafting for BiLD and for lossless decoding, or CALM; their sweep.

    `method` is "bild" or "calm": each needs a target trained for it.

    Raises:
      UserError: when it is another.
    """
    strategies: dict[str, Any] = {"autoregressive": AUTOREGRESSIVE}
    sweep: dict[str, Any] = {}
    if method == "bild":
        middle = fallback[len(fallback) // 2], rollback[len(rollback) // 2]
        strategies["bild"] = bild_spec(*middle, exit=1)
        strategies["speculative"] = {"drafter": "early_exit", "exit": 1, "length": WINDOWS[0]}
        sweep["bild"] = {"fallback": tuple(fallback), "rollback": tuple(rollback)}
        sweep["speculative"] = {"length": WINDOWS}
    elif method == "calm":
        middle = {"threshold": threshold[len(threshold) // 2], "tau": tau[len(tau) // 2]}
        strategies["calm"] = {"reader": "calm", **middle}
        sweep["calm"] = {"threshold": tuple(threshold), "tau": tuple(tau)}
    else:
        raise UserError(f"the config's method is {method!r}; it must be 'bild' or 'calm'")
    return decode_config(strategies=strategies, sweep=sweep, **changes)
