"""Folders are replaced whole or not at all, and only by those who wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from specjax.runtime.errors import UserError
from specjax.runtime.files import MANIFEST, replacing_directory


def write(path: Path, **files: str) -> None:
    with replacing_directory(path) as partial:
        for name, text in files.items():
            (partial / name).write_text(text, "utf-8")


def contents(path: Path) -> dict[str, str]:
    files = (f for f in path.rglob("*") if f.is_file() and f.name != MANIFEST)
    return {f.relative_to(path).as_posix(): f.read_text("utf-8") for f in files}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "made", a="1", b="2")
    return tmp_path / "made"


def test_of_an_earlier_one_its_files_are_replaced(path: Path) -> None:
    write(path, a="3", c="4")
    assert contents(path) == {"a": "3", "c": "4"}
    write(path, a="5")
    assert contents(path) == {"a": "5"}


def test_what_others_put_there_stays(path: Path) -> None:
    (path / "notes.txt").write_text("mine", "utf-8")
    (path / "deep" / "er").mkdir(parents=True)
    (path / "deep" / "er" / "a").write_text("mine too", "utf-8")
    (path / "link").symlink_to("nowhere")
    for text in ("3", "4"):
        write(path, a=text)
    assert contents(path) == {"a": "4", "notes.txt": "mine", "deep/er/a": "mine too"}
    assert (path / "link").readlink() == Path("nowhere")


def test_a_file_of_others_is_not_overwritten(path: Path) -> None:
    (path / "c").write_text("mine", "utf-8")
    with pytest.raises(UserError, match="'c'"):
        write(path, a="3", c="4")
    assert contents(path) == {"a": "1", "b": "2", "c": "mine"}


@pytest.mark.parametrize("manifest", [None, "{", "[]", '{"files": 7}'])
def test_a_folder_that_was_not_written_here_is_refused(
    manifest: str | None, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", "utf-8")
    if manifest:
        (tmp_path / MANIFEST).write_text(manifest, "utf-8")
    with pytest.raises(UserError, match="earlier export") as caught:
        write(tmp_path, a="1")
    assert str(tmp_path) in str(caught.value)
    assert contents(tmp_path) == {"thesis.tex": "years of work"}


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", "utf-8")
    with pytest.raises(UserError, match="is a file"):
        write(tmp_path / "file", a="1")


def test_empty_and_missing_folders_are_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "deep" / "down"):
        write(path, a="1")
        assert contents(path) == {"a": "1"}


def test_a_crash_while_writing_leaves_the_old_one(path: Path) -> None:
    with pytest.raises(RuntimeError), replacing_directory(path) as partial:
        (partial / "a").write_text("half", "utf-8")
        raise RuntimeError
    assert contents(path) == {"a": "1", "b": "2"}
    assert sorted(f.name for f in path.parent.iterdir()) == [path.name]


def test_a_crash_while_renaming_leaves_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if Path(target) == path and self.name == path.name:
            raise OSError("no space")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no space"):
        write(path, a="3")
    assert contents(path) == {"a": "1", "b": "2"}


def test_a_link_to_a_folder_stays_one(path: Path) -> None:
    link = path.parent / "latest"
    link.symlink_to(path)
    write(link, a="3")
    assert link.is_symlink() and contents(path) == {"a": "3"}
