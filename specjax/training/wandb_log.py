"""Weights & Biases beside TensorBoard, for who asks for it (the extra `wandb`)."""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specjax.errors import UserError

ID = "wandb_id.txt"
"""In the workdir: the run's id, so that one that goes on is the same run there."""

MODE = "WANDB_MODE"
"""wandb's own variable; here a run is offline without it, as nothing may wait for a network."""


def check_installed(field: str, project: str) -> None:
    """Refuses a project when the package is missing.

    Raises:
      UserError: saying how to get it.
    """
    if project and importlib.util.find_spec("wandb") is None:
        raise UserError(
            f"{field} is {project!r}, but wandb is not installed; it must be empty, or the extra is"
            " needed: pip install 'specjax[wandb]'"
        )


def start(project: str, name: str, settings: Mapping[str, Any], workdir: Path) -> Any:
    """wandb's run, new or gone on with; its files are in `workdir`/wandb."""
    import wandb

    file = workdir / ID
    if not file.exists():
        file.write_text(secrets.token_hex(8), "utf-8")
    return wandb.init(
        project=project,
        name=name,
        config=dict(settings),
        dir=str(workdir),
        id=file.read_text("utf-8"),
        resume="allow",
        mode=os.environ.get(MODE, "offline"),
    )
