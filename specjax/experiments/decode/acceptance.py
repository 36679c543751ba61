"""`config.acceptance`: the acceptance rates that a plan predicts speedups from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specjax.decoding.strategy import Strategy
from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path
from specjax.runtime.json_files import read_json

_FIELD = "config.acceptance"


def acceptances(given: str, strategies: Mapping[str, Strategy]) -> dict[str, float]:
    """Acceptance rates by strategy with drafts; "" gives none.

    `given` is one number for all, `NAME=NUMBER,...`, or the results.json of a run: its
    `acceptance_rate` of the strategies of the same names.

    Raises:
      UserError: when it is none of these.
    """
    drafting = [name for name, strategy in strategies.items() if strategy.drafter.spec.width]
    if not given:
        return {}
    if given.endswith(".json"):
        return _read_rates(expand_path(given), drafting)
    if "=" not in given:
        return dict.fromkeys(drafting, _rate(given, given))
    rates = {}
    for part in given.split(","):
        name, _, value = part.strip().partition("=")
        if name not in drafting:
            raise UserError(
                f"{_FIELD} has {name!r}; it must name strategies that draft, {', '.join(drafting)}"
            )
        rates[name] = _rate(value, given)
    return rates


def _rate(value: Any, given: str) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = -1.0
    if not 0 <= rate <= 1:
        raise UserError(
            f"{_FIELD} is {given!r}; it must be a number from 0 to 1, NAME=NUMBER,..., or a"
            " results.json"
        )
    return rate


def _read_rates(file: Path, drafting: list[str]) -> dict[str, float]:
    """The acceptance rates of the strategies in a results.json."""
    if not os.path.isfile(file):
        raise UserError(f"{_FIELD} is {str(file)!r}, which is no file")
    entries = read_json(file).get("strategies")
    entries = entries if isinstance(entries, dict) else {}
    rates = {
        name: _rate(entry.get("acceptance_rate"), str(file))
        for name in drafting
        if isinstance(entry := entries.get(name), dict)
    }
    if not rates:
        raise UserError(
            f"{_FIELD} is {str(file)!r}, which has measured none of {', '.join(drafting)}"
        )
    return rates
