"""Prediction alignment of mT5-small with a fine-tuned mT5-large (Big Little Decoder, 3.5.1).

    python -m specjax.main --config=configs/training/bild_align_mt5_iwslt.py --dry_run
    python -m specjax.main --config=configs/training/bild_align_mt5_iwslt.py \
      --config.target=runs/mt5_large/model

`bild_mt5_iwslt.py` trains the target. It decodes the 200k training inputs greedily; then the
pre-trained small model is fine-tuned on its outputs with the recipe unchanged. Resources: as
`bild_mt5_iwslt.py`, and the target's weights. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.common import bild_iwslt


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_iwslt(
        name="align mt5 iwslt",
        target="google/mt5-large",
        sequences={"data": 0.0, "target": 1.0},
    )
