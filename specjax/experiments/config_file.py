"""Reading config files by path."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ml_collections import ConfigDict

from specjax.errors import UserError


def read_config(place: str) -> ConfigDict:
    """The config of a Python file, `FILE` or `FILE:WORDS` for its `get_config(WORDS)`.

    Raises:
      UserError: when there is no such file, or it gives no config.
    """
    file, _, words = place.partition(":")
    config = None
    spec = importlib.util.spec_from_file_location("config", file)
    if spec is not None and Path(file).is_file():
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "get_config"):
            config = module.get_config(*filter(None, [words]))
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"config file {file!r} cannot be used; it must be a Python file whose get_config()"
            " returns a ConfigDict"
        )
    return config
