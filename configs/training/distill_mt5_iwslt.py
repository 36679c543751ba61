"""Distillation of a fine-tuned mT5-large into mT5-small, half of it on-policy.

    python -m specjax.main --config=configs/training/distill_mt5_iwslt.py --dry_run
    python -m specjax.main --config=configs/training/distill_mt5_iwslt.py \
      --config.target=runs/mt5_large/model --config.model.checkpoint=runs/mt5_small/model

Total variation is one minus the acceptance rate of speculative sampling. Half of the steps take the
data's outputs, half samples of the drafter itself. `bild_mt5_iwslt.py` trains both models.
Resources: as there, and the target's weights. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.common import bild_iwslt


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_iwslt(
        name="distill mt5 iwslt",
        target="google/mt5-large",
        sequences={"data": 0.5, "drafter": 0.5},
        objective={"name": "distillation", "divergence": "total_variation"},
        evaluation={"every": 5000, "keep": "acceptance_1"},
    )
