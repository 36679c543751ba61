"""Models from Hugging Face directories or hub ids: config, safetensors, tokenizer.

No PyTorch, no pickle, no remote code. Tensors stream one by one into the chosen dtype.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from specjax.errors import UserError
from specjax.models.base import LanguageModel, Params
from specjax.models.registry import FAMILIES, Family, family_of

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OUTPUT_LAYER = "lm_head.weight"

CHUNK = 1 << 18
"""Numbers of a tensor that are cast at a time."""

ALIGNMENT = 64
"""Bytes; XLA's on CPU."""


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
    files = tensor_files(path)
    if OUTPUT_LAYER in files:
        # transformers 5 writes `tie_word_embeddings: true` for every T5, tied or not.
        config = dataclasses.replace(config, tied=False)
    params = read_params(path, files, family.hf_names(config), family.model(config), dtype)
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


def tensor_files(path: Path) -> dict[str, Path]:
    """Tensor name -> the safetensors file that holds it."""
    if (path / INDEX).exists():
        weights = read_json(path / INDEX).get("weight_map")
        if not isinstance(weights, dict):
            raise UserError(f"{str(path / INDEX)!r} has no 'weight_map' of tensors to files")
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


def _check_tensor(file: Any, tensor: str, path: Path, expected: tuple[int, ...]) -> None:
    try:
        found = tuple(file.get_slice(tensor).get_shape())
    except SafetensorError as error:
        raise UserError(f"tensor {tensor!r} cannot be read from {str(path)!r}: {error}") from None
    if found != expected:
        raise UserError(
            f"tensor {tensor!r} of {str(path)!r} has shape {found}, config.json asks for {expected}"
        )


def _read(file: Any, tensor: str, transposed: bool, dtype: Any) -> jax.Array:
    """A stored tensor in `dtype`, cast a few rows at a time straight into its final place.

    Temporaries of its size would double the peak, and malloc keeps them after they are freed.
    """
    stored = file.get_slice(tensor)
    shape = stored.get_shape()
    array = _empty(shape[::-1] if transposed else shape, np.dtype(dtype))
    target = array.T if transposed else array
    rows = max(1, CHUNK // max(1, math.prod(shape[1:])))
    for begin in range(0, shape[0], rows):
        end = min(begin + rows, shape[0])
        target[begin:end] = stored[begin:end]
    return jax.device_put(array)


def _empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Memory that a JAX array on CPU takes over without a copy, for which it must be aligned."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].view(dtype).reshape(shape)


def read_params(
    path: Path,
    files: dict[str, Path],
    names: dict[tuple[str, ...], tuple[str, bool]],
    model: LanguageModel,
    dtype: Any,
) -> Params:
    """Streams every tensor of `names` into a tree of device arrays."""
    shapes = _flat_shapes(model)
    params: dict[str, Any] = {}
    for where, (tensor, transposed) in names.items():
        if tensor not in files:
            raise UserError(f"checkpoint {str(path)!r} lacks the tensor {tensor!r}")
        expected = shapes[where][::-1] if transposed else shapes[where]
        node = params
        for key in where[:-1]:
            node = node.setdefault(key, {})
        # Opened anew for each tensor: pages of a closed map no longer count as host memory.
        with _open(files[tensor]) as file:
            _check_tensor(file, tensor, files[tensor], expected)
            node[where[-1]] = _read(file, tensor, transposed, dtype)
    return params


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
        tensors = {}
        for where, (tensor, transposed) in family.hf_names(model.config).items():
            value = np.asarray(_leaf(params, where))
            tensors[tensor] = np.ascontiguousarray(value.T) if transposed else value
        save_file(tensors, partial / SINGLE, metadata={"format": "pt"})
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
        if path.exists():
            path.rename(Path(folder) / "replaced")
        partial.rename(path)


def _leaf(params: Params, where: tuple[str, ...]) -> Any:
    for key in where:
        params = params[key]
    return params


def _flat_shapes(model: LanguageModel) -> dict[tuple[str, ...], tuple[int, ...]]:
    tree = jax.eval_shape(model.init, jax.random.key(0))
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {tuple(k.key for k in path): leaf.shape for path, leaf in flat}
