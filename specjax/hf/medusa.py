"""Published Medusa heads in and out: `config.json` and `medusa_lm_head.safetensors`.

The layout of FasterDecoding and text-generation-inference
(docs/how_to/published_drafters.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from safetensors.numpy import save_file

from specjax.hf.families.family import Stored
from specjax.hf.families.schema import (
    COMMON,
    CONFIG_FILE,
    NOTHING,
    Schema,
    note_ignored,
    raw,
    read,
    size,
)
from specjax.hf.hub import locate
from specjax.hf.tensors import (
    Place,
    flat_shapes,
    gather,
    open_file,
    read_params,
    refuse_extra,
)
from specjax.models.base import Params, Where
from specjax.models.heads import LoadedHeads, ResidualHeads
from specjax.models.shapes import get_parameter_shapes
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.files import replacing_directory
from specjax.runtime.json_files import read_json

FILE, PICKLED = "medusa_lm_head.safetensors", "medusa_lm_head.pt"

SCHEMA = Schema(
    {
        "medusa_num_heads": size(),
        "medusa_num_layers": size(1),
        "base_model_name_or_path": raw(""),
    },
    harmless=COMMON | {"hidden_size", "version", "vocab_size"},
    source=NOTHING,  # the exporter's own class, not one of transformers
)
"""Fields of `config.json`; others are the target's, whose shape follows from the tensors."""

TENSOR = re.compile(r"(\d+)\.\d+\.(linear\.(weight|bias)|weight)")


def load(name: str | Path, dtype: Any = jnp.float32) -> LoadedHeads:
    """Reads published heads from a directory or hub id, their weights in `dtype`.

    Raises:
      UserError: when a file or a tensor is missing, is no safetensors or has another shape.
    """
    with note_ignored(f"heads {str(name)!r}"):
        path, heads, places = _read_description(name)
    named = names(heads)
    shapes = flat_shapes(get_parameter_shapes(heads))
    params = read_params(path, places, named, shapes, dtype)
    refuse_extra(path, places, named, r"$^")
    return LoadedHeads(heads, params)


def shapes(name: str | Path, dtype: Any = jnp.float32) -> LoadedHeads:
    """The same heads with the shapes of their parameters.

    Raises:
      UserError: when a file or the first head's tensors are missing or do not fit.
    """
    _, heads, _ = _read_description(name)
    tree = get_parameter_shapes(heads)
    return LoadedHeads(
        heads, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), tree)
    )


def save(folder: str | Path, heads: ResidualHeads, params: Params, target: str = "") -> None:
    """Writes heads as `load` reads them; `target` is the name of the model they are on.

    Raises:
      UserError: saying why nothing was written.
    """
    tensors = gather(params, names(heads))
    if not processes.is_first():
        return
    words = {
        "medusa_num_heads": heads.count,
        "medusa_num_layers": heads.layers,
        "base_model_name_or_path": target,
    }
    with replacing_directory(Path(folder)) as partial:
        (partial / CONFIG_FILE).write_text(json.dumps(words, indent=2), "utf-8")
        save_file(tensors, partial / FILE, metadata={"format": "pt"})


def names(heads: ResidualHeads) -> Mapping[Where, Stored]:
    """Where each parameter is stored: heads and their layers are counted from 0."""
    stored = {}
    for number in range(heads.count):
        head = f"head_{number + 1}"
        for layer in range(heads.layers):
            tensor = f"{number}.{layer}.linear"
            stored[head, f"block_{layer}", "kernel"] = Stored(f"{tensor}.weight", True)
            stored[head, f"block_{layer}", "bias"] = Stored(f"{tensor}.bias")
        if heads.vocab_size is not None:
            stored[head, "output", "kernel"] = Stored(f"{number}.{heads.layers}.weight", True)
    return stored


def target_of(name: str | Path) -> str:
    """The target's name in published heads; empty if missing."""
    return _words(locate(name, [CONFIG_FILE]))["base_model_name_or_path"] or ""


def _read_description(name: str | Path) -> tuple[Path, ResidualHeads, dict[str, Place]]:
    """The directory, the shape of the heads in it and the places of all tensors.

    Widths are those of the first head's tensors. There may be more heads than `config.json` counts:
    those of FasterDecoding have 2 with files of five.
    """
    path = locate(name, [CONFIG_FILE, FILE])
    words = _words(path)
    if not (path / FILE).exists():
        has = f"{PICKLED} and no {FILE}" if (path / PICKLED).exists() else f"no {FILE}"
        raise UserError(
            f"heads {str(name)!r} have {has}; specjax reads safetensors only, and"
            f" `python -m specjax.hf.convert {name} FOLDER` makes them of heads that are"
            f" published as {PICKLED}"
        )
    with open_file(path / FILE) as file:
        places = {tensor: Place(path / FILE, tensor) for tensor in list(file.keys())}
        layers = words["medusa_num_layers"]
        width = _rows(path, file, places, "0.0.linear.weight")
        own = f"0.{layers}.weight"
        vocabulary = _rows(path, file, places, own) if own in places else None
    found = {int(match[1]) for tensor in places if (match := TENSOR.fullmatch(tensor))}
    count = max(words["medusa_num_heads"], len(found))
    return path, ResidualHeads(count, width, layers, vocabulary), places


def _words(path: Path) -> dict[str, Any]:
    try:
        return read(SCHEMA, read_json(path / CONFIG_FILE))
    except ValueError as error:
        raise UserError(f"{str(path / CONFIG_FILE)!r} cannot be used: {error}") from None


def _rows(path: Path, file: Any, places: Mapping[str, Place], tensor: str) -> int:
    """The first dimension of a tensor."""
    if tensor not in places:
        raise UserError(f"checkpoint {str(path)!r} lacks the tensor {tensor!r}")
    return file.get_slice(tensor).get_shape()[0]
