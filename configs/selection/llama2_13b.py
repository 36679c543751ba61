"""Llama-2-13B-Chat choosing among its own early exits (assistant selection, 6, Table 6).

    python -m specjax.main --config=configs/selection/llama2_13b.py --dry_run
    python -m specjax.main \
      --config=configs/selection/llama2_13b.py:task=triviaqa,policy=runs/policy/policy

Verification resumes on the states of the exit's layers, which share weights and cache with the
target. Settings behind the colon: `policy`, `oracle`, `task` (`alpaca` unless `triviaqa`), `length`
and `temperature`; the paper's are 7 and 1. Resources: 26 GB of weights in bfloat16, one 40 GB GPU.
Speedups in the paper, Alpaca / TriviaQA: exit 8 0.77 / 0.77, 16 0.81 / 0.69, 24 0.73 / 0.69, 32
0.50 / 0.60; greedy policy 0.80 / 0.66, with the arm without a drafter 0.99 / 0.96. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.selection import parse_choices

ARMS = "none,exit=8,exit=16,exit=24,exit=32"


def get_config(words: str = "") -> ConfigDict:
    """The experiment; `words` are policy, oracle, task, temperature, length."""
    _, strategies, more = parse_choices(words, ARMS, "task", task="alpaca", temperature=1.0)
    return decode_config(
        task=more["task"],
        target="meta-llama/Llama-2-13b-chat-hf",
        dtype="bfloat16",
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
        strategies=strategies,
    )
