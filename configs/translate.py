"""Any T5-family pair on any parallel text: every strategy side by side.

    python -m specjax.main --config=configs/translate.py --workdir=runs/multi30k \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \
      --config.source_file=test.en.gz --config.reference_file=test.de.gz \
      --config.prefix='translate English to German: ' --config.examples=200

Files are plain or gzip text, one segment per line, or one JSONL file. On two CPU cores, a 28M
target with a 2.4M drafter and 200 sentences take about five minutes; docs/lab_book/measurements.md
has the figures.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        name="translation",
        metric="bleu",
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_5": neural_spec("drafter", 5),
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 3, temperature=1.0),
            "bigram": {"drafter": "bigram", "length": 2},
            "max_gram": {"drafter": "max_gram", "length": 4},
            "lenient": neural_spec("drafter", 5, rule="lenient", lenience=0.3),
        },
    )
