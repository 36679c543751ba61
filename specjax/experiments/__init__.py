"""The jobs that a config can name: decode, train, online, tune, sweep, selection, smaller ones.

A job is a module with `run(config, workdir)` and `plan(config)` (`--dry_run`, which returns the
content of plan.json, if any); `JOBS` says where each is. Jobs of several files are packages; config
handling that jobs share is in `config/`, recipes that the papers' configs share are in `recipes/`.
"""

JOBS = {
    "beams": "beams.job",
    "compare": "compare.job",
    "decode": "decode.job",
    "engagement": "engagement",
    "ngram": "ngram",
    "online": "online.job",
    "quickstart": "quickstart",
    "select": "selection.policy",
    "select_curve": "selection.curve",
    "select_data": "selection.data",
    "sweep": "sweep.job",
    "tokenizer": "tokenizer",
    "train": "train.job",
    "transcribe": "transcribe.job",
    "tune": "tune.job",
}
"""Modules of this package by the name that `config.experiment` gives."""

DISTRIBUTED = ("decode", "train")
"""Jobs that support several processes: every process takes the same decisions."""
