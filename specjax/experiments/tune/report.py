"""Reports of a search: tune.json, a table of all candidates, and the flags to set.

`write_config` writes the config of the chosen candidate.
"""

from __future__ import annotations

import json
import math
import pprint
import shlex
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.tune.space import Candidate, Space, flags
from specjax.experiments.tune.trials import END, SWI, Search, Trial, parse_search
from specjax.measuring.environment import environment
from specjax.reporting.table import align_columns, cell
from specjax.runtime.files import write_text
from specjax.runtime.json_files import write_json

FILE = "tune.json"
RUNNING, FINISHED, OUT_OF_TIME = "running", "finished", "out of time"
"""`status` in the file."""


def write(
    workdir: Path,
    config: ConfigDict,
    space: Space,
    search: Search,
    status: str,
    chosen: str | None = None,
) -> dict[str, Any]:
    """Writes the file and returns its content."""
    content = {
        "status": status,
        "chosen": None if chosen is None else chosen_entry(space, search, chosen),
        "strategy": space.strategy,
        "environment": environment(),
        "config": config.to_dict(),
        "table": [line(search, trial) for trial in search.trials.values()],
        "search": search.entry(),
    }
    write_json(workdir / FILE, content)
    return content


def resume_search(workdir: Path, config: ConfigDict) -> tuple[Search, bool] | None:
    """The earlier search of this config in the workdir, and whether it finished.

    None when there is none. The budget may differ: it can be raised.
    """
    try:
        content = json.loads((workdir / FILE).read_text("utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    here = json.loads(json.dumps({"config": config.to_dict(), "environment": environment()}))
    here["config"]["budget_seconds"] = content["config"]["budget_seconds"]
    if any(content[field] != here[field] for field in here):
        return None
    search = parse_search(content["search"])
    for trial in search.trials.values():
        if trial.dropped == END:
            trial.drop("", "")
    return search, content["status"] == FINISHED


def chosen_entry(space: Space, search: Search, name: str) -> dict[str, Any]:
    """The chosen setting and the flags that set it."""
    trial, candidate = search.trials[name], space.candidate(name)
    # No flag makes a chain of a strategy a tree.
    set_by, missing = ([], {}) if candidate.found else flags(space, trial.fields)
    return {
        **line(search, trial),
        "label": candidate.label,
        "spec": dict(candidate.spec),
        "flags": set_by,
        "not_in_config": missing,
    }


def line(search: Search, trial: Trial) -> dict[str, Any]:
    """One line of the table."""
    seconds = trial.seconds_per_token
    return {
        "fields": trial.fields,
        "predicted": trial.predicted,
        "speedup": search.speedup(trial),
        "swi": trial.swi,
        "ms_per_token": None if seconds is None else 1e3 * seconds,
        "examples": trial.examples,
        "quality": trial.quality,
        "dropped": trial.dropped or None,
        "reason": trial.reason or None,
    }


def show(config: ConfigDict, space: Space, content: dict[str, Any]) -> None:
    """Prints the table of all candidates and the chosen one."""
    metrics = list(content["search"]["alone"]["quality"])
    score = "swi" if config.objective == SWI else "predicted"
    head = ["candidate", score, "measured", "ms/token", "examples", *metrics, "out in", "why"]
    baseline = Trial(**content["search"]["alone"])
    named = [("target alone", line(parse_search(content["search"]), baseline))]
    named += zip((candidate.label for candidate in space.candidates), content["table"], strict=True)
    print(align_columns(head, [table_row(name, entry, score, metrics) for name, entry in named]))
    seconds = content["search"]["seconds"]
    if content["status"] == OUT_OF_TIME:
        print(
            f"out of time after {seconds:.0f} s (config.budget_seconds is"
            f" {config.budget_seconds:g}): the best so far"
        )
    print(chosen_words(space, content["chosen"]))
    print(f"{seconds:.0f} s")


def table_row(name: str, entry: dict[str, Any], score: str, metrics: list[str]) -> list[str]:
    return [
        name,
        cell(entry[score], ".2f"),
        cell(entry["speedup"], ".2f"),
        cell(entry["ms_per_token"], ".3f"),
        str(entry["examples"]),
        *(cell(entry["quality"].get(metric), ".2f") for metric in metrics),
        entry["dropped"] or "",
        entry["reason"] or "",
    ]


def worth(chosen: dict[str, Any]) -> str:
    """Describes the chosen setting's value by the objective of the search."""
    if chosen["swi"] is not None:
        gain = chosen["swi"]
        words = f"standardized walltime improvement {gain:.2f}"
    elif chosen["speedup"] is not None:
        gain = chosen["speedup"]
        words = f"{gain:.2f} times as fast as the target alone"
    else:
        return f"predicted {chosen['predicted']:.2f} times as fast as the target alone, not run"
    return words if gain > 1 else f"{words}: decode without a drafter"


def chosen_words(space: Space, chosen: dict[str, Any] | None) -> str:
    """Describes the chosen setting, its value, and the flags that set it."""
    if chosen is None:
        return f"{space.strategy}: no candidate can be chosen"
    choice = f"{space.strategy}: {chosen['label']}, {worth(chosen)}"
    words = [choice, *map(shlex.quote, chosen["flags"])]
    if chosen["not_in_config"]:
        missing = ", ".join(f"{f}={value}" for f, value in chosen["not_in_config"].items())
        words.append(f"no flag can set fields that the config lacks; add to it: {missing}")
    return "\n".join(words)


CHOSEN = "chosen.py"

_TEXT = '''"""The choice of a search; tune.json next to this file has its figures.

    python -m specjax.main --config=chosen.py --workdir=runs/chosen
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config

FIELDS = {fields}


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(**FIELDS)
'''


def write_config(workdir: Path, space: Space, candidate: Candidate) -> Path:
    """Writes the base config with the candidate and the target alone as strategies."""
    file = workdir / CHOSEN
    fields = space.decode.to_dict()
    baseline = {name: fields["strategies"][name] for name in space.alone}
    fields |= {"strategies": {**baseline, space.strategy: dict(candidate.spec)}, "only": ""}
    shown = pprint.pformat(_plain(fields), width=99, sort_dicts=False)
    write_text(file, _TEXT.format(fields=shown))
    return file


def _plain(value: Any) -> Any:
    """Replaces infinite numbers, which have no literal, by the word that configs take."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return "inf" if isinstance(value, float) and math.isinf(value) else value
