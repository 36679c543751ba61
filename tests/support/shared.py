"""Real checkpoints and text beside the repository, for tests that can use them."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"
MODELS, DATA = SHARED / "models", SHARED / "data"

needs_shared = pytest.mark.skipif(
    not (MODELS / "t5-ende-target").is_dir() or not (DATA / "multi30k").is_dir(),
    reason="needs the real checkpoints and text in ../shared",
)

PREFIX = "translate English to German: "
