"""`python -m specjax.hf.convert MODEL FOLDER`: pytorch_model.bin to safetensors.

Published Medusa heads too, medusa_lm_head.pt.

For a directory or hub id that is published only as PyTorch files, which this project never reads
otherwise. Needs PyTorch, here alone; of a pickle only tensors are unpacked (`weights_only`).
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specjax.hf import medusa
from specjax.hf.hub import SMALL_FILES, locate
from specjax.hf.tensors import INDEX, SINGLE
from specjax.runtime.errors import UserError
from specjax.runtime.files import replacing_directory
from specjax.runtime.json_files import read_json
from specjax.runtime.progress import UNNOTICED, progress

PICKLED = "pytorch_model*.bin"
PICKLED_SINGLE, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
GROUP = 4 << 30
"""Bytes of an output file; about twice as much is in memory."""
SAFE_TORCH = (2, 6)
"""The first version with a safe `weights_only` (CVE-2025-32434)."""


def main(argv: Sequence[str]) -> int:
    """Converts; returns the exit code."""
    if len(argv) != 3 or argv[1].startswith("-"):
        print((__doc__ or "").partition("\n")[0], file=sys.stderr)
        return 2
    try:
        convert(argv[1], argv[2])
    except UserError as error:
        print(f"specjax: {error}", file=sys.stderr)
        return 2
    print(f"{argv[2]} holds {argv[1]} as safetensors")
    return 0


def convert(name: str | Path, folder: str | Path) -> None:
    """Writes a copy of a checkpoint whose PyTorch weights are safetensors, a few GB at a time.

    The copy appears complete or not at all. Tensors keep their dtypes; of those that share memory
    the first one is kept, as Hugging Face does.

    Raises:
      UserError: when PyTorch or a file is missing, or a file holds something else than tensors.
    """
    torch = _torch()
    path = locate(name, (PICKLED, medusa.PICKLED, *SMALL_FILES))
    heads = path / medusa.PICKLED
    files = [] if heads.exists() else _list_pickled_files(path)
    with replacing_directory(Path(folder)) as partial:
        for pattern in SMALL_FILES:
            for file in path.glob(pattern):
                if file.name not in (INDEX, PICKLED_INDEX):
                    shutil.copy(file, partial / file.name)
        if heads.exists():
            _write_heads(partial, _tensors(torch, heads))
            return
        with progress(files, desc="convert", unit="file", delay=UNNOTICED) as bar:
            _write(partial, (group for file in bar for group in _groups(_tensors(torch, file))))


def _write(folder: Path, groups: Iterator[dict[str, Any]]) -> None:
    """Writes each group of tensors as one safetensors file, and the index of several."""
    from safetensors.torch import save_file

    weights: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        file = f"model-{number:05d}.safetensors"
        save_file(group, folder / file, metadata={"format": "pt"})
        weights |= dict.fromkeys(group, file)
    files = set(weights.values())
    if len(files) == 1:
        (folder / files.pop()).rename(folder / SINGLE)
    else:
        (folder / INDEX).write_text(json.dumps({"weight_map": weights}, indent=2), "utf-8")


def _write_heads(folder: Path, tensors: dict[str, Any]) -> None:
    """Published heads as one file; their layers may share memory and are all stored."""
    from safetensors.torch import save_file

    copies = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file(copies, folder / medusa.FILE, metadata={"format": "pt"})


def _groups(tensors: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Tensors in groups of about GROUP bytes, each in memory of its own.

    Of those that share memory, as a tied embedding under several names, the first is kept.
    """
    group: dict[str, Any] = {}
    seen: set[tuple[Any, ...]] = set()
    for name, tensor in tensors.items():
        same = tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
        if tensor.numel() and same in seen:
            continue
        seen.add(same)
        # Cloned, for views of one storage cannot be stored.
        group[name] = tensor.contiguous().clone()
        if sum(kept.nbytes for kept in group.values()) >= GROUP:
            yield group
            group = {}
    if group:
        yield group


def _torch() -> Any:
    """The module, of a version whose `weights_only` is safe."""
    try:
        import torch
    except ImportError:
        raise UserError(
            "converting needs PyTorch, which is not installed: pip install torch"
        ) from None
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < SAFE_TORCH:
        raise UserError(
            f"converting needs PyTorch {'.'.join(map(str, SAFE_TORCH))} or newer, not"
            f" {torch.__version__}: older ones can be made to run code of a checkpoint"
        )
    return torch


def _list_pickled_files(path: Path) -> list[Path]:
    """The PyTorch files of a checkpoint: a single one, or the shards of its index."""
    if (path / PICKLED_SINGLE).exists():
        return [path / PICKLED_SINGLE]
    if not (path / PICKLED_INDEX).exists():
        raise UserError(
            f"model directory {str(path)!r} has neither {PICKLED_SINGLE} nor {PICKLED_INDEX};"
            " there is nothing to convert"
        )
    weights = read_json(path / PICKLED_INDEX).get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(f, str) for f in weights.values()):
        raise UserError(f"{str(path / PICKLED_INDEX)!r} has no 'weight_map' of tensors to files")
    return [path / file for file in sorted(set(weights.values()))]


def _tensors(torch: Any, source: Path) -> dict[str, Any]:
    """The tensors of one PyTorch file, mapped: they come into memory when they are copied."""
    try:
        state = torch.load(source, map_location="cpu", weights_only=True, mmap=_is_zip(source))
    except FileNotFoundError:
        raise UserError(f"{str(source)!r} does not exist") from None
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).split("\n")[0].split(". ")[0]
        raise UserError(f"{str(source)!r} is no file of PyTorch tensors: {reason}") from None
    if not isinstance(state, dict) or not state or not all(map(torch.is_tensor, state.values())):
        raise UserError(f"{str(source)!r} must hold tensors by name and nothing else")
    return state


def _is_zip(file: Path) -> bool:
    """Whether a file is in PyTorch's format since 1.6, which can be mapped."""
    with open(file, "rb") as opened:
        return opened.read(2) == b"PK"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
