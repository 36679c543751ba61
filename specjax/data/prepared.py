"""Rows of prepared TensorFlow Datasets, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from specjax.data.files import Row
from specjax.errors import UserError


def tfds_rows(path: str, subset: str, split: str, data_dir: str) -> Iterator[Row]:
    """Rows of a data set `name`, `name/config` or `name/config:version`; text is decoded.

    The data set must be prepared in `data_dir` with `file_format="array_record"`: record files
    of other formats cannot be read at random, and preparing most of them needs TensorFlow.

    Raises:
      UserError: when it is not there, or was prepared in another format.
    """
    name = f"{path}/{subset}" if subset else path
    for row in _data_source(name, split, data_dir):
        yield _plain(row)


def _data_source(name: str, split: str, data_dir: str) -> Iterable[Any]:
    import tensorflow_datasets as tfds

    try:
        return tfds.data_source(name, split=split, data_dir=data_dir or None, download=False)
    except (ValueError, AssertionError, NotImplementedError, OSError) as error:
        absent = isinstance(error, NotImplementedError)
        reason = "there is none in this format" if absent else str(error).splitlines()[0]
        raise UserError(
            f"path {name!r} (split {split!r}, data_dir {data_dir!r}) must be a data set that TFDS "
            f"prepared as array_record: {reason}"
        ) from None


def _plain(value: Any) -> Any:
    """The same with text for bytes and Python values for arrays."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value
