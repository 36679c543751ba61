"""Early exits: a model whose first layers can draft for the whole (Big Little Decoder, 3.5.2).

    python -m specjax.main --config=configs/training/early_exit.py --workdir=runs/early_exit \
      --config.model.checkpoint=DIR_OR_HUB_ID \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

The loss is the mean of those after the first and the last decoder layer. For CALM set
`--config.objective.exits=all --config.objective.exit_weights=linear`.
`configs/bild_early_exit_multi30k.py` decodes with both.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MULTI30K


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="early exit",
        objective={"exits": "first_and_last", "smoothing": 0.1},
        optimizer={"steps": 200, "learning_rate": 5e-4, "warmup": 50},
        evaluation={"every": 100},
        batch_size=32,
        dropout=0.1,
        **MULTI30K,
    )
