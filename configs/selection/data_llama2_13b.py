"""Offline data of Llama-2-13B-Chat that drafts with its own first layers (assistant selection, 6).

    python -m specjax.main --config=configs/selection/data_llama2_13b.py --dry_run
    python -m specjax.main --config=configs/selection/data_llama2_13b.py:triviaqa \
      --workdir=runs/self_data

Exits after 8, 16, 24 and 32 of 40 layers, through the one final norm and output layer, without
further training, and the arm without a drafter; `alpaca` or `triviaqa` behind the colon. Policies
without that arm by `--config.arms` of `configs/selection/policy.py`. Resources: 26 GB of weights in
bfloat16, one 40 GB GPU; `--config.mesh.model=8` splits them. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_data_config
from specjax.experiments.recipes.selection import parse_arms


def get_config(task: str = "alpaca") -> ConfigDict:
    """The data of `alpaca` or `triviaqa`."""
    _, arms = parse_arms("none,exit=8,exit=16,exit=24,exit=32")
    return select_data_config(
        tasks={task: {"task": task, "examples": 5000}},
        target="meta-llama/Llama-2-13b-chat-hf",
        strategies=arms,
        dtype="bfloat16",
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
    )
