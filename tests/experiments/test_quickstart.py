"""The quickstart: the pair that it trains, and what it shows first."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from command import ROOT
from ml_collections import ConfigDict
from sessions import make_session

from specjax.data import grammar
from specjax.experiments import quickstart
from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec
from specjax.experiments.config.file import read_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.first_look import show_first_example
from specjax.hf import huggingface
from specjax.runtime.errors import UserError


def make_settings(**changes) -> ConfigDict:
    """Those of the quickstart, for models that learn nothing."""
    training = read_config(str(ROOT / "configs" / "quickstart.py")).training
    training.update({"examples": 60, "vocab_size": 400, "batch_size": 2, **changes})
    target = {"d_model": 8, "d_kv": 4, "num_heads": 2, "d_ff": 8, "num_layers": 1}
    training.target.update({**target, "steps": 1, "deep_layers": 3, "deep_steps": 1})
    training.drafter.update({"num_layers": 1, "steps": 1})
    return training


@pytest.mark.slow
def test_the_target_gets_its_depth_and_the_drafter_the_first_layers(tmp_path) -> None:
    training = make_settings(most_tokens=48)
    training.drafter.learning_rate = 1e-9
    training.target.learning_rate = 1e-9
    training.target.deep_steps = 0
    quickstart.train_pair(training, grammar.pairs("train", 60), tmp_path)
    target, drafter = (huggingface.load(tmp_path / name) for name in quickstart.MODELS)
    assert target.model.config.num_decoder_layers == 3
    assert drafter.model.config.num_decoder_layers == 1
    for layer in ("encoder_0", "decoder_0"):
        both = (jax.tree.leaves(each.params[layer]) for each in (target, drafter))
        for one, other in zip(*both, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_sentences_that_are_all_too_long_are_refused(tmp_path) -> None:
    with pytest.raises(UserError, match="config.training.most_tokens is 3, and 0 of 60"):
        quickstart.train_pair(make_settings(most_tokens=3), grammar.pairs("train", 60), tmp_path)


@pytest.mark.slow
def test_the_first_look_shows_a_text_and_compiles_for_the_comparison(
    pair, capsys, tmp_path
) -> None:
    config = decode_config(
        target=str(pair / "target"),
        drafter=str(pair / "drafter"),
        source_file=str(pair / "source.txt"),
        reference_file=str(pair / "reference.txt"),
        examples=2,
        max_new_tokens=6,
        repeats=1,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "short": neural_spec("drafter", 2),
            "long": neural_spec("drafter", 3),
        },
    )
    job = make_session(config, tmp_path)
    show_first_example(job)
    said = capsys.readouterr().out
    first = job.examples[0]
    assert first.source in said and "by long on this sentence" in said
    assert f" reference: {first.output}\n" in said and "alone writes the same tokens\n" in said
    looked = dict(job.compiled)
    assert {name for name, _ in looked} == {"autoregressive", "long"}
    measured = decode.measure(job, job.batches())
    assert set(job.compiled) - set(looked) == {("short", job.batches()[0].tokens.shape)}
    for (name, _), seconds in looked.items():
        assert measured[name].compile_seconds == seconds
