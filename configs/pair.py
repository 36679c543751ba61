"""Any pair of models on any task, every strategy side by side.

    python -m specjax.main --config=configs/pair.py --workdir=runs/gsm8k \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \
      --config.task=gsm8k_qa --config.data.path=test.jsonl.gz

Encoder-decoder or decoder-only models. Without `data.path` a task is read from its own data set on
the Hugging Face hub; `data.kind`, `data.subset` and `data.split` choose others. A 15M Llama with a
1.4M drafter decodes 200 questions in about five minutes on two CPU cores;
docs/lab_book/measurements.md has the figures.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k_qa",
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_5": neural_spec("drafter", 5),
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 3, temperature=1.0),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
            "lenient": neural_spec("drafter", 5, rule="lenient", lenience=0.3),
        },
    )
