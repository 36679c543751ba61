"""Descriptions of checkpoints without their weights: shapes, and generation fields."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specjax.hf.families.generation import change_generation, generation_fields
from specjax.hf.families.schema import CONFIG_FILE, GENERATION_FILE
from specjax.hf.gguf.header import is_gguf
from specjax.hf.hub import SHAPES, cached_folder, locate, split_head
from specjax.hf.huggingface import (
    GenerationRequest,
    find_family,
    parse_config,
    read_config,
    read_generation,
)
from specjax.models.base import LanguageModel
from specjax.runtime.files import expand_path


def describe(
    name: str | Path,
    dtype: Any,
    *,
    ignore_generation_config: bool = False,
    generation: Mapping[str, Any] | None = None,
) -> LanguageModel:
    """The model of a directory or hub id without its weights; downloads its configuration at most.

    Raises:
      UserError: when its shape is found neither there, nor in the cache, nor in `SHAPES`.
    """
    name, head = split_head(name)
    request, path = (
        GenerationRequest(ignore_generation_config, generation or {}),
        _locate_description(name),
    )
    if path is None:
        fields = SHAPES[str(name)]
        family, config = parse_config(repr(str(name)), fields, None, dtype, request, head=head)
    else:
        family, config = read_config(path, dtype, request, head)
    return family.model(config)


def _locate_description(name: str | Path) -> Path | None:
    """The path of the configuration of a directory or hub id; None: only its shape is known."""
    path = expand_path(name)
    if os.path.isdir(path) or is_gguf(path):
        return path
    if cached := cached_folder(name):
        return cached
    return None if str(name) in SHAPES else locate(name, [CONFIG_FILE, GENERATION_FILE])


@dataclasses.dataclass(frozen=True)
class GenerationDescription:
    """Generation fields of a checkpoint without its weights."""

    generation: Mapping[str, Any]
    path: Path | None  # None: its files are not here
    complete: bool  # whether all of its files are


def describe_generation(
    name: str | Path,
    *,
    ignore_generation_config: bool = False,
    generation: Mapping[str, Any] | None = None,
) -> GenerationDescription:
    """The generation fields of a directory or hub id, as far as `describe` reads them.

    Raises:
      UserError: as `describe`.
    """
    name, _ = split_head(name)
    request, path = (
        GenerationRequest(ignore_generation_config, generation or {}),
        _locate_description(name),
    )
    if path is None:
        family = find_family(repr(str(name)), SHAPES[str(name)])
        changes = change_generation({}, None, request.changes, family.generation_fields)
        known = {} if request.ignored else generation_fields(*changes)
        return GenerationDescription(known, None, False)
    return GenerationDescription(read_generation(path, request), path, path == expand_path(name))
