"""The best matrix and lenience of a cascade of two models and Max-Gram, by measured time or SWI.

    python -m specjax.main --config=configs/tune_cascade.py --workdir=runs/tune_cascade \
      --config.base.target=DIR_OR_HUB_ID --config.base.drafters.middle=DIR \
      --config.base.drafters.small=DIR --config.base.source_file=test.en.gz \
      --config.base.reference_file=test.de.gz --config.base.ngram_file=train.de.gz \
      --config.base.prefix='translate English to German: '

k_11, k_12 and k_22 of Chen et al. (2024); Max-Gram proposes two tokens everywhere.
`--config.objective=swi` ranks by the price of calls (docs/how_to/tuning.md). Each candidate
compiles a program of its own for each padded width of prompts, for 10 to 20 seconds on two CPU
cores; `--config.base.bucket=64` leaves one width. Expected: a table of all candidates and
tune.json. By price it was run to its end, by time it was not.
"""

import itertools

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import tune_config

K_11, K_12, K_22 = (1, 2, 4), (0, 2, 4), (1, 2)
COPIED = 2


def get_config() -> ConfigDict:
    """The search; every field can be set by a flag."""
    matrices = tuple(
        ((k_11, k_12, COPIED), (0, k_22, COPIED), (0, 0, COPIED))
        for k_11, k_12, k_22 in itertools.product(K_11, K_12, K_22)
    )
    return tune_config(
        base="configs/cascade_multi30k.py",
        space={"matrix": matrices, "lenience": (0.5, 1.0)},
        strategy="three",
        budget_seconds=3600.0,
    )
