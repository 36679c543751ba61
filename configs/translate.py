"""Any T5-family pair on any parallel text: every strategy side by side.

    python -m specjax.main --config=configs/translate.py --workdir=runs/multi30k \\
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \\
      --config.source_file=test.en.gz --config.reference_file=test.de.gz \\
      --config.prefix='translate English to German: ' --config.examples=200

Files are plain or gzip text, one segment per line, or one JSONL file. On two CPU cores, a 28M
target with a 2.4M drafter and 200 sentences take about five minutes; docs/measurements.md has
the figures.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    config = ConfigDict()
    config.experiment = "decode"
    config.name = "translation"  # of the data, for tables and reports

    config.target = ""  # directory or hub id
    config.drafter = ""  # directory or hub id; empty when no strategy needs one
    config.dtype = "float32"  # bfloat16 on TPU and GPU

    config.source_file = ""
    config.reference_file = ""
    config.source_field = "source"  # of JSONL
    config.reference_field = "reference"
    config.prefix = ""  # put before every source
    config.examples = 200  # 0: all
    config.ngram_file = ""  # text to fit n-grams from; empty: references that are not decoded
    config.metric = "bleu"

    config.batch_size = 1
    config.max_new_tokens = 64
    config.max_prompt_tokens = 512
    config.bucket = 8  # prompts are padded to multiples of it; each width compiles once
    config.repeats = 3
    config.seed = 0

    neural = {"drafter": "neural", "model": "drafter"}
    config.strategies = ConfigDict(
        {
            "autoregressive": {"drafter": "none"},
            "speculative_3": {**neural, "length": 3},
            "speculative_5": {**neural, "length": 5},
            "sampled": {"drafter": "none", "temperature": 1.0},
            "speculative_sampling": {**neural, "length": 3, "temperature": 1.0},
            "bigram": {"drafter": "bigram", "length": 2},
            "max_gram": {"drafter": "max_gram", "length": 4},
            "lenient": {**neural, "length": 5, "rule": "lenient", "lenience": 0.3},
        }
    )
    return config
