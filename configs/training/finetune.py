"""Fine-tuning: any family on any task.

    python -m specjax.main --config=configs/training/finetune.py --workdir=runs/finetune \
      --config.model.checkpoint=DIR_OR_HUB_ID \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

`train.task` and `validation.task` name another task of docs/how_to/data.md; without `data.path` it
is read from the Hugging Face hub. With `--config.target=DIR` evaluations measure acceptance under a
target. The best parameters by `evaluation.keep` are left in `model`, in Hugging Face format.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MULTI30K


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="finetune",
        objective={"smoothing": 0.1},
        optimizer={"steps": 600, "learning_rate": 1e-3, "warmup": 50},
        evaluation={"every": 200},
        dropout=0.1,
        **MULTI30K,
    )
