"""Texts of files: transcripts of speech, and what images say."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.columns import RowError
from specjax.data.files import Row
from specjax.data.task import Task


class OfFiles(Task):
    """Files with their texts, for models that read no tokens."""

    source = None
    paths: ClassVar[tuple[str, ...]]
    """Names of the field with a file's path."""

    texts: ClassVar[tuple[str, ...]]
    """Names of the field with its text."""

    def resolve_paths(self, row: Row, folder: Path) -> Row:
        found = {name: row[name] for name in self.paths if isinstance(row.get(name), str)}
        return row | {name: str(folder / path) for name, path in found.items() if path}

    def prompt(self, row: Row) -> str:
        name = self.paths[0]
        if isinstance(row.get(name), dict):
            raise RowError(f"{name} itself in field {name!r}, where a path of a file must be")
        return columns.text(row, *self.paths)

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, *self.texts)


@TASKS.register("transcribe")
class Transcription(OfFiles):
    """Audio files with their transcripts, for speech models."""

    reads = "audio, the path of a file, and text"
    metric = "wer"
    example = {"audio": "speech/0001.wav", "text": "the birch canoe slid on the smooth planks"}
    paths = "audio", "audio_filepath"  # the second in the manifests of NeMo
    texts = "text", "sentence", "transcription"


@TASKS.register("read_image")
class ReadImage(OfFiles):
    """Image files with the texts that they show, for models that read images."""

    reads = "image, the path of a file, and text"
    metric = "cer"
    example = {"image": "lines/0001.png", "text": "the birch canoe slid on the smooth planks"}
    paths = "image", "file_name"  # the second in folders of images of Hugging Face's datasets
    texts = "text", "ground_truth", "transcription"
