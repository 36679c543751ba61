"""Reads values from rows by column names."""

from __future__ import annotations

from specjax.data.files import Row

TURNS = "turns"
"""The field of a user's messages in the files of MT-Bench, Spec-Bench, DeepSpec and SPEED-Bench."""


class RowError(ValueError):
    """A row lacks what a task reads; the message completes "row 1 has"."""


def text(row: Row, *names: str) -> str:
    """The text under the first of these names that the row has.

    Raises:
      RowError: when the row has none of the names, or no text there.
    """
    for name in names:
        if name in row:
            if not isinstance(row[name], str):
                raise RowError(f"no text in field {name!r}, but {row[name]!r:.40}")
            return row[name]
    raise RowError(f"no field {' or '.join(map(repr, names))}")


def optional_text(row: Row, *names: str) -> str | None:
    """As `text`, but None when no name is there or the text is empty."""
    there = [name for name in names if row.get(name) is not None]
    return (text(row, *there) or None) if there else None


def texts(row: Row, name: str, least: int) -> list[str]:
    """A list of at least `least` texts.

    Raises:
      RowError: when it is not there, is too short, or holds something else.
    """
    values = row.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RowError(f"no list of texts in field {name!r}")
    if len(values) < least:
        raise RowError(f"{len(values)} texts in field {name!r} instead of {least}")
    return values


def first_turn(row: Row) -> str | None:
    """The user's first message under `turns`, empty if blank; None in rows without that field.

    Raises:
      RowError: when it is no list of at least one text.
    """
    if TURNS not in row:
        return None
    turn = texts(row, TURNS, least=1)[0]
    return turn if turn.strip() else ""


def side(row: Row, language: str, plain: str) -> str:
    """One side of a translation: nested, by its language, or by the `plain` name.

    Raises:
      RowError: when it is not there.
    """
    inner = row.get("translation", row)
    return text(inner if isinstance(inner, dict) else row, language, plain)
