"""The reference output of a row, as the metric of its task compares it; None without one."""

from __future__ import annotations

from collections.abc import Callable

from specjax.data import columns
from specjax.data.columns import RowError
from specjax.data.files import Row
from specjax.data.text import Reference


def translation(language: str) -> Callable[[Row], Reference | None]:
    """The side of a translation in this language."""
    return lambda row: columns.side(row, language, "reference")


def field(name: str) -> Callable[[Row], Reference | None]:
    """The text of a field."""
    return lambda row: columns.optional_text(row, name)


def nothing(row: Row) -> None:
    """No reference: the output is free."""


def words_after(count: int) -> Callable[[Row], str]:
    """The rest of a line whose first words are the prompt."""
    return lambda row: " ".join(columns.text(row, "text").split()[count:])


def final_number(row: Row) -> str | None:
    """The number after the last `####` of a worked solution."""
    answer = columns.optional_text(row, "answer")
    return answer and answer.rpartition("####")[2].strip()


def letter(row: Row) -> str | None:
    """The letter A to D of the right choice, which rows give as such or by its index from 0."""
    answer = row.get("answer")
    if answer in range(4):
        return "ABCD"[answer]
    if answer is None or answer in tuple("ABCD"):
        return answer
    raise RowError(f"answer {answer!r}, neither 0 to 3 nor A to D")


def aliases(row: Row) -> Reference | None:
    """All accepted forms of a short answer, the preferred one first."""
    answer = row.get("answer")
    if not isinstance(answer, dict):
        return columns.optional_text(row, "answer")
    forms = (answer.get("value"), *answer.get("aliases", ()))
    return tuple(dict.fromkeys(form for form in forms if form)) or None
