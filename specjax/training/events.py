"""The event file that TensorBoard reads, written in the caller's thread.

tensorboardX's own `SummaryWriter` writes in another thread: of a full disk that prints a traceback,
and the run would not know of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]  # made at import
from tensorboardX.summary import scalar


class EventFile:
    """A new event file in a folder."""

    def __init__(self, folder: Path, first: int) -> None:
        """Opens the file; events of earlier files from step `first` on are void."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventsWriter(str(folder / "events"))
        start = SessionLog(status=SessionLog.START)
        self._file.write_event(Event(wall_time=time.time(), step=first, session_log=start))

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Appends the values of a step."""
        for name, value in values.items():
            summary = scalar(name, value)
            self._file.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._file.flush()

    def close(self) -> None:
        self._file.close()
