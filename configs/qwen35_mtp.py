"""Qwen3.5-27B, three of four layers recurrent, with the MTP head of its checkpoint on GSM8K.

    python -m specjax.main --config=configs/qwen35_mtp.py --dry_run
    python -m specjax.main --config=configs/qwen35_mtp.py --dry_run --config.topology=v6e:2x2
    python -m specjax.main --config=configs/qwen35_mtp.py --workdir=runs/qwen35_mtp

The text part is read. Its 48 gated delta networks keep a state of 3.1 MB each for a text of any
length, and 16 layers keep keys and values. The template disables thinking, for which 256 tokens
would not do. Draft lengths are guesses.
Resources: 54 GB of weights in bfloat16 and 0.9 GB of the head, which reads the target's embeddings
and output layer; over four chips as set here 12.9 GiB on each, 0.08 of them caches and states.
Bounds of rounds: docs/lab_book/accelerators.md, "Heads, experts and recurrent layers". Not run
here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="Qwen/Qwen3.5-27B",
        drafter="Qwen/Qwen3.5-27B#mtp",
        chat=True,
        chat_template_kwargs={"enable_thinking": False},
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        drafter_ways={"drafter": 0},
        examples=200,
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "mtp_1": {"drafter": "eagle", "model": "drafter", "length": 1},
            "mtp_3": {"drafter": "eagle", "model": "drafter", "length": 3},
        },
    )
