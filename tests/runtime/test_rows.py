"""Files of rows: read one by one, and an incomplete last line is cut off."""

from __future__ import annotations

import json

import pytest

from specjax.runtime import json_files
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import cut_incomplete_line, stream_rows, whole_lines


@pytest.mark.parametrize("block", [1, 3, 2**16])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ('{"a": 1', ""),
        ('{"a": 1}\n', '{"a": 1}\n'),
        ('{"a": 1}\n{"b', '{"a": 1}\n'),
        ('{"a": "ü"}\n\n{"b": 2}\n{', '{"a": "ü"}\n\n{"b": 2}\n'),
    ],
)
def test_an_incomplete_last_line_is_cut_off(text, kept, block, tmp_path, monkeypatch):
    monkeypatch.setattr(json_files, "_BLOCK", block)
    file = tmp_path / "rows.jsonl"
    file.write_text(text, "utf-8")
    cut_incomplete_line(file)
    assert file.read_text("utf-8") == kept


def test_a_row_is_found_again_at_its_place(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": "ü "}\n\n{"b": 2}\n', "utf-8")
    rows = list(stream_rows(file))
    assert [row for _, row in rows] == [{"a": "ü "}, {"b": 2}] == whole_lines(file)
    for place, row in rows:
        with file.open("rb") as opened:
            opened.seek(place)
            assert json.loads(opened.readline()) == row


def test_a_damaged_line_is_named(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n[]\n')
    with pytest.raises(UserError, match="line 2 is damaged"):
        list(stream_rows(file))
