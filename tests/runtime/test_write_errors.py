"""Folders that a run cannot write to: a full disk, and things that are in the way of its files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from bad_inputs import BASES
from command import command, run_refused
from safetensors import SafetensorError

from specjax.runtime.errors import UserError
from specjax.runtime.files import check_folder, naming_write_errors, replacing
from specjax.runtime.json_files import write_json

NAMES = (
    "results.json", "decoded.jsonl", "outputs.jsonl", "trace.npz", "report.html", "results.csv",
    "table.tex", "table.md", "settings.json", "plan.json", ".specjax.lock", "winner.py",
    "ngram.safetensors", "speed.svg",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_place_of_a_file_is_refused_before_anything_runs(name, tmp_path):
    (tmp_path / name / "mine").mkdir(parents=True)
    done = command(f"--workdir={tmp_path}", "--config=configs/tokenizer.py")
    run_refused(done.returncode, done.stderr, f"has a folder {name!r}, where a run has a file")
    assert [each.name for each in tmp_path.rglob("*")] == [name, "mine"]


def test_folders_of_other_names_are_nobodys_business(tmp_path):
    for name in ("plots", "notes.of.mine", ".git"):
        (tmp_path / name).mkdir()
    check_folder("--workdir", tmp_path)


FULL = {
    "a full disk": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "a user's share": OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "results.json"),
    "a limit of the process": OSError(errno.EFBIG, os.strerror(errno.EFBIG)),
    "in words of Rust": SafetensorError(
        'Error while serializing: I/O error: Os { code: 28, kind: StorageFull, message: "No space'
        ' left on device" }'
    ),
    "in words of TensorStore": ValueError(
        'RESOURCE_EXHAUSTED: Error writing "x": Failed to write 8 bytes: No space left on device'
    ),
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL)
def test_a_full_disk_is_one_sentence(error, tmp_path):
    refusal = pytest.raises(UserError, match="--workdir '.*' has no room")
    with refusal as caught, naming_write_errors("--workdir", tmp_path):
        raise error
    assert "\n" not in str(caught.value) and "all that was written whole is kept" in str(caught)


def test_what_a_full_disk_led_to_is_a_full_disk(tmp_path):
    with pytest.raises(UserError, match="has no room"), naming_write_errors("w", tmp_path):
        try:
            raise FULL["a full disk"]
        finally:
            raise ValueError("Can't close the ZIP file while there is an open writing handle on it")


def test_results_survive_a_full_disk(tmp_path):
    file = tmp_path / "results.json"
    write_json(file, {"first": True})
    refusal = pytest.raises(UserError, match="has no room")
    with refusal, naming_write_errors("w", tmp_path), replacing(file) as partial:
        partial.write_text("half")
        raise FULL["a full disk"]
    assert file.read_text() == '{\n  "first": true\n}\n'
    assert len(list(tmp_path.iterdir())) == 1


IN_THE_WAY = {
    "a file for a folder": FileExistsError(errno.EEXIST, "File exists", "{}/plots"),
    "a file of somebody else": PermissionError(errno.EACCES, "Permission denied", "{}/plots"),
    "a folder that is replaced": IsADirectoryError(
        errno.EISDIR, "Is a directory", "{}/.a.partial", None, "{}/plots"
    ),
}


@pytest.mark.parametrize("error", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_in_the_way_is_named(error, tmp_path):
    error.filename = error.filename.format(tmp_path)
    error.filename2 = error.filename2 and error.filename2.format(tmp_path)
    refusal = pytest.raises(UserError, match=f"'plots' that cannot be used: {error.strerror}")
    with refusal, naming_write_errors("--workdir", tmp_path):
        raise error


def test_errors_of_other_places_are_not_hidden(tmp_path):
    error = FileNotFoundError(errno.ENOENT, "No such file", str(tmp_path.parent / "else"))
    for problem in (error, ValueError("a bug"), OSError("without a file")):
        with pytest.raises(type(problem)) as caught, naming_write_errors("w", tmp_path):
            raise problem
        assert caught.value is problem


def test_a_file_in_place_of_a_folder_ends_a_run_in_one_sentence(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECJAX_COMPILATION_CACHE", "")
    (tmp_path / "tokenizer").write_text("mine")
    flags = (flag.replace("{pair}", str(pair)) for flag in BASES["tokenizer"])
    done = command(f"--workdir={tmp_path}", *flags, "--config.vocab_size=60", "--config.heldout=5")
    run_refused(done.returncode, done.stderr, "tokenizer", "is a file")
    assert Path(tmp_path / "tokenizer").read_text() == "mine"
