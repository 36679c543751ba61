"""Streams rows of local text files; gzip by the file's ending."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import stat
import zlib
from collections.abc import Iterator
from typing import Any, TextIO

from specjax.runtime.errors import UserError

Row = dict[str, Any]

_SURROGATE = "\\ud"
"""Prefix of JSON escapes of surrogates."""


def open_text(file: str) -> TextIO:
    """A UTF-8 text file, plain or gzip; a byte order mark at its beginning is left out.

    Raises:
      OSError: when it is not a file. Pipes and devices are refused: they may never end, and can be
        read only once.
    """
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise OSError(errno.EINVAL, "it is not a file")
    opener = gzip.open if file.endswith(".gz") else open
    return opener(file, "rt", encoding="utf-8-sig", newline="\n")


def lines(field: str, file: str) -> Iterator[str]:
    """Lines without their ends; other Unicode separators stay inside a line.

    Raises:
      UserError: when the file that `field` names is missing or not readable as UTF-8 text.
    """
    try:
        with open_text(file) as opened:
            for line in opened:
                yield line.rstrip("\r\n")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        # A ValueError: no UTF-8, or a null byte in the name.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"{field} {file!r} cannot be read: {reason}") from None


def text_lines(field: str, file: str) -> Iterator[str]:
    """The lines of a file that contain text.

    Raises:
      UserError: as `lines`, and at the end when there was none.
    """
    found = False
    for line in lines(field, file):
        if line.strip():
            found = True
            yield line
    if not found:
        raise UserError(f"{field} {file!r} holds no text; it must have at least one line of text")


def parallel(fields: tuple[str, str], files: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Lines of two files side by side.

    Raises:
      UserError: when one file ends before the other.
    """
    sides = (lines(field, file) for field, file in zip(fields, files, strict=True))
    for number, (first, second) in enumerate(itertools.zip_longest(*sides)):
        if first is None or second is None:
            short, long = (0, 1) if first is None else (1, 0)
            raise UserError(
                f"{fields[short]} {files[short]!r} has {number} lines, {fields[long]} "
                f"{files[long]!r} has more; they must match line by line"
            )
        yield first, second


def json_rows(field: str, file: str) -> Iterator[Row]:
    """The objects of a JSON array, or of a file with one object per line.

    Raises:
      UserError: when the file is not JSON, or holds something else than objects.
    """
    numbered = ((n, line) for n, line in enumerate(lines(field, file), start=1) if line.strip())
    start = next(numbered, None)
    if start is None:
        return
    every = itertools.chain([start], numbered)
    if start[1].lstrip().startswith("["):
        whole = "\n".join(line for _, line in every)
        values = enumerate(_parse(field, file, 1, whole), start=1)
    else:
        values = ((number, _parse(field, file, number, line)) for number, line in every)
    for number, value in values:
        if not isinstance(value, dict):
            raise UserError(f"{field} {file!r} entry {number} must be a JSON object")
        yield value


def tsv_rows(field: str, file: str) -> Iterator[Row]:
    """Rows of tab-separated text, named by the header line; quotes mean nothing.

    Raises:
      UserError: when a line has not as many fields as the header.
    """
    numbered = enumerate(lines(field, file), start=1)
    names = next(numbered, (0, ""))[1].split("\t")
    for number, line in numbered:
        values = line.split("\t")
        if len(values) != len(names):
            raise UserError(
                f"{field} {file!r} line {number} has {len(values)} fields; "
                f"it must have {len(names)} like the header"
            )
        yield dict(zip(names, values, strict=True))


def _parse(field: str, file: str, line: int, text: str) -> Any:
    try:
        value = json.loads(text)
        if _SURROGATE in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except json.JSONDecodeError as error:
        line, reason = line + error.lineno - 1, f"is not JSON: {error.msg}"
    except UnicodeEncodeError:
        reason = "has half of a surrogate pair, which is no character"
    except RecursionError:
        reason = "is nested too deeply"
    except ValueError:  # Python reads no integer of thousands of digits
        reason = "has a number of too many digits"
    raise UserError(f"{field} {file!r} line {line} {reason}")
