"""DeepSeek-V3, 671 billion parameters, with the MTP head of its checkpoint on GSM8K in a chat.

    python -m specjax.main --config=configs/deepseek_v3.py --dry_run
    python -m specjax.main --config=configs/deepseek_v3.py --dry_run --config.topology=v5p:2x2x4
    python -m specjax.main --config=configs/deepseek_v3.py --config.target=DIR \
      --config.drafter=DIR#mtp

Its checkpoint is in FP8, which is refused: DIR is its conversion to bfloat16 by DeepSeek's own
script. The head has experts as a layer of the target does, and shares embeddings and output layer.
The paper reports that 85 to 90% of its first tokens are accepted: 1.85 to 1.9 tokens a round with a
draft of one. A second one is a guess.
Resources: 1,342 GB of weights in bfloat16 and 23 GB of the head. Over 16 chips as set here the dry
run counts 81.5 GiB on each, of the 95 of a TPU v5p; caches of latent vectors take 0.06. Bounds of
rounds: docs/lab_book/accelerators.md, "Heads, experts and recurrent layers". Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="deepseek-ai/DeepSeek-V3",
        drafter="deepseek-ai/DeepSeek-V3#mtp",
        chat=True,
        dtype="bfloat16",
        mesh={"data": 1, "model": 16},
        drafter_ways={"drafter": 0},
        examples=200,
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "mtp_1": {"drafter": "eagle", "model": "drafter", "length": 1},
            "mtp_2": {"drafter": "eagle", "model": "drafter", "length": 2},
        },
    )
