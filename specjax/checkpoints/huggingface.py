"""Models from Hugging Face directories or hub ids: config, safetensors, tokenizer.

No PyTorch, no pickle, no remote code. Tensors stream one by one into the chosen dtype.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open

from specjax.errors import UserError
from specjax.models.base import LanguageModel, Params
from specjax.models.registry import FAMILIES, Family

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A loaded model: its description, its parameters and where it came from."""

    model: LanguageModel
    params: Params
    path: Path


def load(name: str | Path, dtype: Any = jnp.float32) -> Checkpoint:
    """Loads a model from a directory or hub id with floating-point weights in `dtype`.

    Raises:
      UserError: when the path, a file, the model type or a tensor is missing or does not fit.
    """
    path = locate(name)
    family, config = read_config(path, dtype)
    params = read_params(path, family.hf_names(config), family.model(config), dtype)
    return Checkpoint(family.model(config), params, path)


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


def read_json(path: Path) -> dict[str, Any]:
    """Contents of a JSON file that must be there and be an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"model directory {str(path.parent)!r} has no {path.name}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{str(path)!r} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{str(path)!r} must hold a JSON object, not {type(content).__name__}")
    return content


def read_config(path: Path, dtype: Any) -> tuple[Family, Any]:
    """The family and the shape of the checkpoint in `path`."""
    hf = read_json(path / "config.json")
    generation = path / "generation_config.json"
    model_type = hf.get("model_type")
    if model_type not in FAMILIES:
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
    return family, config


def tensor_files(path: Path) -> dict[str, Path]:
    """Tensor name -> the safetensors file that holds it."""
    if (path / INDEX).exists():
        weights = read_json(path / INDEX).get("weight_map", {})
        return {tensor: path / file for tensor, file in weights.items()}
    if not (path / SINGLE).exists():
        raise UserError(
            f"model directory {str(path)!r} has neither {SINGLE} nor {INDEX}; "
            "specjax reads safetensors only"
        )
    with _open(path / SINGLE) as file:
        return dict.fromkeys(file.keys(), path / SINGLE)


def _open(file: Path) -> Any:
    try:
        return safe_open(file, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{str(file)!r} is not a readable safetensors file: {error}") from None


def read_params(
    path: Path,
    names: dict[tuple[str, ...], tuple[str, bool]],
    model: LanguageModel,
    dtype: Any,
) -> Params:
    """Streams every tensor of `names` into a tree of device arrays."""
    files = tensor_files(path)
    shapes = _flat_shapes(model)
    params: dict[str, Any] = {}
    for where, (tensor, transposed) in names.items():
        if tensor not in files:
            raise UserError(f"checkpoint {str(path)!r} lacks the tensor {tensor!r}")
        # Opened anew for each tensor: pages of a closed map no longer count as host memory.
        with _open(files[tensor]) as file:
            value = file.get_tensor(tensor)
        value = np.ascontiguousarray(value.T) if transposed else value
        if value.shape != shapes[where]:
            expected = shapes[where][::-1] if transposed else shapes[where]
            found = value.shape[::-1] if transposed else value.shape
            raise UserError(
                f"tensor {tensor!r} of {str(path)!r} has shape {found}, config.json asks for"
                f" {expected}"
            )
        node = params
        for key in where[:-1]:
            node = node.setdefault(key, {})
        node[where[-1]] = jnp.asarray(value.astype(dtype))
    return params


def _flat_shapes(model: LanguageModel) -> dict[tuple[str, ...], tuple[int, ...]]:
    import jax

    tree = jax.eval_shape(model.init, jax.random.key(0))
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {tuple(k.key for k in path): leaf.shape for path, leaf in flat}
