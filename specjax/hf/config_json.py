"""Reads the JSON files of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specjax.runtime.errors import UserError
from specjax.runtime.files import check_regular


def read_json(path: Path) -> dict[str, Any]:
    """The contents of a JSON file, which must exist and be an object."""
    check_regular(path)
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
