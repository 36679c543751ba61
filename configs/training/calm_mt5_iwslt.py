"""mT5-small trained for CALM (Schuster et al. 2022), the baseline of Big Little Decoder.

    python -m specjax.main --config=configs/training/calm_mt5_iwslt.py --dry_run
    python -m specjax.main --config=configs/training/calm_mt5_iwslt.py

Losses after every decoder layer, weighted by the layer's number; all else as `bild_mt5_iwslt.py`.
Resources: as there. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.common import bild_iwslt


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_iwslt(
        name="calm mt5 iwslt",
        objective={"exits": "all", "exit_weights": "linear"},
    )
