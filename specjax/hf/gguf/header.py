"""The header of a GGUF file: its metadata, and where its tensors are.

Read here and not by the package `gguf`, whose reader trusts the lengths in a damaged file.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import mmap
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specjax.runtime.errors import UserError

SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
"""Default alignment of tensors in bytes."""
MOST_AXES = 4

ARCHITECTURE = "general.architecture"

TYPES = tuple(
    """
    F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S
    IQ3_XXS IQ3_S IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4
    """.split()  # noqa: SIM905
)
"""Tensor types that are read."""

_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""Codes of `struct` by the type of a value in the metadata."""
_TEXT, _ARRAY = 8, 9

_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Where a tensor is in the file."""

    kind: str  # one of TYPES
    shape: tuple[int, ...]  # as PyTorch has it: [out, in] of a linear layer
    offset: int  # from the beginning of the file, in bytes
    row_bytes: int  # of a row along its last axis


@dataclasses.dataclass(frozen=True)
class Texts:
    """An array of texts, such as the vocabulary, that is read when it is needed."""

    path: Path
    offset: int
    count: int

    def read(self) -> list[str]:
        """The texts."""
        with _map_file(self.path) as data:
            cursor = _Cursor(self.path, data, self.offset)
            return [cursor.text() for _ in range(self.count)]


@dataclasses.dataclass(frozen=True)
class Header:
    """Metadata and tensors of a GGUF file."""

    metadata: Mapping[str, Any]  # numbers, texts, lists of numbers, and `Texts`
    tensors: Mapping[str, Tensor]


def is_gguf(path: str | Path) -> bool:
    """Whether a path is that of a GGUF file, by its name; folders may be called so too."""
    return str(path).endswith(SUFFIX) and not Path(path).is_dir()


def read_header(path: Path) -> Header:
    """The header of a file; read once while the file stays as it is.

    Raises:
      UserError: when the file is missing, damaged, one part of several, or of a type not read.
    """
    part = _PART.search(path.name)
    if part and int(part[1]) > 1:
        raise _refusal(path, f"is one part of {int(part[1])}; {_MERGE}")
    try:
        status = path.stat()
        if not path.is_file():
            raise _refusal(path, "is no regular file")
        return _read(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror}") from None


_MERGE = "llama.cpp's `llama-gguf-split --merge` makes one file of them, which is read"


def _refusal(path: Path, reason: str) -> UserError:
    return UserError(f"GGUF file {str(path)!r} {reason}")


@functools.lru_cache(maxsize=4)
def _read(path: Path, size: int, modified: int) -> Header:
    del modified  # only part of the cache key
    with open(path, "rb") as file:
        begin = file.read(len(MAGIC))
    if begin != MAGIC:
        raise _refusal(path, f"begins with {begin!r}; a GGUF file begins with {MAGIC!r}")
    with _map_file(path) as data:
        cursor = _Cursor(path, data, len(MAGIC))
        version = cursor.number("I")
        if version not in VERSIONS:
            raise _refusal(
                path, f"has version {version}; versions 2 and 3, little-endian, are read"
            )
        tensors, values = cursor.number("Q"), cursor.number("Q")
        metadata = dict(_value(cursor) for _ in range(values))
        _check_metadata(path, metadata)
        infos = [_info(cursor) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    start = -(-cursor.offset // alignment) * alignment
    placed = {info[0]: _make_tensor(path, *info, start, size) for info in infos}
    return Header(metadata, placed)


def _check_metadata(path: Path, metadata: Mapping[str, Any]) -> None:
    """Refuses a file without an architecture, parts of a model, and tensors aligned to nothing."""
    if not isinstance(metadata.get(ARCHITECTURE), str):
        raise _refusal(path, f"lacks the key {ARCHITECTURE!r}")
    parts = metadata.get("split.count", 0)
    if type(parts) is int and parts > 1:
        raise _refusal(path, f"is one part of {parts}; {_MERGE}")
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1:
        raise _refusal(path, f"has general.alignment {alignment!r}; it must be a positive integer")


class _Cursor:
    """Reads values sequentially, never beyond the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap, offset: int) -> None:
        self.path, self.offset = path, offset
        self._data = data

    def bytes(self, size: int) -> bytes:
        """The next `count` bytes."""
        begin, self.offset = self.offset, self.offset + size
        if self.offset > len(self._data):
            raise _refusal(self.path, "is truncated: it ends within its header")
        return self._data[begin : self.offset]

    def number(self, code: str) -> Any:
        """The next number, of a code of `struct`."""
        return self.numbers(code, 1)[0]

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        """The next `count` numbers."""
        return struct.unpack(f"<{count}{code}", self.bytes(count * struct.calcsize(f"<{code}")))

    def text(self) -> str:
        """The next text."""
        try:
            return self.bytes(self.number("Q")).decode("utf-8")
        except UnicodeDecodeError:
            raise _refusal(self.path, "is damaged: its header has text that is not UTF-8") from None


def _value(cursor: _Cursor) -> tuple[str, Any]:
    """The next key of the metadata and its value."""
    key, kind = cursor.text(), cursor.number("I")
    if kind in _NUMBERS:
        return key, cursor.number(_NUMBERS[kind])
    if kind == _TEXT:
        return key, cursor.text()
    if kind != _ARRAY:
        raise _refusal(cursor.path, f"has {key!r} of the unknown type {kind}")
    kind, count = cursor.number("I"), cursor.number("Q")
    if kind in _NUMBERS:
        return key, list(cursor.numbers(_NUMBERS[kind], count))
    if kind != _TEXT:
        raise _refusal(cursor.path, f"has {key!r}, an array of the unknown type {kind}")
    texts = Texts(cursor.path, cursor.offset, count)
    for _ in range(count):
        cursor.bytes(cursor.number("Q"))
    return key, texts


def _info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and offset of the next tensor."""
    name, axes = cursor.text(), cursor.number("I")
    if axes > MOST_AXES:
        raise _refusal(cursor.path, f"has the tensor {name!r} of {axes} axes; at most 4 are read")
    shape = cursor.numbers("Q", axes)[::-1]  # the file has the axis that moves fastest first
    return name, shape, cursor.number("I"), cursor.number("Q")


def _make_tensor(
    path: Path, name: str, shape: tuple[int, ...], kind: int, offset: int, start: int, size: int
) -> Tensor:
    """A tensor whose type is read and whose numbers are all in the file."""
    gguf = package()
    known = {int(one): one.name for one in gguf.GGMLQuantizationType}
    if known.get(kind) not in TYPES:
        raise _refusal(
            path,
            f"has the tensor {name!r} of type {known.get(kind, kind)}; types that are read are"
            f" {', '.join(TYPES)}",
        )
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    if not shape or shape[-1] % block:
        raise _refusal(
            path, f"has the tensor {name!r} of shape {shape}, which blocks of {block} do not divide"
        )
    row_bytes = shape[-1] // block * block_bytes
    end = start + offset + math.prod(shape[:-1]) * row_bytes
    if end > size:
        raise _refusal(
            path, f"is truncated: tensor {name!r} ends at byte {end:,}, the file at {size:,}"
        )
    return Tensor(known[kind], shape, start + offset, row_bytes)


def _map_file(path: Path) -> mmap.mmap:
    """The file as memory that is read when it is used."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def package() -> Any:
    """The package `gguf`.

    Raises:
      UserError: when it is not installed.
    """
    try:
        import gguf
    except ImportError:
        raise UserError(
            "GGUF files need the package gguf, which is not installed: pip install 'specjax[gguf]'"
        ) from None
    return gguf
