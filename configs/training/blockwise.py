"""Parallel heads on a small model: one call drafts several tokens (Stern et al. 2018).

    python -m specjax.main --config=configs/training/blockwise.py --workdir=runs/heads \
      --config.model.checkpoint=DRAFTER \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

The trunk stays as it is, `objective.trunk=trained` trains it as well. The heads are left in
`heads.safetensors`; a decode experiment reads them with `--config.heads=FILE` and drafts with
`{"drafter": "medusa", "model": "drafter", "length": 4}`.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MULTI30K


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="blockwise",
        objective={"name": "blockwise", "heads": 4},
        optimizer={"steps": 600, "learning_rate": 2e-3, "warmup": 50},
        evaluation={"every": 200},
        **MULTI30K,
    )
