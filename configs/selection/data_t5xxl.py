"""Offline data of Flan-T5-XXL with two specialized drafters (assistant selection, 1, 3, 4 and 7).

    python -m specjax.main --config=configs/selection/data_t5xxl.py --dry_run
    python -m specjax.main --config=configs/selection/data_t5xxl.py --workdir=runs/xxl_data \
      --config.drafters.xsum=YOUR_T5_SMALL_ON_XSUM

`data_t5xxl.py:two` is experiment 1: T5-small, and T5-small fine-tuned on XSum, which the authors do
not name: give a directory or hub id. `:none` adds the arm without a drafter and `:gsm8k` also the
questions that no drafter helps (experiment 4), all tasks of one size. Policies of
experiment 1 are trained for alignment alone (`--config.reward.align_weight=1` of
`configs/selection/policy.py`), of experiment 4 with the default 0.5; `configs/selection/curve.py`
on this data is experiment 3. Resources: 22 GB of weights in bfloat16, eight 16 GB TPU cores (as set
here) or one 80 GB GPU; 9,000 queries of up to 1,024 tokens. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_data_config
from specjax.experiments.recipes.common import IWSLT
from specjax.experiments.recipes.selection import parse_arms
from specjax.runtime.errors import UserError

ARMS = "small=google-t5/t5-small,xsum=google-t5/t5-small"
SETS = {"two": ARMS, "none": f"none,{ARMS}", "gsm8k": f"none,{ARMS}"}


def get_config(which: str = "two") -> ConfigDict:
    """The data of `two`, `none` or `gsm8k`."""
    if which not in SETS:
        raise UserError(f"the set is {which!r}; it must be one of {', '.join(SETS)}")
    drafters, arms = parse_arms(SETS[which])
    iwslt = {"kind": "parquet", "path": IWSLT.format("train")}
    tasks = {
        "ende": {"task": "iwslt17_ende", "data": iwslt, "examples": 3000},
        "xsum": {"task": "xsum", "examples": 3000},
    }
    questions = {"gsm8k": {"task": "gsm8k_qa", "examples": 3000}} if which == "gsm8k" else {}
    return select_data_config(
        tasks=tasks | questions,
        target="google/flan-t5-xxl",
        drafters=drafters,
        strategies=arms,
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=1024,
        max_new_tokens=128,
        bucket=128,
    )
