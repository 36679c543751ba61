"""Distillation: a drafter learns the target's whole distribution, not only its tokens.

    python -m specjax.main --config=configs/training/distill.py --workdir=runs/distill \
      --config.target=TARGET --config.model.checkpoint=DRAFTER \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

`objective.divergence` is forward_kl, reverse_kl, jensen_shannon, total_variation (exactly one
minus the acceptance rate at temperature 1), or one of the acceptance-aware losses lk_alpha,
lk_lambda, tv_ce and top_k (docs/methods/alignment.md, "Acceptance-aware losses"). `sequences`
mixes the data's outputs, what the target says, and samples of the drafter itself:
`--config.sequences.data=0 --config.sequences.drafter=1` is on-policy.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MULTI30K


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="distill",
        objective={"name": "distillation", "divergence": "total_variation"},
        optimizer={"steps": 400, "learning_rate": 1e-3, "warmup": 50},
        evaluation={"every": 200, "keep": "acceptance_1"},
        batch_size=32,
        **MULTI30K,
    )
