"""Models from Hugging Face directories or hub ids: config, safetensors, tokenizer.

No PyTorch, no pickle, no remote code. Tensors stream one by one into the chosen dtype.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from huggingface_hub import snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from huggingface_hub.utils import validate_repo_id
from safetensors.numpy import save_file

from specjax import hosts
from specjax.checkpoints.config_json import read_json
from specjax.checkpoints.embeddings import (
    refuse_differing_copies,
    with_embedding,
    without_copied_head,
)
from specjax.checkpoints.known_shapes import SHAPES
from specjax.checkpoints.packed import Packing, packed_kernels, packing_of, read_packed
from specjax.checkpoints.tensors import (
    SINGLE,
    Placement,
    flat_shapes,
    gather,
    on_one_device,
    read_params,
    refuse_extra,
    tensor_places,
)
from specjax.checks import checked_weights
from specjax.core.registry import FAMILIES
from specjax.errors import UserError
from specjax.models.base import LanguageModel, Params
from specjax.models.families.family import Family, Where, family_of
from specjax.models.families.generation import changed, refuse_processors, said
from specjax.models.shapes import parameter_shapes
from specjax.models.small_weights import SmallWeights, is_small
from specjax.paths import check_regular, expanded, shortened
from specjax.writing import replacing_directory

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
SMALL_FILES = ("*.json", "*.model", "*.spm", "*.txt", "*.jinja")
FILES = ("model*.safetensors", *SMALL_FILES)
"""What is downloaded of a hub id: all of it, or without the weights.

Some repositories hold the weights a second time under another name (`consolidated.safetensors`).
"""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A loaded model: its description, its parameters and where it came from."""

    model: LanguageModel
    params: Params
    path: Path
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what its file says


def load(
    name: str | Path,
    dtype: Any = jnp.float32,
    placement: Callable[..., Placement] | None = None,
    *,
    weights: str = "",
    ignore_generation_config: bool = False,
    generation: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Loads a model from a directory or hub id with floating-point weights in `dtype`.

    With `weights` the kernels of its layers are as small as they say (`models.small_weights`).
    `placement(model)` says where each parameter goes (`parallel.sharding`); all on the default
    device when it is None. What `generation_config.json` asks for, with the changes of
    `generation`, are settings that decodes obey; what none can is refused. With
    `ignore_generation_config` all of it besides special tokens is ignored.

    Raises:
      UserError: when the path, a file, the model type or a tensor is missing or does not fit.
    """
    small, path = checked_weights(weights), locate(name)
    asked = Asked(ignore_generation_config, generation or {})
    family, config = read_config(path, dtype, asked)
    files = tensor_places(path, family, str(name))
    try:
        config = family.of_stored(config, files)
    except ValueError as error:
        raise UserError(f"checkpoint {str(path)!r} cannot be used: {error}") from None
    embedding = family.names(config).get(("embedding",))
    if embedding:
        files = with_embedding(files, embedding.tensor, family.output, config.tied)
        if config.tied:
            files = without_copied_head(files, embedding.tensor, family.output)
    if family.output in files:
        # transformers 5 writes `tie_word_embeddings: true` for every T5, tied or not.
        config = dataclasses.replace(config, tied=False)
    model, names = family.model(config), family.names(config)
    where = on_one_device if placement is None else placement(model)
    shapes = flat_shapes(parameter_shapes(model))
    packing = packing_at(path)
    _check_weights(path, small, packing, shapes)
    packed = packed_kernels(files, names, packing, _model_type(path))
    plain = {place: stored for place, stored in names.items() if place not in packed}
    params = read_params(path, files, plain, shapes, dtype, where, small)
    read_packed(params, files, packed, packing, shapes, dtype, where)
    used = {tensor for parts in packed.values() for tensor in parts.values()}
    others = {tensor: place for tensor, place in files.items() if tensor not in used}
    refuse_extra(path, others, names, family.ignored)
    refuse_differing_copies(path, files, names)
    return Checkpoint(model, params, path, read_generation(path, asked))


def _check_weights(
    path: Path, weights: SmallWeights | None, packing: Packing | None, shapes: Mapping[Where, Any]
) -> None:
    """Refuses weights that a checkpoint cannot have."""
    if weights is None:
        return
    if packing:
        raise UserError(
            f"weights is {str(weights)!r}; it must be '' for checkpoint {str(path)!r}, which is"
            f" stored in {packing.weights.kind}"
        )
    try:
        weights.check(shapes)
    except ValueError as error:
        raise UserError(f"checkpoint {str(path)!r} cannot be used: {error}") from None


def packing_at(path: Path) -> Packing | None:
    """How the checkpoint in `path` packs its kernels; None where they are floating-point numbers.

    Raises:
      UserError: when its configuration says what is not read.
    """
    try:
        return packing_of(read_json(path / CONFIG_FILE))
    except ValueError as error:
        raise UserError(f"{str(path / CONFIG_FILE)!r} cannot be used: {error}") from None


def stored_weights(name: str | Path) -> SmallWeights | None:
    """How small the kernels of a directory or cached hub id are stored; None: not at all."""
    path = expanded(name)
    if not os.path.isdir(path):
        cached = try_to_load_from_cache(str(name), CONFIG_FILE) if is_hub_id(name) else None
        path = Path(cached).parent if isinstance(cached, str) else path
    packing = packing_at(path) if os.path.isfile(path / CONFIG_FILE) else None
    return packing and packing.weights


def locate(name: str | Path, patterns: Sequence[str] = FILES) -> Path:
    """The directory of a local path or (downloaded, or cached) hub id."""
    path = expanded(name)
    if os.path.isdir(path):
        for pattern in patterns:
            for file in path.glob(pattern):
                check_regular(file)
        return path
    if not is_hub_id(name):
        raise UserError(
            f"model path {shortened(name)!r} is not a directory with config.json in it, nor a hub"
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


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a user makes of `generation_config.json`: nothing at all, or this where it differs."""

    ignored: bool = False
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


EVERYTHING = Asked()


def _files(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What both files of configuration hold; None for the second where there is none."""
    hf, generation = read_json(path / CONFIG_FILE), path / GENERATION_FILE
    return hf, read_json(generation) if generation.exists() else None


def _model_type(path: Path) -> str:
    return str(read_json(path / CONFIG_FILE).get("model_type"))


def _where(path: Path) -> str:
    return repr(str(path / CONFIG_FILE))


def read_config(path: Path, dtype: Any, asked: Asked = EVERYTHING) -> tuple[Family, Any]:
    """The family and the shape of the checkpoint in `path`."""
    return parse_config(_where(path), *_files(path), dtype, asked)


def read_generation(path: Path, asked: Asked = EVERYTHING) -> dict[str, Any]:
    """What the checkpoint in `path` says of generation, as it is written."""
    return {} if asked.ignored else said(*changed(*_files(path), asked.changes))


def parse_config(
    where: str,
    hf: dict[str, Any],
    generation: dict[str, Any] | None,
    dtype: Any,
    asked: Asked = EVERYTHING,
) -> tuple[Family, Any]:
    """The family and the shape that Hugging Face's configuration fields describe.

    `generation` is what `generation_config.json` holds, None without that file.
    """
    family = _family(where, hf)
    try:
        if packing_of(hf):
            hf = {field: value for field, value in hf.items() if field != "quantization_config"}
        config = family.config_from_hf(hf, generation, dtype)
        if not asked.ignored:
            refuse_processors(*changed(hf, generation, asked.changes), family.generation)
    except ValueError as error:
        raise UserError(f"{where} cannot be used: {error}") from None
    return family, config


def _family(where: str, hf: dict[str, Any]) -> Family:
    """The family that claims a configuration, or the one that its `model_type` names."""
    claiming = [entry.cls for entry in FAMILIES.values() if entry.cls.claims(hf)]
    if claiming:
        return claiming[0]()
    model_type = hf.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise UserError(
            f"{where} has model_type {model_type!r}; supported are {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type].cls()


def describe(
    name: str | Path,
    dtype: Any,
    *,
    ignore_generation_config: bool = False,
    generation: Mapping[str, Any] | None = None,
) -> LanguageModel:
    """The model of a directory or hub id without its weights; downloads its configuration at most.

    Raises:
      UserError: when its shape is found neither there, nor in the cache, nor in `published`.
    """
    asked, path = Asked(ignore_generation_config, generation or {}), _described_at(name)
    if path is None:
        family, config = parse_config(repr(str(name)), SHAPES[str(name)], None, dtype, asked)
    else:
        family, config = read_config(path, dtype, asked)
    return family.model(config)


def _described_at(name: str | Path) -> Path | None:
    """Where the configuration of a directory or hub id lies; None: its shape alone is known."""
    path = expanded(name)
    if os.path.isdir(path):
        return path
    cached = try_to_load_from_cache(str(name), CONFIG_FILE) if is_hub_id(name) else None
    if isinstance(cached, str):
        return Path(cached).parent
    return None if str(name) in SHAPES else locate(name, [CONFIG_FILE, GENERATION_FILE])


@dataclasses.dataclass(frozen=True)
class Described:
    """What is known of a checkpoint's generation without its weights."""

    generation: Mapping[str, Any]
    path: Path | None  # None: its files are not here
    complete: bool  # whether all of its files are


def described_generation(
    name: str | Path,
    *,
    ignore_generation_config: bool = False,
    generation: Mapping[str, Any] | None = None,
) -> Described:
    """What a directory or hub id says of generation, as far as `describe` reads it.

    Raises:
      UserError: as `describe`.
    """
    asked, path = Asked(ignore_generation_config, generation or {}), _described_at(name)
    if path is None:
        known = {} if asked.ignored else said(*changed({}, None, asked.changes))
        return Described(known, None, False)
    return Described(read_generation(path, asked), path, os.path.isdir(expanded(name)))


def save(
    path: str | Path,
    model: LanguageModel,
    params: Params,
    tokenizer: Any = None,
    generation: Mapping[str, Any] | None = None,
) -> None:
    """Writes a directory that `load` and transformers' `from_pretrained` read.

    `generation` are fields of `generation_config.json` beside the special tokens, which the model
    says itself.
    The directory appears complete or not at all. Of an earlier export only the files that it wrote
    are replaced; a folder that is none and not empty is refused. With several processes all must
    call it, and the first one writes.

    Raises:
      UserError: saying why nothing was written.
    """
    if any(is_small(leaf) for leaf in jax.tree.leaves(params, is_leaf=is_small)):
        raise UserError(
            "the model has int8 or int4 weights, which are not written; load it without `weights`"
            " and save that"
        )
    family = family_of(model)
    tensors = gather(params, family.names(model.config))
    if not hosts.is_first():
        return
    with replacing_directory(Path(path)) as partial:
        shape, own = family.config_to_hf(model.config)
        told = {**(generation or {}), **own}
        (partial / CONFIG_FILE).write_text(json.dumps(shape, indent=2), "utf-8")
        (partial / GENERATION_FILE).write_text(json.dumps(told, indent=2), "utf-8")
        tensors |= family.repeated(model.config, tensors)
        save_file(tensors, partial / SINGLE, metadata={"format": "pt"})
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
