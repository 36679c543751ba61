"""Models from Hugging Face directories or hub ids: config, safetensors, tokenizer.

No PyTorch, no pickle, no remote code. Tensors stream one by one into the chosen dtype.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors.numpy import save_file

from specjax.checkpoints.config_json import read_json
from specjax.checkpoints.tensors import (
    OUTPUT_LAYER,
    SINGLE,
    Placement,
    flat_shapes,
    gather,
    on_one_device,
    read_params,
    refuse_extra,
    tensor_places,
)
from specjax.errors import UserError
from specjax.models.base import LanguageModel, Params
from specjax.models.families.family import Family
from specjax.models.registry import FAMILIES, family_of


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A loaded model: its description, its parameters and where it came from."""

    model: LanguageModel
    params: Params
    path: Path


def load(
    name: str | Path, dtype: Any = jnp.float32, placement: Callable[..., Placement] | None = None
) -> Checkpoint:
    """Loads a model from a directory or hub id with floating-point weights in `dtype`.

    `placement(model)` says where each parameter goes (`parallel.sharding`); all on the default
    device when it is None.

    Raises:
      UserError: when the path, a file, the model type or a tensor is missing or does not fit.
    """
    path = locate(name)
    family, config = read_config(path, dtype)
    files = tensor_places(path, family.prefix)
    if OUTPUT_LAYER in files:
        # transformers 5 writes `tie_word_embeddings: true` for every T5, tied or not.
        config = dataclasses.replace(config, tied=False)
    model, names = family.model(config), family.names(config)
    where = on_one_device if placement is None else placement(model)
    params = read_params(path, files, names, flat_shapes(model), dtype, where)
    refuse_extra(path, files, names, family.ignored)
    return Checkpoint(model, params, path)


def locate(name: str | Path) -> Path:
    """The directory of a local path or (downloaded, or cached) hub id."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.exists() or str(name).startswith((".", "/", "~")) or str(name).count("/") > 1:
        raise UserError(f"model path {str(name)!r} is not a directory with config.json in it")
    patterns = ["*.json", "*.safetensors", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(str(name), allow_patterns=patterns))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        raise UserError(
            f"model {str(name)!r} is neither a directory nor a hub id that could be downloaded or"
            f" found in the cache ({type(error).__name__})"
        ) from error


def read_config(path: Path, dtype: Any) -> tuple[Family, Any]:
    """The family and the shape of the checkpoint in `path`."""
    hf = read_json(path / "config.json")
    generation = path / "generation_config.json"
    model_type = hf.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UserError(
            f"{str(path / 'config.json')!r} has model_type {model_type!r}; "
            f"supported are {', '.join(sorted(FAMILIES))}"
        )
    family = FAMILIES[model_type]
    try:
        config = family.config_from_hf(
            hf, read_json(generation) if generation.exists() else {}, dtype
        )
    except KeyError as error:
        raise UserError(
            f"{str(path / 'config.json')!r} lacks the field {error.args[0]!r}"
        ) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{str(path / 'config.json')!r} has an unusable field: {error}") from None
    return family, config


def save(path: str | Path, model: LanguageModel, params: Params, tokenizer: Any = None) -> None:
    """Writes a directory that `load` and transformers' `from_pretrained` read.

    The directory appears complete or not at all; one that is there already is replaced.
    """
    path = Path(path)
    family = family_of(model)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        partial = Path(folder) / path.name
        partial.mkdir()
        shape, generation = family.config_to_hf(model.config)
        (partial / "config.json").write_text(json.dumps(shape, indent=2), "utf-8")
        (partial / "generation_config.json").write_text(json.dumps(generation, indent=2), "utf-8")
        tensors = gather(params, family.names(model.config))
        save_file(tensors, partial / SINGLE, metadata={"format": "pt"})
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
        if path.exists():
            path.rename(Path(folder) / "replaced")
        partial.rename(path)
