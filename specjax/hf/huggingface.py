"""Models from Hugging Face directories, hub ids or GGUF files: config, weights, tokenizer.

No PyTorch, no pickle, no remote code. Tensors stream one by one into the chosen dtype.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from safetensors.numpy import save_file

from specjax.checks import parse_weights
from specjax.contracts.registry import FAMILIES
from specjax.hf.draftable import refuse_other_ids
from specjax.hf.embeddings import (
    add_embedding,
    drop_copied_head,
    refuse_differing_copies,
)
from specjax.hf.families import drafter_formats
from specjax.hf.families.family import Family, get_family
from specjax.hf.families.generation import (
    GenerationFileError,
    change_generation,
    generation_fields,
    reading_generation,
    refuse_processors,
)
from specjax.hf.families.mtp import MtpOfTarget, find_head_tensors
from specjax.hf.families.schema import CONFIG_FILE, GENERATION_FILE, format_value, note_ignored
from specjax.hf.gguf import configuration
from specjax.hf.gguf.header import is_gguf
from specjax.hf.gguf.kernels import find_kept_kernels, read_kept
from specjax.hf.hub import SHAPES, cached_folder, locate, split_head
from specjax.hf.kept_config import config_to_save, floating_dtype
from specjax.hf.packed import Packing, find_packed_kernels, parse_packing, read_packed
from specjax.hf.tensors import (
    SINGLE,
    Place,
    Placement,
    flat_shapes,
    gather,
    on_one_device,
    read_params,
    refuse_extra,
    tensor_places,
)
from specjax.models.base import LanguageModel, Params, Where
from specjax.models.on_target import FeatureDrafter
from specjax.models.quantized_weights import WeightFormat, is_quantized
from specjax.models.shapes import get_parameter_shapes
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path, replacing_directory
from specjax.runtime.json_files import read_json

DRAFTER_FIELDS = ("dflash_config", "draft_vocab_size", "eagle_config", "speculators_config")
"""Fields that only drafters have; transformers would ignore them and load a model."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A loaded model: its description, its parameters and where it came from."""

    model: LanguageModel
    params: Params
    path: Path
    generation: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of its file
    original_config: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for `save`


def load(
    name: str | Path,
    dtype: Any = jnp.float32,
    placement: Callable[..., Placement] | None = None,
    *,
    weights: str = "",
    ignore_generation_config: bool = False,
    generation: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Loads a model from a directory, hub id or GGUF file with floating-point weights in `dtype`.

    `folder#mtp` is the head for multi-token prediction in a target's checkpoint (`families.mtp`).
    `weights` quantizes the kernels of its layers (`models.quantized_weights`). `placement(model)`
    gives the sharding of each parameter (`parallel.sharding`); None: the default device. Decodes
    apply the settings of `generation_config.json` with the changes of `generation`; unsupported
    ones are refused. With `ignore_generation_config` only special tokens are read.

    Raises:
      UserError: when the path, a file, the model type or a tensor is missing or does not fit.
    """
    name, head = split_head(name)
    small, path = parse_weights(weights), locate(name)
    request = GenerationRequest(ignore_generation_config, generation or {})
    with note_ignored(f"model {str(name)!r}"):
        family, config = read_config(path, dtype, request, head)
    files = tensor_places(path, family, str(name))
    try:
        if not _drafts(type(family)):
            drafter_formats.refuse_fused(files)
        config = family.of_stored(config, files)
    except ValueError as error:
        raise UserError(f"checkpoint {str(path)!r} cannot be used: {error}") from None
    files, config = _tie_output(files, family, config)
    model, names = family.model(config), family.names(config)
    where = on_one_device if placement is None else placement(model)
    shapes = flat_shapes(get_parameter_shapes(model))
    packing = read_packing(path)
    _check_weights(path, small, packing, shapes)
    packed = find_packed_kernels(files, names, packing, _model_type(path))
    kept = find_kept_kernels(files, names, shapes, small)
    plain = {at: stored for at, stored in names.items() if at not in packed and at not in kept}
    params = read_params(path, files, plain, shapes, dtype, where, small)
    if packing is not None:
        read_packed(params, files, packed, packing, names, shapes, dtype, where)
    if small is not None:
        read_kept(params, files, kept, shapes, small, dtype, where)
    used = {tensor for parts in packed.values() for tensor in parts.values()}
    used |= find_head_tensors(files)
    others = {tensor: place for tensor, place in files.items() if tensor not in used}
    refuse_extra(path, others, names, family.ignored)
    refuse_differing_copies(path, files, names)
    refuse_other_ids(path, files, params, family.draftable)
    original = {} if is_gguf(path) else family.export_base(_files(path)[0])
    return Checkpoint(model, params, path, read_generation(path, request), original)


def _tie_output(
    files: dict[str, Place], family: Family, config: Any
) -> tuple[dict[str, Place], Any]:
    """The files with the embedding that a tied output layer may stand for, and the shape.

    An output layer of its own is not tied, whatever `config.json` says.
    """
    embedding = family.table(config).get("embedding")
    if isinstance(embedding, str):
        files = add_embedding(files, embedding, family.output, config.tied)
        if config.tied:
            files = drop_copied_head(files, embedding, family.output)
    if family.output in files:
        # transformers 5 writes `tie_word_embeddings: true` for every T5, tied or not.
        config = dataclasses.replace(config, tied=False)
    return files, config


def _check_weights(
    path: Path, weights: WeightFormat | None, packing: Packing | None, shapes: Mapping[Where, Any]
) -> None:
    """Refuses `weights` for a checkpoint that is already quantized."""
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


def read_packing(path: Path) -> Packing | None:
    """How the checkpoint in `path` packs its kernels; None where they are floating-point numbers.

    Raises:
      UserError: when its format is not supported.
    """
    try:
        return parse_packing(_files(path)[0])
    except ValueError as error:
        raise UserError(f"{_where(path)} cannot be used: {error}") from None


def read_stored_weights(name: str | Path) -> WeightFormat | None:
    """Weight format of the stored kernels of a directory or hub id; None: unquantized or unknown.

    Of a hub id that is not in the cache it is that of its known shape.
    """
    name, _ = split_head(name)
    path = expand_path(name)
    if is_gguf(path):
        return None
    if not os.path.isdir(path):
        path = cached_folder(name) or path
    known = os.path.isfile(path / CONFIG_FILE)
    packing = read_packing(path) if known else parse_packing(SHAPES.get(str(name), {}))
    return packing and packing.weights


@dataclasses.dataclass(frozen=True)
class GenerationRequest:
    """A user's changes of `generation_config.json`, or the request to ignore it."""

    ignored: bool = False
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


EVERYTHING = GenerationRequest()


def _files(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Contents of both configuration files; None for a missing second one."""
    if is_gguf(path):
        return configuration.read_config(path), None
    hf, generation = read_json(path / CONFIG_FILE), path / GENERATION_FILE
    return hf, read_json(generation) if generation.exists() else None


def generation_file(path: Path) -> Path:
    """The file of the checkpoint in `path` that its generation settings are read from."""
    own = path / GENERATION_FILE
    return own if own.exists() else path / CONFIG_FILE


def _model_type(path: Path) -> str:
    return str(_files(path)[0].get("model_type"))


def _where(path: Path) -> str:
    return repr(str(path if is_gguf(path) else path / CONFIG_FILE))


def read_config(
    path: Path, dtype: Any, request: GenerationRequest = EVERYTHING, head: bool = False
) -> tuple[Family, Any]:
    """The family and the shape of the checkpoint in `path`, or of the head in it."""
    files = _files(path)
    words = configuration.rename_to_keys(path) if is_gguf(path) else str
    return parse_config(
        _where(path),
        *files,
        dtype,
        request,
        repr(str(generation_file(path))),
        words=words,
        head=head,
    )


def read_generation(path: Path, request: GenerationRequest = EVERYTHING) -> dict[str, Any]:
    """The generation fields of the checkpoint in `path`."""
    if request.ignored:
        return {}
    hf, generation = _files(path)
    return generation_fields(
        *change_generation(
            hf, generation, request.changes, find_family(_where(path), hf).generation_fields
        )
    )


def parse_config(
    where: str,
    hf: dict[str, Any],
    generation: dict[str, Any] | None,
    dtype: Any,
    request: GenerationRequest = EVERYTHING,
    where_generation: str = GENERATION_FILE,
    *,
    words: Callable[[str], str] = str,
    head: bool = False,
) -> tuple[Family, Any]:
    """The family and the shape that Hugging Face's configuration fields describe.

    With `head` they are the fields of a target whose checkpoint has the head in it.

    `generation` is what `generation_config.json` holds, None without that file. Errors name the
    file that they are in, by `where` or `where_generation`, and fields by the `words` of the file.
    """
    family = MtpOfTarget.of(hf) if head else find_family(where, hf)
    try:
        if parse_packing(hf):
            hf = {field: value for field, value in hf.items() if field != "quantization_config"}
        config = family.config_from_hf(hf, generation, dtype)
        if not request.ignored:
            settings = change_generation(hf, generation, request.changes, family.generation_fields)
            with reading_generation(generation):
                refuse_processors(*settings, family.generation, family.neutral)
    except GenerationFileError as error:
        raise UserError(f"{where_generation} cannot be used: {error}") from None
    except ValueError as error:
        raise UserError(f"{where} cannot be used: {words(str(error))}") from None
    return family, config


def find_family(where: str, hf: dict[str, Any]) -> Family:
    """The family that claims a configuration, or the one that its `model_type` names."""
    try:
        drafter_formats.refuse_unread(hf)
    except ValueError as error:
        raise UserError(f"{where} cannot be used: {error}") from None
    claiming = [entry.cls for entry in FAMILIES.values() if entry.cls.claims(hf)]
    if claiming:
        return claiming[0]()
    model_type = hf.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        drafters = [name for name, entry in FAMILIES.items() if _drafts(entry.cls)]
        models = [name for name in FAMILIES if name not in drafters]
        raise UserError(
            f"{where} has model_type {format_value(model_type)}; supported are {', '.join(models)};"
            f" formats of drafters are {', '.join(drafters)}"
        )
    family = FAMILIES[model_type].cls
    drafters_words = [] if _drafts(family) else [name for name in DRAFTER_FIELDS if name in hf]
    if drafters_words:
        name = drafters_words[0]
        raise UserError(
            f"{where} cannot be used: {name} is {format_value(hf[name])}; it is a drafter's, in a "
            "format"
            " that is not read"
        )
    return family()


def _drafts(family: type[Family]) -> bool:
    """Whether a family's models draft for a target that they read."""
    return issubclass(family.model, FeatureDrafter)


def save(
    path: str | Path,
    model: LanguageModel,
    params: Params,
    tokenizer: Any = None,
    generation: Mapping[str, Any] | None = None,
    original_config: Mapping[str, Any] | None = None,
    processor: Any = None,
) -> None:
    """Writes a directory that `load` and transformers' `from_pretrained` read.

    `generation` are fields of `generation_config.json` other than the special tokens, which come
    from the model. With the `original_config` of the model's checkpoint, `config.json` keeps its
    fields, including those that are not read here, and only changed fields are replaced. The
    `processor` is transformers' of audio or images. The
    directory is written atomically. Only the files of an earlier export are replaced; any other
    nonempty folder is refused. With several processes all must call it, and the first one writes.

    Raises:
      UserError: saying why nothing was written.
    """
    if any(is_quantized(leaf) for leaf in jax.tree.leaves(params, is_leaf=is_quantized)):
        raise UserError(
            "the model has quantized weights, which are not written; load it without `weights`"
            " and save that"
        )
    family = get_family(model)
    tensors = gather(params, family.names(model.config))
    if not processes.is_first():
        return
    with replacing_directory(Path(path)) as partial:
        fields = {**(generation or {}), **family.config_to_hf(model.config)[1]}
        dtype = floating_dtype(tensors.values())
        shape = config_to_save(family, model.config, original_config or {}, fields, dtype)
        (partial / CONFIG_FILE).write_text(json.dumps(shape, indent=2), "utf-8")
        (partial / GENERATION_FILE).write_text(json.dumps(fields, indent=2), "utf-8")
        tensors |= family.repeat_tensors(model.config, tensors)
        save_file(tensors, partial / SINGLE, metadata={"format": "pt"})
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
        if processor is not None:
            processor.save_pretrained(partial)
