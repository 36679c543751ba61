"""Prediction alignment: a small model learns what the target says (Big Little Decoder, 3.5.1).

    python -m specjax.main --config=configs/training/align.py --workdir=runs/align \
      --config.target=TARGET --config.model.checkpoint=DRAFTER \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

The target decodes the training inputs greedily (`target_outputs.jsonl` in the workdir, resumable);
then the drafter is trained on its outputs. `model.checkpoint` is the pre-trained small model in the
paper, or a drafter that was fine-tuned already; `model.shape` trains one from scratch. Without
`data.path` the task is read from the Hugging Face hub. docs/how_to/training.md has the figures of a
28M target and a 2.4M drafter.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MULTI30K


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="align",
        sequences={"data": 0.0, "target": 1.0},
        optimizer={"steps": 600, "learning_rate": 1e-3, "warmup": 50},
        evaluation={"every": 200, "keep": "acceptance_0"},
        **MULTI30K | {"train": {"task": "multi30k_ende", "examples": 8000}},
    )
