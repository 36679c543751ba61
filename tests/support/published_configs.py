"""Configurations of published models at small sizes: `tests/hf/published_configs.json`.

A model's `config` has the fields of its `config.json`, over a shape that others share; `generation`
holds its `generation_config.json`, if it has one. `ignored` are the fields that a load must name,
and `refused` is part of the sentence of a model that is not read yet: without it, it must load.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "hf" / "published_configs.json"


@dataclasses.dataclass(frozen=True)
class Published:
    """What the files of a model say, and what must come of them."""

    config: dict[str, Any]
    generation: dict[str, Any] | None
    ignored: list[str]
    refused: str  # empty: it loads


def read_published() -> dict[str, Published]:
    """All of them by the names of their repositories."""
    content = json.loads(FILE.read_text("utf-8"))
    return {
        name: Published(
            config=content["shapes"].get(entry.get("shape"), {}) | entry["config"],
            generation=entry.get("generation"),
            ignored=entry["ignored"],
            refused=entry.get("refused", ""),
        )
        for name, entry in content["models"].items()
    }
