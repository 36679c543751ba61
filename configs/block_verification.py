"""Block verification beside token by token: the same drafts, three lengths, at one temperature.

    python -m specjax.main --config=configs/block_verification.py:1 --workdir=runs/block \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \
      --config.source_file=test.en.gz --config.prefix='translate English to German: '

Behind the colon is the temperature. docs/methods/block_verification.md has the figures.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec

LENGTHS = (3, 5, 8)


def get_config(temperature: str = "1") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    heat = float(temperature)
    rules = {"token": "lossless", "block": "block"}
    return decode_config(
        name="block verification",
        examples=60,
        bucket=32,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "sampled": {"drafter": "none", "temperature": heat},
            **{
                f"{name}_{length}": neural_spec("drafter", length, heat, rule=rule)
                for length in LENGTHS
                for name, rule in rules.items()
            },
        },
    )
