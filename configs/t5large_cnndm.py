"""T5-large with T5-small on CNN/DailyMail (Big Little Decoder, Table 1 models).

    python -m specjax.main --config=configs/t5large_cnndm.py --dry_run
    python -m specjax.main --config=configs/t5large_cnndm.py \
      --config.target=YOUR_LARGE --config.drafter=YOUR_SMALL

Both models fine-tuned on the task, as in the paper; the published ones have seen summaries in
their multi-task training. Resources: 1.6 GB of weights in bfloat16, any GPU or one TPU core. The
paper's large model reaches ROUGE-L 41.54. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="cnn_dailymail",
        target="google-t5/t5-large",
        drafter="google-t5/t5-small",
        dtype="bfloat16",
        max_prompt_tokens=1024,
        max_new_tokens=128,
        bucket=128,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_5": neural_spec("drafter", 5),
            "speculative_10": neural_spec("drafter", 10),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 5},
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 5, temperature=1.0),
        },
    )
