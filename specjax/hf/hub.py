"""Locates checkpoints: directories, GGUF files, hub ids in the cache or to download."""

from __future__ import annotations

import importlib.resources
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from huggingface_hub.utils import validate_repo_id

from specjax.hf.families.schema import CONFIG_FILE
from specjax.hf.gguf.header import is_gguf
from specjax.runtime.errors import UserError
from specjax.runtime.files import check_regular, expand_path, shorten_path

SMALL_FILES = ("*.json", "*.model", "*.spm", "*.txt", "*.jinja")
FILES = ("model*.safetensors", *SMALL_FILES)
"""Patterns of downloaded files of a hub id: all, or without the weights.

Some repositories hold the weights a second time under another name (`consolidated.safetensors`).
"""

SHAPES: Mapping[str, dict[str, Any]] = json.loads(
    importlib.resources.files("specjax.hf").joinpath("known_shapes.json").read_text("utf-8")
)
"""`config.json` of published checkpoints, to plan a run before anything is downloaded.

A local or cached copy comes first. The shapes of lm1b are those of Leviathan et al. (2023), section
4.1, whose weights were not published; MADLAD's drafter is what configs/madlad.py trains.
"""


HEAD = "#mtp"
"""End of the name of a head for multi-token prediction in a target's checkpoint."""


def split_head(name: str | Path) -> tuple[str | Path, bool]:
    """The name of a checkpoint, and whether the head in it is meant."""
    return (str(name)[: -len(HEAD)], True) if str(name).endswith(HEAD) else (name, False)


def locate(name: str | Path, patterns: Sequence[str] = FILES) -> Path:
    """The directory of a local path or (downloaded, or cached) hub id, or a local GGUF file."""
    path = expand_path(name)
    if is_gguf(path):
        return path
    if os.path.isdir(path):
        for pattern in patterns:
            for file in path.glob(pattern):
                check_regular(file)
        return path
    if not is_hub_id(name):
        raise UserError(
            f"model path {shorten_path(name)!r} is not a directory with config.json in it, nor a "
            "hub"
            " id: these have letters, digits, '-', '_' and '.', as 'google/flan-t5-small'"
        )
    try:
        return Path(snapshot_download(str(name), allow_patterns=list(patterns)))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise UserError(
            f"model {str(name)!r} is neither a directory nor a hub id that could be downloaded or"
            f" found in the cache ({type(error).__name__})"
        ) from error


def is_hub_id(name: str | Path) -> bool:
    """Whether a name that is no directory could be a hub id."""
    text = str(name)
    looks_like_path = text.startswith((".", "/", "~")) or text.count("/") > 1
    if looks_like_path or os.path.exists(text):
        return False
    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True


def cached_folder(name: str | Path) -> Path | None:
    """The folder of a hub id whose configuration is in the cache; None without one."""
    cached = try_to_load_from_cache(str(name), CONFIG_FILE) if is_hub_id(name) else None
    return Path(cached).parent if isinstance(cached, str) else None
