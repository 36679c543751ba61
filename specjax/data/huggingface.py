"""Rows of Hugging Face data sets: from the hub or its cache, and from local Parquet files."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator
from typing import Any

from specjax.data.files import Row
from specjax.errors import UserError

REACH_SECONDS = 5.0


def hub_rows(path: str, subset: str, split: str) -> Iterator[Row]:
    """Rows of a hub id, which is downloaded once; without network they come from the cache.

    Raises:
      UserError: when the hub id, its subset or its split cannot be loaded.
    """
    reachable = hub_is_reachable()
    with _named(path, subset, split, reachable), _offline(not reachable):
        rows = _load(path, subset or None, split=split)
    yield from rows


def parquet_rows(path: str, subset: str, split: str) -> Iterator[Row]:
    """Rows of a Parquet file, of the files that match a glob, or of a directory's split.

    Files and globs may be on the hub too, as `hf://datasets/...`. They are read whole: `subset`
    and `split` choose within a directory only.

    Raises:
      UserError: when there is no such file, subset or split, or it is not Parquet.
    """
    with _named(path, subset, split, reachable=True):
        if os.path.isdir(path):
            yield from _load(path, subset or None, split=split, streaming=True)
        else:
            _check_there(path)
            yield from _load("parquet", data_files=path, split="train", streaming=True)


def hub_is_reachable() -> bool:
    """Whether the hub answers within a few seconds."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=REACH_SECONDS)
    except Exception:  # whatever fails here would fail in `datasets`, after long retries
        return False
    return True


def _check_there(path: str) -> None:
    if path.startswith("hf://"):
        if not hub_is_reachable():
            raise ConnectionError
        return
    files = glob.glob(path)
    if not files:
        raise FileNotFoundError("no such file or directory")
    for file in files:
        if not os.path.isfile(file):
            raise FileNotFoundError(f"{file!r} is not a file")


def _load(*args: Any, **kwargs: Any) -> Any:
    import datasets

    return datasets.load_dataset(*args, **kwargs)


@contextlib.contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """Keeps `datasets` from asking the hub, which it would do for half a minute."""
    from datasets import config

    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = before or wanted
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def _named(path: str, subset: str, split: str, reachable: bool) -> Iterator[None]:
    """Turns the errors of `datasets` into one sentence about the source."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    except ConnectionError:
        reason = "not in the cache, and the Hugging Face hub cannot be reached"
        raise UserError(
            f"path {path!r} is {reason}; connect, or name a local file in data.path"
        ) from None
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        cached = "" if reachable else " from the cache, as the Hugging Face hub cannot be reached"
        raise UserError(
            f"path {path!r} (subset {subset!r}, split {split!r}) cannot be read{cached}: {reason}"
        ) from None
