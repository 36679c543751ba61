"""Training recipes of the papers, shared by several configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    cascade_spec,
    decode_config,
    neural_spec,
    train_config,
)
from specjax.runtime.errors import UserError
from specjax.theory.cascade import MODEL_MILLIONS, PREVIOUS_WORK_COSTS

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

MINUTES = MULTI30K | {"train": {"task": "multi30k_ende", "examples": 12_000}, "batch_size": 16}
"""Number of examples: generating outputs and training take ten minutes together."""


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


PRICES = {"ms": MODEL_MILLIONS, "pw": PREVIOUS_WORK_COSTS}
"""Call prices in the settings of Chen et al. (2024): model size, or measurements."""


def cascade_flan_t5(
    prices: str, settings: Mapping[str, Mapping[str, Any]], **changes: Any
) -> ConfigDict:
    """Table 2 of Chen et al. (2024): Flan-T5-XXL with base, small and Max-Gram.

    Args:
      prices: a name of `PRICES`.
      settings: the table's values under each of them: `plain`, the best draft length of
        speculative decoding by drafter; `copied`, k_11 of a cascade of one drafter and Max-Gram;
        `both`, k_11, k_12 and k_22 of the cascade of all three, and `penalty`, its lambda, which is
        one over the lenience of inner reviews.
      changes: of other fields.

    Raises:
      UserError: when there are no such prices.
    """
    if prices not in settings:
        raise UserError(f"prices are {prices!r}; they must be one of {', '.join(settings)}")
    row, table = settings[prices], PRICES[prices]
    k_11, k_12, k_22 = row["both"]
    return decode_config(
        target="google/flan-t5-xxl",
        drafters={"base": "google/flan-t5-base", "small": "google/flan-t5-small"},
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_new_tokens=200,
        prices={"target": table["xxl"], "base": table["base"], "small": table["small"]},
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            **{name: neural_spec(name, length) for name, length in row["plain"].items()},
            **{
                f"{name}_max_gram": cascade_spec((name, "max_gram"), ((length, 10), (0, 10)))
                for name, length in row["copied"].items()
            },
            "cascade": cascade_spec(
                ("base", "small", "max_gram"),
                ((k_11, k_12, 10), (0, k_22, 10), (0, 0, 10)),
                lenience=1 / row["penalty"],
            ),
        },
        **changes,
    )


def small_cascades(matrix: tuple[tuple[int, int], tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """Strategies of a drafter called small: alone with drafts of 2 to 6, and with Max-Gram.

    `matrix` K is that of `both`. Without its other entries it gives `vertical`, where small reviews
    Max-Gram, and `horizontal`, where Max-Gram adds to what small drafts alone.
    """
    (k_11, k_12), (_, k_22) = matrix
    drafters = ("small", "max_gram")
    return {
        "autoregressive": AUTOREGRESSIVE,
        **{f"small_{length}": neural_spec("small", length) for length in range(2, 7)},
        "vertical": cascade_spec(drafters, ((k_11, 0), (0, k_22))),
        "horizontal": cascade_spec(drafters, ((k_11, k_12), (0, 0))),
        "both": cascade_spec(drafters, matrix),
    }
