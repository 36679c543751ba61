"""Transcription of speech in audio files."""

from __future__ import annotations

from pathlib import Path

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.columns import RowError
from specjax.data.files import Row
from specjax.data.task import Task

PATHS = ("audio", "audio_filepath")
"""Names of the field, the second in the manifests of NeMo."""


@TASKS.register("transcribe")
class Transcription(Task):
    """Audio files with their transcripts, for speech models."""

    source = None
    reads = "audio, the path of a file, and text"
    metric = "wer"
    example = {"audio": "speech/0001.wav", "text": "the birch canoe slid on the smooth planks"}

    def resolve_paths(self, row: Row, folder: Path) -> Row:
        paths = {name: row[name] for name in PATHS if isinstance(row.get(name), str) and row[name]}
        return row | {name: str(folder / path) for name, path in paths.items()}

    def prompt(self, row: Row) -> str:
        if isinstance(row.get("audio"), dict):
            raise RowError("audio itself in field 'audio', where a path of a file must be")
        return columns.text(row, *PATHS)

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, "text", "sentence", "transcription")
