"""Training recipes of the papers, shared by several configs."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.defaults import train_config

IWSLT = "hf://datasets/IWSLT/iwslt2017@refs/convert/parquet/iwslt2017-de-en/{}/*.parquet"
"""Parquet files of a split of IWSLT17 De-En on the hub."""

MULTI30K = {
    "train": {"task": "multi30k_ende"},
    "validation": {"task": "multi30k_ende", "examples": 128},
    "max_prompt_tokens": 96,
    "max_output_tokens": 64,
    "bucket": 16,
}
"""Short captions: what a laptop can train on in minutes."""


def bild_iwslt(**changes: Any) -> ConfigDict:
    """Fine-tuning of mT5 on IWSLT17 De-En (Big Little Decoder, Kim et al. 2023, section 4.1).

    500k steps of 16 rows, Adafactor with a constant learning rate.
    """
    recipe = {
        "model": {"checkpoint": "google/mt5-small"},
        "train": {"task": "iwslt17_deen"},
        "validation": {"task": "iwslt17_deen", "examples": 512},
        "optimizer": {
            "name": "adafactor",
            "steps": 500_000,
            "learning_rate": 1e-4,
            "warmup": 0,
            "decay": "constant",
        },
        "evaluation": {"every": 5000, "keep": "bleu"},
        "dtype": "bfloat16",
        "batch_size": 16,
        "bucket": 64,
        "dropout": 0.1,
        "max_prompt_tokens": 256,
        "max_output_tokens": 256,
    }
    config = train_config(**recipe | changes)
    config.train.data.update(kind="parquet", path=IWSLT.format("train"))
    config.validation.data.update(kind="parquet", path=IWSLT.format("validation"))
    return config
