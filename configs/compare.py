"""Finished decode runs side by side: time and quality of every strategy, with 95% intervals.

    python -m specjax.main --config=configs/compare.py --workdir=runs/compare \
      --config.runs=runs/before,runs/after

The runs must have decoded the same examples; the first is what the others are compared with. Runs
that differ in their seed alone become one row, with intervals over seeds.
`--dry_run` only checks them. Expected: a table on the terminal, `report.html`, `compare.csv`,
`table.tex`, `table.md` and `plots/compare.png`, in seconds on two CPU cores; nothing is decoded.
docs/reference/measuring.md says how the intervals are made.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import compare_config


def get_config() -> ConfigDict:
    """The comparison; every field can be set by a flag."""
    return compare_config()
