"""Any fields of a decode config over a grid: every combination, with Pareto plots.

    python -m specjax.main --config=configs/sweep.py:configs/translate.py --workdir=runs/lenience \
      --config.base.target=DIR_OR_HUB_ID --config.base.drafter=DIR_OR_HUB_ID \
      --config.base.source_file=test.en.gz --config.base.reference_file=test.de.gz

Behind the colon is the base config, then, if wanted, another grid in place of the one below, a
semicolon before each field:

    --config='configs/sweep.py:configs/pair.py;strategies.speculative_3.length=1,2,3,5;seed=0,1'

A base that brings its own grid, as `bild_multi30k.py`, is swept over that, each strategy by itself.

`--dry_run` prints the points. Expected: lenience below 1 is faster and costs BLEU;
docs/how_to/sweeps.md has the figures and the run time on two CPU cores.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import sweep_config
from specjax.experiments.config.file import read_config
from specjax.experiments.sweep.grid import parse_grid, proposed_grid

GRID = {
    "strategies.lenient.length": (3, 5),
    "strategies.lenient.lenience": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0),
}


def get_config(words: str = "configs/translate.py") -> ConfigDict:
    """The sweep of `BASE` or `BASE;field=value,value;field=value`."""
    base, *fields = words.split(";")
    if fields:
        return sweep_config(base, parse_grid(fields))
    made = read_config(base)
    own = proposed_grid(made)
    if own:
        return sweep_config(made, own, apart=True)
    return sweep_config(made, GRID, strategies=("lenient",))
