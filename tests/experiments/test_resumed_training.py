"""Training jobs that were stopped: the same command goes on to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from ml_collections import ConfigDict
from safetensors.numpy import load_file
from training_configs import small

from specjax.experiments.train import job as train
from specjax.experiments.train.scores import Scores

SHAPE = {"draft_vocab_size": 60, "d_model": 12}
KINDS = {
    "eagle": ("eagle", {"model__shape": {"model_type": "eagle_t5", **SHAPE}}),
    "dflash": (
        "dflash",
        {
            "model__shape": {
                "model_type": "dflash_t5", "block_size": 3, "num_decoder_layers": 1, **SHAPE,
            },
            "objective__anchors": 4,
        },
    ),
    "medusa": ("medusa", {"objective__name": "medusa", "objective__heads": 2}),
    "hydra": ("medusa", {"objective__name": "hydra", "objective__heads": 2}),
}  # fmt: skip
"""Configs, and what makes them small; anchors of blocks are drawn anew at every step."""


def make_config(kind: str, pair: Path) -> ConfigDict:
    name, changes = KINDS[kind]
    steps = {"optimizer__learning_rate": 1e-2, "optimizer__steps": 4, "evaluation__every": 2}
    return small(name, pair, **steps, **changes)


def read_results(workdir: Path) -> tuple[dict[str, bytes], str]:
    """The numbers that were trained, and what was measured on the way."""
    (file,) = [*workdir.glob("model/*.safetensors"), *workdir.glob("*.safetensors")]
    tensors = {name: tensor.tobytes() for name, tensor in load_file(file).items()}
    return tensors, (workdir / "evaluations.jsonl").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_feature_drafter_or_heads_go_on_to_the_same_bits(
    kind: str, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(kind, pair)
    train.run(config, tmp_path / "whole")
    measured, seen = Scores.__call__, []

    def stop(self: Scores, params: object) -> dict[str, float]:
        seen.append(params)
        if len(seen) == 3:  # before the first step, behind the second and the last
            raise KeyboardInterrupt
        return measured(self, params)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Scores, "__call__", stop)
        train.run(config, tmp_path / "stopped")
    assert not list((tmp_path / "stopped").glob("**/*.safetensors"))
    train.run(config, tmp_path / "stopped")
    assert read_results(tmp_path / "stopped") == read_results(tmp_path / "whole")
