"""Arms and strategies of the configs of context-aware assistant selection.

See docs/methods/selection.md, "Experiments".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.experiments.config.defaults import AUTOREGRESSIVE, neural_spec
from specjax.runtime.errors import UserError

LENGTH = 7
"""Draft length of the paper's experiments."""

NONE = "none"
"""The arm without drafts.

Not called `autoregressive`: that strategy is greedy in every decode config, while arms may sample.
So a policy serves any temperature.
"""

Arms = tuple[dict[str, str], dict[str, dict[str, Any]]]
"""Drafters of a config, name -> directory or hub id, and its arms, name -> strategy."""

SPLITS = {
    "train": ("train", 0.0, {}),
    "test": ("test", 0.0, {"repeats": 3}),
    "test_sampled": ("test", 1.0, {"repeats": 3}),
}
"""Splits of offline data: source split, temperature of the arms, changed fields."""


def offline_split(name: str) -> tuple[str, float, dict[str, Any]]:
    """An entry of `SPLITS`.

    Raises:
      UserError: when there is no such split.
    """
    if name not in SPLITS:
        raise UserError(f"the split is {name!r}; it must be one of {', '.join(SPLITS)}")
    return SPLITS[name]


def parse_arms(words: str, temperature: float = 0.0, length: int = LENGTH) -> Arms:
    """Parses comma-separated arms of a config flag.

    `name=DIR_OR_HUB_ID` is a drafter, `exit=2` the target's first two decoder layers, `none` no
    drafter.

    Raises:
      UserError: when a word is none of these.
    """
    drafters, arms = {}, {}
    for word in filter(None, words.split(",")):
        name, equals, value = word.partition("=")
        if word == NONE:
            arms[NONE] = undrafted_spec(temperature)
        elif name == "exit" and value.isdigit():
            arms[f"exit_{value}"] = early_exit(int(value), temperature, length)
        elif name not in ("", "exit") and equals:
            drafters[name] = value
            arms[name] = neural_spec(name, length, temperature)
        else:
            raise UserError(
                f"arms are {words!r}, with {word!r}; each must be name=directory, exit=layers or"
                f" {NONE}"
            )
    return drafters, arms


def undrafted_spec(temperature: float) -> dict[str, Any]:
    """The arm without a drafter."""
    return AUTOREGRESSIVE | _make_sampling_fields(temperature)


def early_exit(layers: int, temperature: float, length: int = LENGTH) -> dict[str, Any]:
    """The arm that drafts with the target's first decoder layers."""
    return {
        "drafter": "early_exit",
        "exit": layers,
        "length": length,
        **_make_sampling_fields(temperature),
    }


def _make_sampling_fields(temperature: float) -> dict[str, Any]:
    return {"temperature": temperature} if temperature else {}


def choices(
    arms: Mapping[str, Mapping[str, Any]], policy: str = "", oracle: str = ""
) -> dict[str, dict[str, Any]]:
    """Strategies of a decode: each arm alone, and every way of choosing among them.

    `policy` is a folder written by the job `select`, `oracle` its file of best choices; without
    them their strategies are left out.
    """
    names = sorted(arms)  # as in a policy
    strategies = {"autoregressive": AUTOREGRESSIVE, **arms}
    if policy:
        strategies["policy_greedy"] = {"drafter": "selected", "policy": policy, "mode": "greedy"}
        strategies["policy_dynamic"] = {"drafter": "selected", "policy": policy, "mode": "dynamic"}
    if oracle:
        strategies["oracle"] = {
            "drafter": "selected",
            "arms": names,
            "mode": "fixed",
            "choices": oracle,
        }
    strategies["random"] = {"drafter": "selected", "arms": names, "mode": "random"}
    strategies["online"] = {"drafter": "selected", "arms": names, "mode": "online"}
    return strategies


_SETTINGS = {"policy": str, "oracle": str, "temperature": float, "length": int, "task": str}


def parse_choices(
    words: str, arms: str, *more: str, **defaults: Any
) -> tuple[dict[str, str], dict[str, dict[str, Any]], dict[str, Any]]:
    """Parses drafters, strategies and other settings of a decode from config flags.

    Args:
      words: settings as `name=value` with commas between: `policy` and `oracle` of `choices`,
        `temperature` and `length` of the arms.
      arms: as for `parse_arms`.
      more: names of other settings.
      defaults: of settings that are not given.

    Raises:
      UserError: when a word is no setting, or its value has the wrong type.
    """
    allowed = ("policy", "oracle", "temperature", "length", *more)
    settings = defaults | _parse_words(words, allowed)
    guides = {name: settings.pop(name, "") for name in ("policy", "oracle")}
    how = {name: settings.pop(name) for name in ("temperature", "length") if name in settings}
    drafters, strategies = parse_arms(arms, **how)
    return drafters, choices(strategies, **guides), settings


def _parse_words(words: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    settings = {}
    for word in filter(None, words.split(",")):
        name, _, value = word.partition("=")
        try:
            if name not in allowed:
                raise ValueError
            settings[name] = _SETTINGS[name](value)
        except ValueError:
            raise UserError(
                f"settings are {words!r}, with {word!r}; they are {', '.join(allowed)}, as"
                " name=value"
            ) from None
    return settings
