"""Streaming tensors between safetensors files and (sharded) parameter trees."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from specjax import hosts
from specjax.checkpoints.config_json import read_json
from specjax.errors import UserError
from specjax.models.base import Params
from specjax.models.families.family import Stored, Where
from specjax.progress import UNNOTICED, progress

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
OUTPUT_LAYER = "lm_head.weight"

READ = ("F64", "F32", "F16", "BF16")
INTEGERS = ("I32", "I64")
"""Number formats of weights, in safetensors' words."""

CHUNK = 1 << 18
"""Numbers of a tensor that are cast at a time."""

ALIGNMENT = 64
"""Bytes; XLA's on CPU."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a tensor is."""

    file: Path
    name: str  # in the file


Placement = Callable[[Where, tuple[int, ...]], jax.sharding.Sharding | None]
"""The sharding of a parameter by path and shape; None for the default device."""


def on_one_device(where: Where, shape: tuple[int, ...]) -> None:
    """The placement of an unsharded model."""


def tensor_places(path: Path, prefix: str, name: str | None = None) -> dict[str, Place]:
    """Tensor name -> place, for every tensor of the checkpoint in `path`.

    A single file comes before an index, as in Hugging Face: of the two, an index is what an earlier
    save left behind. Checkpoints of a bare model leave `prefix` off; the names returned have it.
    A refusal says how to convert `name`, the hub id or `path`.
    """
    if (path / SINGLE).exists():
        with open_file(path / SINGLE) as file:
            places = {tensor: Place(path / SINGLE, tensor) for tensor in list(file.keys())}
    elif (path / INDEX).exists():
        places = {tensor: Place(path / file, tensor) for tensor, file in _index(path).items()}
    else:
        raise UserError(_no_weights(path, name or str(path)))
    if any(name.startswith(prefix) for name in places):
        return places
    return {n if n == OUTPUT_LAYER else prefix + n: place for n, place in places.items()}


def _index(path: Path) -> dict[str, str]:
    """The file of every tensor of a checkpoint in shards."""
    weights = read_json(path / INDEX).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise UserError(f"{str(path / INDEX)!r} has no 'weight_map' of tensors to files")
    for tensor, file in weights.items():
        if not isinstance(file, str) or not file or "\0" in file:
            raise UserError(
                f"{str(path / INDEX)!r} has {file!r} for the tensor {tensor!r}; it must be the name"
                " of a file"
            )
    return weights


def _no_weights(path: Path, name: str) -> str:
    """What to do about a checkpoint without safetensors; those of PyTorch are not downloaded."""
    pickled = next(iter(sorted(path.glob("pytorch_model*.bin"))), None)
    has = f"{pickled.name} and no {SINGLE}" if pickled else f"neither {SINGLE} nor {INDEX}"
    return (
        f"model directory {str(path)!r} has {has}; specjax reads safetensors only, and"
        f" `python -m specjax.checkpoints.convert {name} FOLDER` makes them of a checkpoint that is"
        " published as pytorch_model.bin"
    )


def flat_shapes(params: Params) -> dict[Where, tuple[int, ...]]:
    """Shapes of (abstract) parameters by path."""
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    return {tuple(k.key for k in path): leaf.shape for path, leaf in flat}


def read_params(
    path: Path,
    files: Mapping[str, Place],
    names: Mapping[Where, Stored],
    shapes: Mapping[Where, tuple[int, ...]],
    dtype: Any,
    placement: Placement = on_one_device,
) -> Params:
    """Streams every tensor of `names` into a tree of arrays, each shard straight to its device."""
    params: dict[str, Any] = {}
    with progress(names.items(), desc=f"load {path.name}", unit="tensor", delay=UNNOTICED) as bar:
        for where, stored in bar:
            if stored.tensor not in files:
                raise UserError(f"checkpoint {str(path)!r} lacks the tensor {stored.tensor!r}")
            node = params
            for key in where[:-1]:
                node = node.setdefault(key, {})
            place = files[stored.tensor]
            # Opened anew for each tensor: pages of a closed map no longer count as host memory.
            with open_file(place.file) as file:
                tensor = _Tensor(file, stored, shapes[where], place)
                kind = np.dtype(np.int32 if stored.integer else dtype)
                node[where[-1]] = _place(tensor, placement(where, shapes[where]), kind)
    return params


def refuse_extra(
    path: Path, files: Mapping[str, Place], names: Mapping[Where, Stored], ignored: str
) -> None:
    """Refuses tensors that the model has no place for: it would not compute what was trained."""
    used = {stored.tensor for stored in names.values()}
    extra = sorted(n for n in files if n not in used and not re.fullmatch(ignored, n))
    if extra:
        raise UserError(
            f"checkpoint {str(path)!r} has the tensor {extra[0]!r} ({len(extra)} in all), for"
            " which the model described by config.json has no place"
        )


def open_file(file: Path) -> Any:
    """An open safetensors file; names it when it is not one."""
    try:
        return safe_open(file, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{str(file)!r} is not a readable safetensors file: {error}") from None


class _Tensor:
    """A parameter inside an open file, read in blocks of the parameter's own layout."""

    def __init__(self, file: Any, stored: Stored, shape: tuple[int, ...], place: Place) -> None:
        self.stored, self.shape = stored, shape
        path = str(place.file)
        try:
            self._slice = file.get_slice(place.name)
            in_file, dtype = tuple(self._slice.get_shape()), self._slice.get_dtype()
        except SafetensorError as error:
            raise UserError(
                f"tensor {place.name!r} cannot be read from {path!r}: {error}"
            ) from None
        if dtype not in (INTEGERS if stored.integer else READ):
            raise UserError(
                f"tensor {place.name!r} of {path!r} is stored as {dtype}; "
                + (
                    f"ids are read in {', '.join(INTEGERS)}"
                    if stored.integer
                    else f"weights are read in {', '.join(READ)} and quantised ones not at all"
                )
            )
        fused = (*shape[:-1], shape[-1] * stored.parts)
        expected = fused[::-1] if stored.transposed else fused
        if in_file != expected:
            raise UserError(
                f"tensor {place.name!r} of {path!r} has shape {in_file}, config.json asks for"
                f" {expected}"
            )

    def read(self, index: tuple[slice, ...], dtype: np.dtype) -> np.ndarray:
        """Block `index` in `dtype`, cast a few rows at a time straight into its final place.

        Temporaries of its size would double the peak, and malloc keeps them after they are freed.
        """
        bounds = [s.indices(n)[:2] for s, n in zip(index, self.shape, strict=True)]
        array = _empty([end - begin for begin, end in bounds], dtype)
        offset = self.stored.part * self.shape[-1]
        bounds[-1] = (bounds[-1][0] + offset, bounds[-1][1] + offset)
        target, bounds = (array.T, bounds[::-1]) if self.stored.transposed else (array, bounds)
        rest = tuple(slice(*b) for b in bounds[1:])
        first = bounds[0][0]
        for begin, end in chunks(*bounds[0], math.prod(target.shape[1:])):
            target[begin - first : end - first] = self._slice[(slice(begin, end), *rest)]
        if self.stored.place:
            array += np.arange(*index[-1].indices(self.shape[-1]), dtype=dtype)
        return array


def chunks(begin: int, end: int, row: int) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of about CHUNK numbers of `begin .. end`, in rows of `row` numbers."""
    step = max(1, CHUNK // max(1, row))
    for start in range(begin, end, step):
        yield start, min(start + step, end)


def _place(tensor: _Tensor, sharding: jax.sharding.Sharding | None, dtype: np.dtype) -> jax.Array:
    """The parameter as a device array; every distinct block is read once per host."""
    everything = tuple(slice(None) for _ in tensor.shape)
    if sharding is None:
        return jax.device_put(tensor.read(everything, dtype))
    where = sharding.addressable_devices_indices_map(tensor.shape)
    holders: dict[Any, list[jax.Device]] = {}
    for device, index in where.items():
        holders.setdefault(tuple((s.start, s.stop) for s in index), []).append(device)
    shards = []
    for bounds, devices in holders.items():
        block = tensor.read(tuple(slice(*b) for b in bounds), dtype)
        shards += [jax.device_put(block, device) for device in devices]
    return jax.make_array_from_single_device_arrays(tensor.shape, sharding, shards)


def _empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Memory that a JAX array on CPU takes over without a copy, for which it must be aligned."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].view(dtype).reshape(shape)


def gather(params: Params, names: Mapping[Where, Stored]) -> dict[str, np.ndarray]:
    """Host tensors as a checkpoint stores them, fused ones put together."""
    parts: dict[str, list[np.ndarray]] = {}
    layout = {}
    for where, stored in sorted(names.items(), key=lambda item: item[1].part):
        value = params
        for key in where:
            value = value[key]
        value = hosts.whole(value)
        if stored.place:
            value = value - np.arange(len(value))  # int64, as PyTorch's indices are
        parts.setdefault(stored.tensor, []).append(value)
        layout[stored.tensor] = stored.transposed
    whole = {name: p[0] if len(p) == 1 else np.concatenate(p, -1) for name, p in parts.items()}
    return {
        name: np.ascontiguousarray(value.T if layout[name] else value)
        for name, value in whole.items()
    }
