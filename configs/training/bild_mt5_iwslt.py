"""mT5 fine-tuned on IWSLT17 De-En: the models of Big Little Decoder (Kim et al. 2023, section 4.1).

    python -m specjax.main --config=configs/training/bild_mt5_iwslt.py --dry_run
    python -m specjax.main --config=configs/training/bild_mt5_iwslt.py --workdir=runs/mt5_small
    python -m specjax.main --config=configs/training/bild_mt5_iwslt.py --workdir=runs/mt5_large \
      --config.model.checkpoint=google/mt5-large --config.remat=True

The paper's recipe: 500k steps of 16 rows, Adafactor with a constant rate, of {0.5, 1, 2, 5}e-4 for
small and {0.5, 1}e-4 for large models. Resources: `--dry_run` says what a device must hold,
activations aside. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.common import bild_iwslt


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_iwslt(name="mt5 iwslt")
