"""Examples of a source file and its references, as decode configs name them."""

from __future__ import annotations

import json

import pytest

from specjax.data.text import Example, read_examples, read_lines
from specjax.runtime.errors import UserError


def test_lines_with_and_without_references(tmp_path):
    (tmp_path / "x.en").write_text("a\nb\n")
    (tmp_path / "x.de").write_text("A\nB\n")
    source, reference = str(tmp_path / "x.en"), str(tmp_path / "x.de")
    assert read_examples(source) == [Example("a"), Example("b")]
    assert read_examples(source, reference) == [Example("a", "A"), Example("b", "B")]
    assert read_lines("ngram_file", reference) == ["A", "B"]


@pytest.mark.parametrize("array", [False, True])
def test_json_rows_by_the_named_fields(tmp_path, array):
    rows = [{"q": "a", "r": "A"}, {"q": "b"}, {"q": "c", "r": 7}]
    file = tmp_path / ("x.json" if array else "x.jsonl")
    file.write_text(json.dumps(rows) if array else "\n".join(map(json.dumps, rows)))
    found = read_examples(str(file), source_field="q", reference_field="r")
    assert found == [Example("a", "A"), Example("b"), Example("c")]
    with pytest.raises(UserError, match="row 2 has no text in field 'r', only q; .* group_field"):
        read_examples(str(file), source_field="q", group_field="r")
    groups = [
        example.group for example in read_examples(str(file), source_field="q", group_field="q")
    ]
    assert groups == ["a", "b", "c"]


def test_mistakes_name_the_field_of_the_config(tmp_path):
    empty, rows = tmp_path / "empty.txt", tmp_path / "rows.jsonl"
    empty.write_text("")
    rows.write_text('{"source": "a"}\n{"text": "b", "id": 1}\n')
    messages = {
        (str(empty),): f"source_file {str(empty)!r} is empty; it must hold at least one example",
        (str(rows),): f"source_file {str(rows)!r} row 2 has no text in field 'source', only text, "
        "id; name the field with source_field",
        ("no",): "source_file 'no' cannot be read: No such file or directory",
        (str(empty), "no"): "reference_file 'no' cannot be read: No such file or directory",
        (str(empty), str(rows)): f"source_file {str(empty)!r} has 0 lines, reference_file "
        f"{str(rows)!r} has more; they must match line by line",
    }
    for files, message in messages.items():
        with pytest.raises(UserError) as error:
            read_examples(*files)
        assert str(error.value) == message
