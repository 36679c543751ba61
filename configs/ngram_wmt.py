"""N-gram tables of Leviathan et al. 2023: targets of WMT14 En-De training, T5's vocabulary.

    python -m specjax.main --config=configs/ngram_wmt.py --dry_run
    python -m specjax.main --config=configs/ngram_wmt.py --workdir=runs/ngram_wmt

About 4.5 million sentences; at the 300,000 tokens a second of two CPU cores some ten minutes after
the download, in a table of 17 MB. Give it to `configs/t5xxl_ende.py` as `--config.ngram_table`,
where the paper's bigrams reach an acceptance rate of 0.20 at draft length 3. Not run here: no
network.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import ngram_config


def get_config() -> ConfigDict:
    """The job; every field can be set by a flag."""
    return ngram_config(
        target="google/t5-v1_1-small",  # all sizes of T5 v1.1 share its vocabulary
        task="wmt14_ende",
        data={"split": "train"},
        heldout=3000,
    )
