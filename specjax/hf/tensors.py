"""Streaming tensors between safetensors files and (sharded) parameter trees."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from specjax.hf.families.family import Family, Stored
from specjax.hf.finite import check_finite
from specjax.hf.gguf.header import is_gguf
from specjax.hf.gguf.tensors import GgufFile, own_name
from specjax.models.base import Params, Where
from specjax.models.quantized_weights import WeightFormat, quantize_parameter
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.files import check_regular
from specjax.runtime.json_files import read_json
from specjax.runtime.progress import UNNOTICED, progress

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

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


def tensor_places(path: Path, family: Family, name: str | None = None) -> dict[str, Place]:
    """Tensor name -> place, for every tensor of the family's checkpoint in `path`.

    A single file comes before an index, as in Hugging Face: of the two, an index is what an earlier
    save left over. Checkpoints of a bare model leave the prefix off; the names returned have it.
    Errors tell how to convert `name`, the hub id or `path`.
    """
    single = path if is_gguf(path) else path / SINGLE
    if single.exists():
        with open_checkpoint(single) as file:
            places = {tensor: Place(single, tensor) for tensor in list(file.keys())}
    elif (path / INDEX).exists():
        places = {tensor: Place(path / file, tensor) for tensor, file in _index(path).items()}
    else:
        raise UserError(_no_weights(path, name or str(path)))
    places = {family.rename_tensor(tensor): place for tensor, place in places.items()}
    if any(name.startswith(family.prefix) for name in places):
        return places
    return {n if n == family.output else family.prefix + n: place for n, place in places.items()}


def _index(path: Path) -> dict[str, str]:
    """The file of every tensor of a checkpoint in shards."""
    weights = read_json(path / INDEX).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise UserError(f"{str(path / INDEX)!r} has no 'weight_map' of tensors to files")
    for tensor, file in weights.items():
        if not isinstance(file, str) or not file or "\0" in file or _leaves(file):
            raise UserError(
                f"{str(path / INDEX)!r} has {file!r} for the tensor {tensor!r}; it must be the name"
                " of a file in its folder"
            )
    return weights


def _leaves(file: str) -> bool:
    """Whether a name leads out of its folder, which only links of a cache may do."""
    parts = PurePosixPath(file)
    return parts.is_absolute() or ".." in parts.parts


def _no_weights(path: Path, name: str) -> str:
    """Error message for a checkpoint without safetensors; PyTorch's are not downloaded."""
    pickled = next(iter(sorted(path.glob("pytorch_model*.bin"))), None)
    has = f"{pickled.name} and no {SINGLE}" if pickled else f"neither {SINGLE} nor {INDEX}"
    return (
        f"model directory {str(path)!r} has {has}; specjax reads safetensors only, and"
        f" `python -m specjax.hf.convert {name} FOLDER` makes them of a checkpoint that is"
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
    weights: WeightFormat | None = None,
) -> Params:
    """Streams every tensor of `names` into a tree of arrays, each shard straight to its device.

    With `weights` each kernel is quantized right after reading, so only one is unquantized.
    """
    params: dict[str, Any] = {}
    with progress(names.items(), desc=f"load {path.name}", unit="tensor", delay=UNNOTICED) as bar:
        for where, stored in bar:
            missing = [tensor for tensor in stored.tensors if tensor not in files]
            if missing:
                name = _in_file(path, missing[0])
                raise UserError(f"checkpoint {str(path)!r} lacks the tensor {name!r}")
            node = params
            for key in where[:-1]:
                node = node.setdefault(key, {})
            # Opened for each parameter: pages of a closed map no longer count as host memory.
            with open_parameter(stored, files, shapes[where]) as parameter:
                kind = _choose_dtype(stored, dtype)
                array = _place(parameter, placement(where, shapes[where]), kind)
            if weights and weights.applies_to(where, shapes[where]):
                array = place_kernel(quantize_parameter(where, array, weights), where, placement)
            node[where[-1]] = array
    return params


def _choose_dtype(stored: Stored, dtype: Any) -> np.dtype:
    """The dtype of a parameter where that of the weights is `dtype`."""
    if stored.integer:
        return np.dtype(np.int32)
    return np.dtype(np.float32 if stored.precise else dtype)


def place_kernel(small: Any, where: Where, placement: Placement) -> Any:
    """Places a quantized kernel: its integers, and its scales if they divide, on their devices."""

    def lay(leaf: jax.Array) -> jax.Array:
        sharding = placement(where, leaf.shape)
        return leaf if sharding is None else jax.device_put(leaf, sharding)

    return jax.tree.map(lay, small)


@contextlib.contextmanager
def open_parameter(
    stored: Stored, files: Mapping[str, Place], shape: tuple[int, ...]
) -> Iterator[_Tensor | _Stack]:
    """A context manager for a parameter whose blocks can be read."""
    places = [files[tensor] for tensor in stored.tensors]
    with contextlib.ExitStack() as stack:
        held = {
            file: stack.enter_context(open_checkpoint(file)) for file in {p.file for p in places}
        }
        one = shape[1:] if stored.stacked else shape
        tensors = [_Tensor(held[place.file], stored, one, place) for place in places]
        yield _Stack(tensors, shape) if stored.stacked else tensors[0]


def refuse_extra(
    path: Path, files: Mapping[str, Place], names: Mapping[Where, Stored], ignored: str
) -> None:
    """Refuses tensors that the model does not use: it would not compute the trained function."""
    used = {tensor for stored in names.values() for tensor in stored.tensors}
    extra = sorted(n for n in files if n not in used and not re.fullmatch(ignored, n))
    if extra:
        raise UserError(
            f"checkpoint {str(path)!r} has the tensor {_in_file(path, extra[0])!r} ({len(extra)} in"
            f" all), for which the model described by {_name_description(path)} has no place"
        )


def _in_file(path: Path, name: str) -> str:
    """The name that the file or folder `path` has for a checkpoint's tensor."""
    return own_name(path, name) if is_gguf(path) else name


def _name_description(path: Path) -> str:
    """The file that describes the shapes of a checkpoint's tensors."""
    return "its metadata" if is_gguf(path) else "config.json"


def open_checkpoint(file: Path) -> Any:
    """An open file of weights, safetensors or GGUF."""
    return GgufFile(file) if is_gguf(file) else open_file(file)


def open_file(file: Path) -> Any:
    """An open safetensors file; names it when it is not one."""
    check_regular(file)
    try:
        return safe_open(file, framework="np")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{str(file)!r} is not a readable safetensors file: {error}") from None


class _Tensor:
    """A parameter, or one of a stack, inside an open file, read in blocks of its own layout."""

    def __init__(self, file: Any, stored: Stored, shape: tuple[int, ...], place: Place) -> None:
        self.stored, self.shape, self.place = stored, shape, place
        path = str(place.file)
        try:
            self.slice = file.get_slice(place.name)
            in_file, dtype = tuple(self.slice.get_shape()), self.slice.get_dtype()
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
                    else f"weights are read in {', '.join(READ)} and quantized ones not at all"
                )
            )
        joined_shape = (*shape[:-1], shape[-1] // stored.spans * stored.parts)
        expected = tuple(joined_shape[axis] for axis in stored.order_axes(len(shape)))
        if in_file != expected:
            raise UserError(
                f"tensor {_in_file(place.file, place.name)!r} of {path!r} has shape {in_file},"
                f" {_name_description(place.file)} requires {expected}"
            )

    def read(self, index: tuple[slice, ...], dtype: np.dtype) -> np.ndarray:
        """Block `index` in `dtype`, cast a few rows at a time straight into its final place.

        Temporaries of its size would double the peak, and malloc keeps them after they are freed.
        """
        bounds = _bounds(index, self.shape)
        array = _empty([end - begin for begin, end in bounds], dtype)
        self.read_into(array, bounds)
        return array

    def read_into(self, array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> None:
        """Fills the array with the block of these bounds."""
        *others, (begin, end) = bounds
        if self.is_interleaved:
            count = self.stored.parts
            every = slice(self.stored.part, None, count)
            self._copy(array, [*others, (begin * count, end * count)], every)
            return
        for first, last, offset in self.runs(begin, end):
            there = [*others, (first + offset, last + offset)]
            self._copy(array[..., first - begin : last - begin], there)
        if self.stored.place:
            array += np.arange(begin, end, dtype=array.dtype)

    def runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Bounds of pieces of the last axis, and their offsets in the file."""
        size = self.shape[-1] // self.stored.groups
        others = self.stored.parts - self.stored.spans
        for group in range(begin // size, -(-end // size)):
            before = (group * others + self.stored.part) * (size // self.stored.spans)
            yield max(begin, group * size), min(end, (group + 1) * size), before

    @property
    def is_interleaved(self) -> bool:
        """Whether every so many numbers of the last axis in the file are the parameter's."""
        fused = self.stored.parts > self.stored.spans and not self.stored.transposed
        return fused and len(self.shape) > 1 and self.stored.groups == self.shape[-1]

    def _copy(
        self, target: np.ndarray, bounds: list[tuple[int, int]], every: slice = slice(None)
    ) -> None:
        """Fills the target with a block of the file, of whose last axis it has some numbers."""
        axes = self.stored.order_axes(target.ndim)
        target, bounds = target.transpose(axes), [bounds[axis] for axis in axes]
        rest = tuple(slice(*b) for b in bounds[1:])
        first = bounds[0][0]
        for begin, end in chunks(*bounds[0], math.prod(target.shape[1:])):
            block = target[begin - first : end - first]
            block[...] = self.slice[(slice(begin, end), *rest)][..., every]
            if not self.stored.integer:
                check_finite(self.place.name, str(self.place.file), block)


@dataclasses.dataclass(frozen=True)
class _Stack:
    """A parameter whose first axis counts tensors, of which a block reads its own."""

    tensors: Sequence[_Tensor]
    shape: tuple[int, ...]

    def read(self, index: tuple[slice, ...], dtype: np.dtype) -> np.ndarray:
        (first, last), *rest = _bounds(index, self.shape)
        array = _empty([last - first, *(end - begin for begin, end in rest)], dtype)
        for one, tensor in zip(array, self.tensors[first:last], strict=True):
            tensor.read_into(one, rest)
        return array


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> list[tuple[int, int]]:
    return [s.indices(n)[:2] for s, n in zip(index, shape, strict=True)]


def chunks(begin: int, end: int, row: int) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of about CHUNK numbers of `begin .. end`, in rows of `row` numbers."""
    step = max(1, CHUNK // max(1, row))
    for start in range(begin, end, step):
        yield start, min(start + step, end)


def _place(
    tensor: _Tensor | _Stack, sharding: jax.sharding.Sharding | None, dtype: np.dtype
) -> jax.Array:
    """The parameter as a device array; every distinct block is read once per host."""
    everything = tuple(slice(None) for _ in tensor.shape)
    if sharding is None:
        return jax.device_put(tensor.read(everything, dtype))
    addressable = sharding.addressable_devices
    holders: dict[Any, list[Any]] = {}
    for device, index in sharding.devices_indices_map(tensor.shape).items():
        if device not in addressable:
            continue
        holders.setdefault(tuple((s.start, s.stop) for s in index), []).append(device)
    shards = []
    for bounds, devices in holders.items():
        block = tensor.read(tuple(slice(*b) for b in bounds), dtype)
        shards += [jax.device_put(block, device) for device in devices]
    return jax.make_array_from_single_device_arrays(tensor.shape, sharding, shards)


def _empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Aligned memory that a JAX array on CPU can take over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + size].view(dtype).reshape(shape)


def gather(params: Params, names: Mapping[Where, Stored]) -> dict[str, np.ndarray]:
    """Host tensors in the checkpoint's layout: fused ones joined, stacked ones split."""
    parts: dict[str, list[np.ndarray]] = {}
    layout: dict[str, Stored] = {}
    for where, stored in sorted(names.items(), key=lambda item: item[1].part):
        value = params
        for key in where:
            value = value[key]
        value = processes.whole(value)
        if stored.place:
            value = value - np.arange(len(value))  # int64, as PyTorch's indices are
        for name, one in zip(stored.tensors, value if stored.stacked else [value], strict=True):
            parts.setdefault(name, []).append(one)
            layout[name] = stored
    whole = {name: _fuse(held, layout[name].groups) for name, held in parts.items()}
    return {
        name: np.ascontiguousarray(value.transpose(layout[name].order_axes(value.ndim)))
        for name, value in whole.items()
    }


def _fuse(parts: list[np.ndarray], groups: int) -> np.ndarray:
    """Parameters side by side along their last axis, in each of its `groups`."""
    if len(parts) == 1:
        return parts[0]
    grouped = [part.reshape(*part.shape[:-1], groups, -1) for part in parts]
    return np.concatenate(grouped, -1).reshape(*parts[0].shape[:-1], -1)
