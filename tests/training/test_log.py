"""A log beside TensorBoard's: Weights & Biases where it is asked for and installed."""

from __future__ import annotations

import errno
import importlib.util
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from specjax.experiments.config.defaults import train_config
from specjax.experiments.train.job import check_train_fields, more_logs
from specjax.runtime.errors import UserError
from specjax.training import log as wandb_log
from specjax.training.log import EventFile, Log

REPORT = {"loss": 2.0, "gradient": 1.0, "positions": 10}


class Wandb:
    """What wandb is asked for, in its place."""

    def __init__(self) -> None:
        self.initialize_params: list[dict] = []
        self.logged: list[tuple[dict, int]] = []
        self.codes: list[int] = []

    def init(self, **settings):
        self.initialize_params.append(settings)
        return SimpleNamespace(
            log=lambda values, step: self.logged.append((values, step)),
            finish=lambda exit_code: self.codes.append(exit_code),
        )


@pytest.fixture
def wandb(monkeypatch) -> Wandb:
    made = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", made)
    monkeypatch.delenv(wandb_log.MODE, raising=False)
    return made


def log_steps(workdir: Path) -> Log:
    config = train_config(name="tiny", log={"wandb_project": "drafters"})
    return Log("tiny", workdir, 0, 40, more_logs(config))


def test_every_figure_is_told_to_both_logs(wandb, tmp_path):
    with log_steps(tmp_path) as log:
        log.log_training(20, [REPORT], 1e-3)
        log.log_evaluation(20, {"loss": 1.5})
    (training, first), (evaluation, second) = wandb.logged
    assert (training["train/loss"], training["train/learning_rate"]) == (2.0, 1e-3)
    assert (evaluation, first, second) == ({"evaluation/loss": 1.5}, 20, 20)
    assert wandb.codes == [0] and list((tmp_path / "tensorboard").iterdir())


def test_a_run_that_goes_on_is_the_same_and_nothing_waits_for_a_network(wandb, tmp_path):
    with log_steps(tmp_path), log_steps(tmp_path):
        pass
    one, other = wandb.initialize_params
    assert one == other and one["resume"] == "allow" and len(one["id"]) == 16
    assert (one["project"], one["name"], one["mode"]) == ("drafters", "tiny", "offline")
    assert one["config"]["optimizer"]["steps"] == 1000


def test_a_run_that_fails_is_told_so(wandb, tmp_path):
    with pytest.raises(ZeroDivisionError), log_steps(tmp_path):
        _ = 1 / 0
    assert wandb.codes == [1]


def test_what_ended_a_run_is_not_hidden_by_a_full_disk(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(EventFile, "close", full)
    with pytest.raises(ZeroDivisionError), Log("tiny", tmp_path, 0, 40):
        _ = 1 / 0
    with pytest.raises(OSError, match="No space left"), Log("tiny", tmp_path, 0, 40):
        pass


def test_event_files_hold_every_figure_and_say_where_the_run_went_on(tmp_path):
    with Log("tiny", tmp_path, 20, 60) as log:
        log.log_training(40, [REPORT], 1e-3)
        log.log_evaluation(40, {"loss": 1.5})
    (file,) = (tmp_path / "tensorboard").iterdir()
    version, start, *events = map(Event.FromString, records(file.read_bytes()))
    assert version.file_version == "brain.Event:2"
    assert start.session_log.status == SessionLog.START and start.step == 21
    values = {one.tag: one.simple_value for event in events for one in event.summary.value}
    assert values["train/loss"] == 2.0 and values["evaluation/loss"] == 1.5
    assert {event.step for event in events} == {40}


def records(data: bytes) -> Iterator[bytes]:
    """The records of an event file: a length and its checksum, the record and its checksum."""
    while data:
        (length,) = struct.unpack_from("<Q", data)
        yield data[12 : 12 + length]
        data = data[16 + length :]


def test_without_a_project_there_is_one_log():
    assert more_logs(train_config()) is None


def test_a_missing_package_is_told_in_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    wandb_log.check_installed("config.log.wandb_project", "")
    config = train_config(log={"wandb_project": "drafters"})
    config.model.checkpoint = "any"
    with pytest.raises(UserError, match=r"log.wandb_project is 'drafters'.*specjax\[wandb\]"):
        check_train_fields(config)
