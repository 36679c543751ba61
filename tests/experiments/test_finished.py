"""A workdir that holds results: shown again, kept from other runs, overwritten when told to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    beams_config,
    decode_config,
    neural_spec,
)
from specjax.experiments.decode import job as decode
from specjax.experiments.decode import results
from specjax.experiments.workdir import file_stamps, read_finished
from specjax.runtime.errors import UserError


def make_config(folder: Path, **changes) -> ConfigDict:
    """A config whose target is a folder with one file."""
    (folder / "target").mkdir(exist_ok=True)
    if not (folder / "target" / "config.json").exists():
        (folder / "target" / "config.json").touch()
    strategies = {"autoregressive": AUTOREGRESSIVE, "short": neural_spec("drafter", 2)}
    fields = {"target": str(folder / "target"), "strategies": strategies, **changes}
    return decode_config(**fields)


def leave_results(folder: Path, config: ConfigDict) -> dict:
    """Results as a run leaves them."""
    content = {"config": config.to_dict(), "files": file_stamps(config), "strategies": {}}
    (folder / "results.json").write_text(json.dumps(content))
    return json.loads(json.dumps(content))


def test_a_new_workdir_has_nothing_to_show(tmp_path):
    assert read_finished(make_config(tmp_path), tmp_path / "new") is None


def test_results_of_the_same_config_are_given_with_a_word(tmp_path, capsys):
    content = leave_results(tmp_path, make_config(tmp_path))
    assert read_finished(make_config(tmp_path), tmp_path) == content
    assert "is of this config: shown, not run again" in capsys.readouterr().out


def test_overwriting_is_asked_for(tmp_path):
    leave_results(tmp_path, make_config(tmp_path, examples=3))
    assert read_finished(make_config(tmp_path, overwrite=True), tmp_path) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"examples": 40}, "config.examples was 200 and is 40; name another workdir"),
        (
            {"strategies": {"autoregressive": AUTOREGRESSIVE, "short": neural_spec("drafter", 3)}},
            "config.strategies.short.length was 2 and is 3",
        ),
        (
            {"strategies": {"autoregressive": AUTOREGRESSIVE}},
            "config.strategies.short was .* and is not there",
        ),
        ({"drafters": {"small": "x"}}, "config.drafters.small is 'x' and was not there"),
    ],
)
def test_another_config_is_refused_by_the_first_field_that_differs(tmp_path, changes, words):
    leave_results(tmp_path, make_config(tmp_path))
    with pytest.raises(UserError, match=words) as refusal:
        read_finished(make_config(tmp_path, **changes), tmp_path)
    assert "set config.overwrite to True" in str(refusal.value)


def test_fields_of_planning_make_no_other_run(tmp_path):
    content = leave_results(tmp_path, make_config(tmp_path))
    assert read_finished(make_config(tmp_path, topology="v4:2x2x1"), tmp_path) == content


def test_a_file_that_has_changed_makes_another_run(tmp_path):
    leave_results(tmp_path, make_config(tmp_path))
    os.utime(tmp_path / "target" / "config.json", (1, 1))
    with pytest.raises(UserError, match="target' has changed since; name another workdir"):
        read_finished(make_config(tmp_path), tmp_path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"config": 3}'])
def test_what_holds_no_results_is_not_overwritten_either(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(UserError, match="results.json' holds no results of a run"):
        read_finished(make_config(tmp_path), tmp_path)
    assert (tmp_path / "results.json").read_text() == text


def test_searches_by_beams_have_the_field_too():
    assert beams_config().overwrite is False


def test_a_decode_is_shown_again_without_loading_a_model(pair, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "write_report", lambda *_: None)  # seconds of drawing
    config = decode_config(
        target=str(pair / "target"),
        source_file=str(pair / "source.txt"),
        examples=2,
        max_new_tokens=4,
        repeats=1,
        bucket=64,
        strategies={"autoregressive": AUTOREGRESSIVE},
    )
    first = decode.run(config, tmp_path / "run")
    printed = capsys.readouterr().out
    before = (tmp_path / "run" / "results.json").read_bytes()
    monkeypatch.setattr(decode, "load_pair", None)
    again = decode.run(config, tmp_path / "run")
    assert again["strategies"].keys() == first["strategies"].keys()
    assert capsys.readouterr().out.endswith(printed[printed.index("strategy ") :])
    assert (tmp_path / "run" / "results.json").read_bytes() == before
