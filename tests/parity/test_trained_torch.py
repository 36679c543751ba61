"""A drafter trained here and exported says in transformers what it says here."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ml_collections import ConfigDict  # noqa: E402
from tiny import write_pair  # noqa: E402

from specjax.api import Generator  # noqa: E402
from specjax.experiments.config.defaults import train_config  # noqa: E402
from specjax.experiments.train import job as train  # noqa: E402
from specjax.loading import load  # noqa: E402

pytestmark = pytest.mark.slow

SHAPES = {
    "t5": {
        "model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2, "num_layers": 1,
        "num_decoder_layers": 1, "feed_forward_proj": "gated-gelu",
    },
    "llama": {
        "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
        "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 128,
    },
}  # fmt: skip


def train_model(folder: Path, kind: str) -> Path:
    """A model of that kind after a few steps on the tiny corpus."""
    write_pair(folder)
    config: ConfigDict = train_config(
        model={"tokenizer": str(folder / "target")},
        optimizer={"steps": 30, "warmup": 3, "learning_rate": 1e-2},
        evaluation={"every": 30, "decode": False},
        batch_size=16,
        bucket=64,
        dropout=0.1,
    )
    config.model.shape = ConfigDict(SHAPES[kind])
    config.train.source_file = str(folder / "source.txt")
    config.train.reference_file = str(folder / "reference.txt")
    config.validation.examples = 6
    train.run(config, folder / "run")
    return folder / "run" / "model"


@pytest.mark.parametrize("kind", SHAPES)
def test_greedy_tokens_are_the_same_in_transformers(kind: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    exported = train_model(tmp_path, kind)
    auto = AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM
    theirs = auto.from_pretrained(exported, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(exported)
    ours = Generator(load(exported), max_new_tokens=24)
    lengths = set()
    for line in (tmp_path / "source.txt").read_text("utf-8").splitlines()[:10]:
        ids = tokenizer(line, return_tensors="pt").input_ids
        rows = theirs.generate(ids, max_new_tokens=24, do_sample=False)[0].tolist()
        expected = rows[1:] if kind == "t5" else rows[ids.shape[1] :]
        found = ours([ids[0].tolist()]).tokens[0]
        assert found == expected
        lengths.add(len(found))
    assert lengths != {0}
