"""Tensors of a GGUF file under the names of a Hugging Face checkpoint, dequantized on reading.

Rows are mapped and dequantized a few at a time: only what the model keeps is in memory as a whole.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from specjax.hf.gguf.architectures import (
    ARCHITECTURES,
    FACTORS,
    OUTSIDE,
    Architecture,
)
from specjax.hf.gguf.header import ARCHITECTURE, Tensor, package, read_header
from specjax.runtime.errors import UserError

SCALED = ("Q8_0", "Q5_0", "Q4_0", "IQ4_NL")
"""Types whose blocks begin with a float16 scale, of numbers that are this scale times integers."""
BLOCK = 32
"""Numbers of such a block."""
SCALE_BYTES = 2


@dataclasses.dataclass(frozen=True)
class Slice:
    """A tensor that is read a few rows at a time, as safetensors' slices are."""

    data: np.ndarray  # [rows, bytes], mapped
    tensor: Tensor
    interleaved: int = 0  # heads whose two halves are interleaved; 0: rows in order
    offset: float = 0.0  # is added to the stored numbers

    def get_shape(self) -> list[int]:
        """As PyTorch has it."""
        return list(self.tensor.shape)

    def get_dtype(self) -> str:
        """That of the numbers that are read, in safetensors' words."""
        return "F32"

    def __getitem__(self, index: Any) -> np.ndarray:
        """The numbers of some rows, or of some of their columns, in float32."""
        rows, *columns = index if isinstance(index, tuple) else (index,)
        if len(self.tensor.shape) == 1:
            return self._numbers(self.data)[0, rows]
        return self._numbers(self._rows(rows))[:, *columns]

    def scaled_integers(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Integers [rows, D], and scales [rows, D / BLOCK], of one of the SCALED types."""
        stored = np.array(self._rows(rows))
        blocks = stored.reshape(len(stored), self.tensor.shape[-1] // BLOCK, -1)
        scales = blocks[..., :SCALE_BYTES].copy().view(np.float16)[..., 0].astype(np.float32)
        # With scales of 1 the numbers are the integers.
        blocks[..., :SCALE_BYTES] = np.ones(1, np.float16).view(np.uint8)
        return self._numbers(stored).astype(np.int8), scales

    def _rows(self, rows: slice) -> np.ndarray:
        return self.data[self._order()[rows]] if self.interleaved else self.data[rows]

    def _order(self) -> np.ndarray:
        """The position of each row in the file, for interleaved pairs."""
        stored = np.arange(self.tensor.shape[0]).reshape(self.interleaved, -1, 2)
        return stored.swapaxes(1, 2).ravel()

    def _numbers(self, stored: np.ndarray) -> np.ndarray:
        gguf = package()
        numbers = gguf.dequantize(stored, gguf.GGMLQuantizationType[self.tensor.kind])
        return numbers + np.float32(self.offset) if self.offset else numbers


class GgufFile:
    """An open GGUF file, which is used as an open safetensors file is."""

    def __init__(self, path: Path) -> None:
        """Maps the file.

        Raises:
          UserError: when it is none that is read.
        """
        self._header = read_header(path)
        self._architecture = get_architecture(path)
        self._data = np.memmap(path, np.uint8, "r")
        self._names = {
            checkpoint_name(name, self._architecture): name
            for name in self._header.tensors
            if name not in FACTORS
        }

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, *error: object) -> None:
        del self._data

    def keys(self) -> list[str]:
        """The names of tensors in a checkpoint; of those that no layer has, the file's own."""
        return list(self._names)

    def get_slice(self, name: str) -> Slice:
        """A tensor by its name in a checkpoint."""
        own = self._names[name]
        tensor = self._header.tensors[own]
        offset = -1.0 if self._architecture.offset_norms and "norm.weight" in own else 0.0
        return Slice(
            _view_rows(self._data, tensor), tensor, self._count_interleaved_heads(own), offset
        )

    def _count_interleaved_heads(self, own: str) -> int:
        if not self._architecture.interleaved or not own.endswith(
            ("attn_q.weight", "attn_k.weight")
        ):
            return 0
        prefix = f"{self._header.metadata[ARCHITECTURE]}.attention.head_count"
        heads = self._header.metadata[prefix]
        return heads if ".attn_q." in own else self._header.metadata.get(f"{prefix}_kv", heads)


def _view_rows(data: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The bytes of a tensor's rows."""
    rows = int(np.prod(tensor.shape[:-1], dtype=np.int64))
    begin = tensor.offset
    return data[begin : begin + rows * tensor.row_bytes].reshape(rows, tensor.row_bytes)


def get_architecture(path: Path) -> Architecture:
    """The table of a file's architecture.

    Raises:
      UserError: when it is none that is read.
    """
    name = read_header(path).metadata[ARCHITECTURE]
    if name not in ARCHITECTURES:
        raise UserError(
            f"GGUF file {str(path)!r} has {ARCHITECTURE} {name!r}; supported are"
            f" {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def checkpoint_name(name: str, architecture: Architecture) -> str:
    """The name that a tensor of a GGUF file has in a checkpoint; its own where it has none."""
    module, _, kind = name.rpartition(".")
    if module in OUTSIDE:
        return f"{OUTSIDE[module]}.{kind}"
    block, _, rest = module.partition(".")
    layer, _, module = rest.partition(".")
    if block != "blk" or module not in architecture.layer:
        return name
    return f"model.layers.{layer}.{architecture.layer[module]}.{kind}"


def own_name(path: Path, name: str) -> str:
    """The name in a GGUF file of a tensor that a checkpoint has under this one."""
    module, _, kind = name.rpartition(".")
    outside = {long: short for short, long in OUTSIDE.items()}
    if module in outside:
        return f"{outside[module]}.{kind}"
    names = {long: short for short, long in get_architecture(path).layer.items()}
    layer, _, module = module.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{names[module]}.{kind}" if module in names else name


def read_factors(path: Path) -> dict[str, list[float]]:
    """Those of the tensors FACTORS that a file has."""
    tensors = read_header(path).tensors
    data = np.memmap(path, np.uint8, "r")
    return {
        name: Slice(_view_rows(data, tensors[name]), tensors[name])[:].ravel().tolist()
        for name in FACTORS
        if name in tensors
    }
