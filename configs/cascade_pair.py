"""Cascades of a small drafter and Max-Gram for any pair on any task, beside plain drafting.

    python -m specjax.main --config=configs/cascade_pair.py --workdir=runs/cascade_gsm8k \
      --config.target=DIR_OR_HUB_ID --config.drafters.small=DIR_OR_HUB_ID \
      --config.task=gsm8k_qa --config.data.path=test.jsonl.gz

`vertical`: small reviews Max-Gram. `horizontal`: small decodes alone and Max-Gram adds to what it
drafts. `both`: both. The bigram table is fitted from examples that are not decoded, or from
`--config.ngram_file`. docs/how_to/cascades.md says more.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.common import small_cascades


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k_qa",
        drafters={"small": ""},
        strategies=small_cascades(((4, 2), (0, 2))),
    )
