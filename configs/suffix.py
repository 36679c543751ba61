"""What followed before: copies of the row's own text, and of earlier texts, side by side.

    python -m specjax.main --config=configs/suffix.py --workdir=runs/suffix \
      --config.target=DIR_OR_HUB_ID --config.task=gsm8k_qa --config.data.path=test.jsonl.gz \
      --config.corpus_file=train.jsonl.gz

No model drafts. `corpus_file` has earlier texts: lines, or JSON rows of the task; `corpus_split`
names a split of the task's own source instead, and without either they are rows that are not
decoded. `fitted` strategies read each draft by a call as wide as it is long.
docs/lab_book/measurements.md has the figures of a 15M Llama and a 28M T5 on two CPU cores.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    row = {"drafter": "suffix"}
    corpus = row | {"corpus": True}
    return decode_config(
        task="gsm8k_qa",
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
            "max_gram": {"drafter": "max_gram", "length": 4},
            "suffix_row": row | {"length": 4},
            "suffix_3": corpus | {"length": 3},
            "suffix_7": corpus | {"length": 7},
            "suffix_7_fitted": corpus | {"length": 7, "reader": "fitted"},
        },
    )
