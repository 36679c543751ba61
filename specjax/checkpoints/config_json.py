"""Reading the JSON files of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specjax.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """Contents of a JSON file that must be there and be an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"model directory {str(path.parent)!r} has no {path.name}") from None
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also endless numbers, and endless nesting
        raise UserError(f"{str(path)!r} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{str(path)!r} must hold a JSON object, not {type(content).__name__}")
    return content


def note_ignored(name: str | Path, fields: Sequence[str]) -> None:
    """Says in a line which fields of a checkpoint's configuration no one reads."""
    if fields:
        print(f"{name}: ignored in config.json: {', '.join(fields)}")
