"""Finds a checkpoint's token embedding under its own name or another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from specjax.hf.families.family import Stored
from specjax.hf.tensors import Place, chunks, open_checkpoint
from specjax.models.base import Where
from specjax.runtime.errors import UserError

COPIES = {
    f"{prefix}shared.weight": (
        f"{prefix}encoder.embed_tokens.weight",
        f"{prefix}decoder.embed_tokens.weight",
    )
    for prefix in ("", "model.")
} | {
    f"model.encoder.embed_tokens.{tensor}": (f"model.decoder.embed_tokens.{tensor}",)
    for tensor in ("weight", "eoi_embedding")
}
"""Other names under which an embedding that encoder and decoder share is stored.

Those of T5 and BART in Hugging Face's order, then those of T5Gemma 2.
"""


def add_embedding(
    files: Mapping[str, Place], embedding: str, output: str, tied: bool
) -> dict[str, Place]:
    """The places of tensors, including the embedding under any of its names.

    A saved model keeps one name of shared tensors, not always the same one: MADLAD-400 has only the
    decoder's. The `output` layer is the embedding where both are `tied`.
    """
    places = dict(files)
    if embedding in places:
        return places
    copy = next((name for name in COPIES.get(embedding, ()) if name in places), None)
    if copy:
        places[embedding] = places[copy]
    elif tied and output in places:
        places[embedding] = places.pop(output)
    return places


def drop_copied_head(files: Mapping[str, Place], embedding: str, output: str) -> dict[str, Place]:
    """The places without an `output` layer that only repeats the embedding.

    Conversions from PyTorch's own format write it; read, it would be held twice.
    """
    places = dict(files)
    head, table = places.get(output), places.get(embedding)
    if head and table and _equal(head, table):
        del places[output]
    return places


def refuse_differing_copies(
    path: Path, files: Mapping[str, Place], names: Mapping[Where, Stored]
) -> None:
    """Refuses an encoder or decoder with a separate embedding, which is not supported.

    Hugging Face computes with copies that differ.
    """
    used = {tensor for stored in names.values() for tensor in stored.tensors}
    for embedding in sorted(used & COPIES.keys()):
        for copy in COPIES[embedding]:
            if copy in used or copy not in files or _equal(files[copy], files[embedding]):
                continue
            raise UserError(
                f"checkpoint {str(path)!r} has a {copy!r} that differs from {embedding!r}; encoder,"
                " decoder and input embedding must be the same"
            )


def _equal(one: Place, other: Place) -> bool:
    """Whether two stored tensors hold the same numbers; reads a few rows at a time."""
    if one == other:
        return True
    with open_checkpoint(one.file) as first, open_checkpoint(other.file) as second:
        try:
            a, b = first.get_slice(one.name), second.get_slice(other.name)
        except SafetensorError as error:
            raise UserError(
                f"tensor {one.name!r} cannot be read from {str(one.file)!r}: {error}"
            ) from None
        shape = a.get_shape()
        if shape != b.get_shape() or a.get_dtype() != b.get_dtype():
            return False
        rows = chunks(0, shape[0], shape[-1])
        return all(np.array_equal(a[begin:end], b[begin:end]) for begin, end in rows)
