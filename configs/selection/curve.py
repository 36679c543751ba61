"""How many training queries a policy needs, and what the weight of alignment does to its choices.

    python -m specjax.main --config=configs/selection/curve.py --workdir=runs/curve \
      --config.data=runs/select_data --config.test=runs/select_test

Trains policies on 10, 30, 100, ... queries and with `align_weight` from 0 to 1, by five seeds, and
judges them on the test queries; nothing is generated. Leaves `curve.csv`, `align_weight.csv` and
both as plots. About two minutes on two CPU cores for 5,000 queries.
Context-aware assistant selection, experiments 3 and 2. Expected (paper): fewer than 10,000 of about
400,000 queries suffice; with less weight on alignment the smallest drafter is taken more often.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_curve_config


def get_config() -> ConfigDict:
    """The study; every field can be set by a flag."""
    return select_curve_config()
