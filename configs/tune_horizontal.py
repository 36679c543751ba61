"""How many tokens of a draft each of two models writes, by the price of calls.

    python -m specjax.main --config=configs/tune_horizontal.py:6 --workdir=runs/tune_horizontal \
      --config.base.target=DIR_OR_HUB_ID --config.base.drafters.middle=DIR \
      --config.base.drafters.small=DIR --config.base.source_file=test.en.gz \
      --config.base.reference_file=test.de.gz --config.base.prefix='translate English to German: '

All splits of up to so many tokens as the colon says, middle's first. Theorem 4.4 of Chen et al.
(2024) says which is the best for given acceptance rates and costs; docs/lab_book/cascades.md says
how to compare. Each of the 27 candidates compiles a program of its own; with one padded width of
prompts (`--config.base.bucket=64`) that took five minutes in all on two CPU cores, other programs
running. Expected: a table of all candidates and tune.json.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import tune_config


def get_config(longest: str = "6") -> ConfigDict:
    """The search; every field can be set by a flag."""
    splits = [(i, n - i) for n in range(1, int(longest) + 1) for i in range(n + 1)]
    return tune_config(
        base="configs/cascade_multi30k.py",
        space={"matrix": tuple((split, (0, 0)) for split in splits)},
        strategy="middle_small",
        objective="swi",
        budget_seconds=3600.0,
    )
