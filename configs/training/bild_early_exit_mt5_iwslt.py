"""mT5-small with an early exit after its first decoder layer (Big Little Decoder, 3.5.2).

    python -m specjax.main --config=configs/training/bild_early_exit_mt5_iwslt.py --dry_run
    python -m specjax.main --config=configs/training/bild_early_exit_mt5_iwslt.py

The mean of the losses after the first and the last decoder layer; all else as
`bild_mt5_iwslt.py`. Resources: as there. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.common import bild_iwslt


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_iwslt(
        name="early exit mt5 iwslt",
        objective={"exits": "first_and_last"},
    )
