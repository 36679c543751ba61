"""Cascades of a middle drafter, a small one and Max-Gram on translation, beside plain drafting.

    python -m specjax.main --config=configs/cascade_multi30k.py --workdir=runs/cascade \
      --config.target=DIR_OR_HUB_ID --config.drafters.middle=DIR --config.drafters.small=DIR \
      --config.source_file=test.en.gz --config.reference_file=test.de.gz \
      --config.prefix='translate English to German: ' --config.ngram_file=train.de.gz

configs/training/middle.py makes the middle drafter, configs/training/align.py the small one. The
cascades of small and Max-Gram are those of configs/cascade_pair.py. docs/how_to/cascades.md says
more.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import cascade_spec, decode_config, neural_spec
from specjax.experiments.recipes.common import small_cascades


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        name="cascades",
        metric="bleu",
        drafters={"middle": "", "small": ""},
        strategies={
            **small_cascades(((4, 2), (0, 2))),
            **{f"middle_{length}": neural_spec("middle", length) for length in (2, 3, 4)},
            "middle_small": cascade_spec(("middle", "small"), ((2, 2), (0, 3))),
            "three": cascade_spec(
                ("middle", "small", "max_gram"), ((2, 2, 2), (0, 2, 2), (0, 0, 2)), lenience=0.5
            ),
        },
    )
