"""Reads config files by path."""

from __future__ import annotations

import importlib.util
import os
import traceback
from importlib.machinery import SourceFileLoader
from types import ModuleType

from ml_collections import ConfigDict

from specjax.runtime.errors import UserError
from specjax.runtime.files import shorten_path

_MUST_BE = "it must be a Python file whose get_config() returns a ConfigDict"


def read_config(place: str) -> ConfigDict:
    """The config of a Python file, `FILE` or `FILE:WORDS` for its `get_config(WORDS)`.

    Each call runs the file as a new module, without state of another config.

    Raises:
      UserError: when there is no such file, it fails, or it gives no config.
    """
    file, _, words = place.partition(":")
    if not os.path.isfile(file):
        reason = "is not a file" if os.path.exists(file) else "does not exist"
        raise UserError(f"config file {shorten_path(file)!r} {reason}; {_MUST_BE}")
    try:
        config = _config_of(file, words)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # any error here comes from the file
        raise UserError(
            f"config file {file!r} fails{_place(file, error)}: {_words(error)}"
        ) from None
    if not isinstance(config, ConfigDict):
        outcome = f"returns {type(config).__name__}" if config is not None else "gives none"
        raise UserError(f"config file {file!r} cannot be used, it {outcome}; {_MUST_BE}")
    return config


def _config_of(file: str, words: str) -> object:
    """The value of the file's `get_config`; None when there is no such function."""
    loader = SourceFileLoader("config", file)
    spec = importlib.util.spec_from_loader("config", loader)
    if spec is None:
        return None
    module: ModuleType = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    get_config = getattr(module, "get_config", None)
    return get_config(*filter(None, [words])) if callable(get_config) else None


def _place(file: str, error: BaseException) -> str:
    """The last line of the config file that the error went through."""
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}" if error.lineno else ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" in line {lines[-1]}" if lines else ""


def _words(error: BaseException) -> str:
    """The error message in one line."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return " ".join([f"{type(error).__name__}:", *text.split()]).removesuffix(":")
