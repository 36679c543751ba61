"""Flan-T5-XXL choosing between two specialized drafters (assistant selection, 1, 4 and 7).

    python -m specjax.main --config=configs/selection/t5xxl.py --dry_run
    python -m specjax.main --config=configs/selection/t5xxl.py:policy=runs/policy/policy \
      --config.drafters.xsum=YOUR_T5_SMALL_ON_XSUM

Settings behind the colon, with commas: `policy`, `oracle`, `task` (`iwslt17_ende` unless `xsum` or
`gsm8k_qa`), and for experiment 7 `length` (5, 7, 10) and `temperature` (0.5, 0.9, 1); the paper's
are 7 and 1. Policies come from the data of `data_t5xxl.py`, with some or all arms. Resources: 22 GB
of weights in bfloat16, eight 16 GB TPU cores (as set here) or one 80 GB GPU. Speedups in the paper
(Tables 1, 3, 4), En-De / XSum / GSM8K: T5-small 1.10 / 0.99 / 0.78, fine-tuned 0.83 / 1.18 / 0.74,
greedy policy 1.09 / 1.17 / 0.95, dynamic 1.07 / 1.16 / 0.95. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.common import IWSLT
from specjax.experiments.recipes.selection import parse_choices

ARMS = "none,small=google-t5/t5-small,xsum=google-t5/t5-small"


def get_config(words: str = "") -> ConfigDict:
    """The experiment; `words` are policy, oracle, task, temperature, length."""
    drafters, strategies, more = parse_choices(
        words, ARMS, "task", task="iwslt17_ende", temperature=1.0
    )
    config = decode_config(
        task=more["task"],
        target="google/flan-t5-xxl",
        drafters=drafters,
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=1024,
        max_new_tokens=128,
        bucket=128,
        repeats=5,
        strategies=strategies,
    )
    if config.task == "iwslt17_ende":
        config.data.update(kind="parquet", path=IWSLT.format("test"))
    return config
