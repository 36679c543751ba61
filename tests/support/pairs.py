"""What configs of the tiny trained pair (the fixture `pair`) have in common."""

from __future__ import annotations

from pathlib import Path


def pair_fields(pair: Path) -> dict[str, str]:
    """The models, the texts and their metric."""
    return {
        "target": str(pair / "target"),
        "drafter": str(pair / "drafter"),
        "source_file": str(pair / "source.txt"),
        "reference_file": str(pair / "reference.txt"),
        "metric": "bleu",
    }
