"""The jobs that a config can name: decode, train, online, tune, sweep, selection, smaller ones.

A job is a module with `run(config, workdir)` and `plan(config)` (`--dry_run`, which returns what
plan.json shall hold, if anything); `JOBS` says where each is. Jobs of several files are packages;
what all of them need of configs is in `config/`, and what the configs of papers share is in
`recipes/`.
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
"""Those that run as several processes: what they decide is the same in all of them."""
