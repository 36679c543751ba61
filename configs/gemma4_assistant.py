"""Gemma 4 31B with its assistant, whose layers read the target's keys and values, on GSM8K.

    python -m specjax.main --config=configs/gemma4_assistant.py --dry_run
    python -m specjax.main --config=configs/gemma4_assistant.py --dry_run \
      --config.topology=v6e:2x2 --config.acceptance=0.88
    python -m specjax.main --config=configs/gemma4_assistant.py --workdir=runs/gemma4_assistant

The text part is read: 60 layers, of which every sixth has 4 key heads of width 512 that are its
values too, and the others 16 of width 256 and windows of 1024. The assistant has 4 layers of width
1024 without caches. Widths and kinds of both are those that public converters and tests quote;
they give the published 30.7 billion parameters, and an assistant of 0.94 GB. Guessed is that its
window is the target's. An acceptance of 0.88 stands for the 5.37 tokens a round that drafts of 7
were measured to give in vLLM (SPEED-Bench, coding, temperature 1; vllm-project/vllm#41745).
Resources: 61 GB of weights in bfloat16, over four chips as set here 14.8 GiB on each: 14.30 of the
target, 0.24 of the assistant and 0.23 of caches. Bounds of rounds: docs/lab_book/accelerators.md,
"Heads, experts and recurrent layers". Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="google/gemma-4-31B-it",
        drafter="google/gemma-4-31B-it-assistant",
        chat=True,
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        drafter_ways={"drafter": 0},
        examples=200,
        max_prompt_tokens=512,
        max_new_tokens=512,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "assistant_4": {"drafter": "assistant", "model": "drafter", "length": 4},
            "assistant_7": {"drafter": "assistant", "model": "drafter", "length": 7},
        },
    )
