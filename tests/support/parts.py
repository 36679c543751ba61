"""Every N-th test alone: what CI runs of the slow ones, in turn."""

from __future__ import annotations

import re
import zlib

import pytest


class Parts:
    """The pytest plugin of `--part I/N`: keeps the tests of part I, from 0 to N - 1."""

    def __init__(self, part: str) -> None:
        said = re.fullmatch(r"(\d+)/(\d+)", part)
        self.part, self.parts = map(int, said.groups()) if said else (1, 1)
        if self.part >= self.parts:
            raise pytest.UsageError(
                f"--part is {part!r}; it must be I/N with I from 0 to N - 1, as 0/2"
            )

    def has(self, nodeid: str) -> bool:
        """Whether a test is of this part: by its name, whatever others there are."""
        return zlib.crc32(nodeid.encode()) % self.parts == self.part

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left = [item for item in items if not self.has(item.nodeid)]
        items[:] = [item for item in items if self.has(item.nodeid)]
        config.hook.pytest_deselected(items=left)
