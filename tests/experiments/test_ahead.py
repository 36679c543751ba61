"""What is compiled during training is found when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import jax
import pytest
from command import ROOT
from ml_collections import ConfigDict
from sessions import make_session

from specjax.data import grammar
from specjax.experiments import ahead, quickstart
from specjax.experiments.config.file import read_config
from specjax.experiments.decode.first_look import show_first_example


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """Names of the programs that the compiler is asked for from now on."""
    names: list[str] = []

    def hear(event: str, seconds: float, **more: str) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(more["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(hear)
    yield names
    jax.monitoring.unregister_event_duration_listener(hear)


def small_quickstart() -> ConfigDict:
    """The quickstart with models that learn nothing, and sizes that no other test has."""
    config = read_config(str(ROOT / "configs" / "quickstart.py"))
    config.update({"examples": 1, "max_new_tokens": 5, "bucket": 40})
    config.training.update({"examples": 60, "vocab_size": 400, "batch_size": 2, "most_tokens": 48})
    target = {"d_model": 12, "d_kv": 4, "num_heads": 2, "d_ff": 8, "num_layers": 1}
    config.training.target.update({**target, "steps": 1, "deep_layers": 3, "deep_steps": 1})
    config.training.drafter.update({"num_layers": 1, "steps": 1})
    return config


@pytest.mark.slow
def test_training_finds_the_steps_that_were_compiled_for_it(tmp_path, compiled) -> None:
    training = small_quickstart().training
    pairs = grammar.pairs("train", training.examples)
    tokenizer, batches = quickstart.encode_pairs(training, pairs)
    model = quickstart.make_model_shape(training.target, len(tokenizer))
    _, *later = quickstart.setups(training, model)
    for task in ahead.steps(later, batches[0]):
        task()
    assert compiled.count("jit(train_step)") == 2
    compiled.clear()
    quickstart.train_pair(training, pairs, tmp_path)
    assert compiled.count("jit(train_step)") == 1  # the first stage's


@pytest.mark.slow
def test_decoding_finds_the_programs_that_were_compiled_for_it(tmp_path, compiled) -> None:
    config = small_quickstart()
    config.only = "speculative_7,max_gram"  # none for the second: its table is not known yet
    planned = quickstart.check(config)
    tasks: list[ahead.Task] = []

    def later() -> list[ahead.Task]:
        tasks.extend(ahead.decodes(planned))
        return []

    quickstart.make_pair(config.training, tmp_path, later)
    for task in tasks:
        task()
    config = quickstart.add_files(config, tmp_path)
    session = make_session(config, tmp_path)
    assert compiled.count("jit(generate)") == 2
    show_first_example(session)
    assert compiled.count("jit(generate)") == 2


def test_no_decode_is_compiled_ahead_for_a_mesh(monkeypatch) -> None:
    monkeypatch.setattr(ahead, "decode_mesh", lambda config: object())
    config = small_quickstart()
    assert ahead.decodes(quickstart.check(config)) == []


def test_what_has_not_begun_when_training_ends_is_dropped() -> None:
    begun, go = threading.Event(), threading.Event()
    ran = []

    def first() -> None:
        begun.set()
        go.wait()
        ran.append("first")

    with ahead.compile_ahead([first, lambda: ran.append("second")]):
        begun.wait()
        threading.Timer(0.2, go.set).start()
    assert ran == ["first"]


def test_a_compilation_that_fails_is_heard_of() -> None:
    def fail() -> None:
        raise ValueError("it fails")

    done = threading.Event()
    with pytest.raises(ValueError, match="it fails"), ahead.compile_ahead([fail, done.set]):
        done.wait()
