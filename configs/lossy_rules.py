"""Lossy rules beside the exact ones, sampling at one temperature: quality against speed.

    python -m specjax.main --config=configs/lossy_rules.py:0.7 --workdir=runs/lossy \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \
      --config.source_file=test.en.gz --config.reference_file=test.de.gz \
      --config.prefix='translate English to German: '

Behind the colon is the temperature. Every rule has a mild and a bold setting, named in hundredths.
The report has a plot of quality against latency; docs/lab_book/lossy_rules.md shows one.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec

LENGTH = 5
RULES = {
    "token_by_token": {"rule": "lossless"},
    "block": {"rule": "block"},
    "lenient_60": {"rule": "lenient", "lenience": 0.6},
    "lenient_20": {"rule": "lenient", "lenience": 0.2},
    "typical_9": {"rule": "typical"},
    "typical_2": {"rule": "typical", "epsilon": 0.02, "delta": 0.14},
    "chow_30": {"rule": "speculative_cascade", "defer": "chow", "margin": 0.3},
    "chow_70": {"rule": "speculative_cascade", "defer": "chow", "margin": 0.7},
    "diff_10": {"rule": "speculative_cascade", "defer": "diff", "margin": 0.1},
    "diff_30": {"rule": "speculative_cascade", "defer": "diff", "margin": 0.3},
    "opt_30": {"rule": "speculative_cascade", "defer": "opt", "margin": 0.3},
    "opt_80": {"rule": "speculative_cascade", "defer": "opt", "margin": 0.8},
    "by_token_30": {"rule": "speculative_cascade", "defer": "token", "margin": 0.3},
    "by_token_80": {"rule": "speculative_cascade", "defer": "token", "margin": 0.8},
}


def get_config(temperature: str = "0.7") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    heat = float(temperature)
    bild = {"drafter": "bild", "fallback": 0.4, "temperature": heat}
    return decode_config(
        name="lossy rules",
        metric="bleu",
        examples=200,
        bucket=32,
        repeats=1,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "sampled": {"drafter": "none", "temperature": heat},
            **{name: neural_spec("drafter", LENGTH, heat, **rule) for name, rule in RULES.items()},
            "bild_2": {**bild, "rollback": 2.0},
            "bild_5": {**bild, "rollback": 5.0},
        },
    )
