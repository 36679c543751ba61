"""The best draft length, thresholds or tree of a strategy for a pair and a data set.

    python -m specjax.main --config=configs/tune.py:configs/translate.py --workdir=runs/tune \
      --config.base.target=DIR_OR_HUB_ID --config.base.drafter=DIR_OR_HUB_ID \
      --config.base.source_file=test.en.gz --config.strategy=speculative_3

Behind the colon is the base config, then, if wanted, what to search in place of draft lengths 1 to
10, a semicolon before each field of the strategy:

    --config='configs/tune.py:configs/translate.py;length=2,3,4,6;confidence=0.2,0.4'

`--config.tree_nodes=32` searches the shapes of trees of at most so many nodes too. `--dry_run`
prints the candidates and what would be run. Expected: a table of all candidates, the flags that set
the best one, tune.json, and chosen.py, a config that decodes with it; docs/how_to/tuning.md has
figures and the run time on two CPU cores.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import tune_config
from specjax.experiments.sweep.grid import parse_grid


def get_config(words: str = "configs/translate.py") -> ConfigDict:
    """The search of `BASE` or `BASE;field=value,value;field=value`."""
    base, *fields = words.split(";")
    return tune_config(base=base, space=parse_grid(fields))
