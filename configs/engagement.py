"""How seldom a large model must step in: oracle engagement (Big Little Decoder, Figure 2).

    python -m specjax.main --config=configs/engagement.py --workdir=runs/engagement \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID --config.task=multi30k_ende \
      --config.data.kind=text --config.data.path=test.en.gz --config.data.reference_path=test.de.gz

The drafter writes; where the target gives its token a probability below a threshold, the target
writes instead. Leaves `engagement.csv` and `plots/engagement.png`: quality against the share of
tokens that are the target's.
Expected (paper, IWSLT and others): the target's quality at about 20% engagement.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import engagement_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return engagement_config()
