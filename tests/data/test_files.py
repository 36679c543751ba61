"""Local text files: formats, gzip, streaming, and the sentence for each mistake."""

from __future__ import annotations

import gzip
import json
import os

import pytest

from specjax.data import files
from specjax.data.sources import Source, read
from specjax.runtime.errors import UserError

ROWS = [{"id": "1", "text": "schön"}, {"id": "2", "text": "gut"}]
CONTENTS = {
    "jsonl": ("json", "\n".join(map(json.dumps, ROWS)) + "\n\n"),
    "json": ("json", "\n " + json.dumps(ROWS, indent=1)),
    "tsv": ("tsv", "id\ttext\n1\tschön\n2\tgut\n"),
    "dos.tsv": ("tsv", "id\ttext\r\n1\tschön\r\n2\tgut"),
}


def write(path, content: str) -> str:
    """Writes a file, compressed if its name says so."""
    data = content.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("name", CONTENTS)
def test_every_format_gives_the_same_rows(tmp_path, name, ending):
    kind, content = CONTENTS[name]
    source = Source(kind, write(tmp_path / f"rows.{name}{ending}", content))
    assert read(source) == ROWS
    assert read(source, 1) == ROWS[:1]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_parallel_lines_keep_separators_that_are_no_line_ends(tmp_path, ending):
    first = write(tmp_path / f"x.en{ending}", "a\u0085b\nc\n")
    second = write(tmp_path / f"x.de{ending}", "A\nC\n")
    assert read(Source("text", first)) == [{"text": "a\u0085b"}, {"text": "c"}]
    assert read(Source("text", first, reference_path=second)) == [
        {"source": "a\u0085b", "reference": "A"},
        {"source": "c", "reference": "C"},
    ]


def test_tsv_gives_quotes_no_meaning(tmp_path):
    file = write(tmp_path / "x.tsv", 'a\tb\n"x\ty"\n')
    assert read(Source("tsv", file)) == [{"a": '"x', "b": 'y"'}]


def test_no_more_is_read_than_asked_for(tmp_path):
    file = write(tmp_path / "x.jsonl", '{"a": 1}\nno JSON\n')
    assert read(Source("json", file), 1) == [{"a": 1}]


@pytest.mark.parametrize("kind", ["json", "tsv", "text"])
def test_an_empty_file_has_no_rows(tmp_path, kind):
    assert read(Source(kind, write(tmp_path / "empty", ""))) == []


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("json", '{"a": 1}\n\n{"a"\n', "line 3 is not JSON: Expecting ':' delimiter"),
        ("json", '[{"a": 1},\n 2', "line 2 is not JSON: Expecting ',' delimiter"),
        ("json", '[{"a": 1}, 2]', "entry 2 must be a JSON object"),
        ("json", '{"a": 1}\n7\n', "entry 2 must be a JSON object"),
        ("tsv", "a\tb\n1\t2\n3\n", "line 3 has 1 fields; it must have 2 like the header"),
    ],
)
def test_a_broken_file_is_named_with_the_line(tmp_path, kind, content, message):
    file = write(tmp_path / "broken", content)
    with pytest.raises(UserError) as error:
        read(Source(kind, file))
    assert str(error.value) == f"path {file!r} {message}"


def test_sides_of_different_lengths_are_refused(tmp_path):
    long, short = write(tmp_path / "long", "a\nb\n"), write(tmp_path / "short", "A\n")
    expected = f"{short!r} has 1 lines, {{}} {long!r} has more; they must match line by line"
    with pytest.raises(UserError) as error:
        read(Source("text", long, reference_path=short))
    assert str(error.value) == "reference_path " + expected.format("path")
    with pytest.raises(UserError) as error:
        read(Source("text", short, reference_path=long))
    assert str(error.value) == "path " + expected.format("reference_path")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.gz", b"not compressed"),
        ("short.gz", gzip.compress(b"text" * 99, mtime=0)[:-12]),
        ("latin1.txt", b"sch\xf6n"),
    ],
)
def test_unreadable_content_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"path '.*{name}' cannot be read: "):
        read(Source("text", str(tmp_path / name)))


def test_a_missing_file_is_named():
    with pytest.raises(UserError) as error:
        read(Source("json", "nowhere.jsonl"))
    assert str(error.value) == "path 'nowhere.jsonl' cannot be read: No such file or directory"


def test_a_byte_order_mark_is_no_text(tmp_path):
    """Editors on Windows write one; it would be a token of the first prompt."""
    (tmp_path / "marked.txt").write_text("first\nsecond\n", "utf-8-sig")
    (tmp_path / "marked.jsonl").write_text('{"source": "first"}\n', "utf-8-sig")
    with gzip.open(tmp_path / "marked.txt.gz", "wt", encoding="utf-8-sig") as out:
        out.write("first\n")
    assert list(files.lines("x", str(tmp_path / "marked.txt"))) == ["first", "second"]
    assert list(files.lines("x", str(tmp_path / "marked.txt.gz"))) == ["first"]
    assert list(files.json_rows("x", str(tmp_path / "marked.jsonl"))) == [{"source": "first"}]


def test_a_whole_surrogate_pair_is_a_character(tmp_path):
    (tmp_path / "pair.jsonl").write_text('{"source": "\\ud83d\\ude00 \\\\ud800"}\n')
    found = files.json_rows("x", str(tmp_path / "pair.jsonl"))
    assert list(found) == [{"source": "😀 \\ud800"}]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"source": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "deeply"),
        ('{"source": ' + "7" * 5000 + "}", "digits"),
    ],
    ids=["half a pair", "deep", "digits"],
)
def test_json_that_python_cannot_use_is_refused_by_line(line, words, tmp_path):
    (tmp_path / "bad.jsonl").write_text(f'{{"source": "a"}}\n{line}\n')
    with pytest.raises(UserError, match=f"bad.jsonl' line 2 .*{words}"):
        list(files.json_rows("source_file", str(tmp_path / "bad.jsonl")))


def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="it is not a file"):
        list(files.lines("source_file", str(tmp_path / "pipe")))
