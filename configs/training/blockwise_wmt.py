"""Parallel heads on T5 for WMT14 En-De, after Stern et al. (2018), section 7.1.

    python -m specjax.main --config=configs/training/blockwise_wmt.py --dry_run
    python -m specjax.main --config=configs/training/blockwise_wmt.py \
      --config.model.checkpoint=runs/t5_ende/model

The paper trains heads on a frozen or a trained transformer for as long as the base model, on its
outputs as well as on the data. Here the trunk is a T5 that was fine-tuned on the task.
Resources: `--dry_run` says what a device must hold, activations aside. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="blockwise wmt",
        model={"checkpoint": "google-t5/t5-small"},
        train={"task": "wmt14_ende"},
        validation={"task": "wmt14_ende", "examples": 512},
        objective={"name": "blockwise", "heads": 8, "head_width": 2048},
        optimizer={"steps": 1_000_000, "learning_rate": 5e-4, "warmup": 4000},
        evaluation={"every": 10_000},
        dtype="bfloat16",
        batch_size=128,
        bucket=32,
        max_prompt_tokens=128,
        max_output_tokens=128,
    )
