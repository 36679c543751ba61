"""Offline data of Flan-T5-XXL with drafters of three sizes on XSum (assistant selection, 2).

    python -m specjax.main --config=configs/selection/data_xsum.py --dry_run
    python -m specjax.main --config=configs/selection/data_xsum.py --workdir=runs/xsum_data \
      --config.drafters.xsum=YOUR_T5_SMALL_ON_XSUM

`data_xsum.py:test` makes 200 queries of the test split, timed at temperature 1; with both
`configs/selection/curve.py` sweeps `align_weight` (Figure 2, whose axis is 1 - align_weight).
Resources: 22 GB of weights in bfloat16, eight 16 GB TPU cores (as set here) or one 80 GB GPU; 3,000
queries of up to 1,024 tokens. Speedups of the paper (Table 2): T5-small 0.97, fine-tuned on XSum
1.21, Flan-T5-small 1.09, Flan-T5-base 1.00. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_data_config
from specjax.experiments.recipes.selection import offline_split, parse_arms

ARMS = (
    "small=google-t5/t5-small,xsum=google-t5/t5-small,flan_small=google/flan-t5-small,"
    "flan_base=google/flan-t5-base"
)


def get_config(split: str = "train") -> ConfigDict:
    """The data of a split: `train`, `test` (temperature 1)."""
    name, temperature, changes = offline_split("test_sampled" if split == "test" else split)
    drafters, arms = parse_arms(ARMS, temperature)
    examples = 200 if changes else 3000
    return select_data_config(
        tasks={"xsum": {"task": "xsum", "examples": examples, "data": {"split": name}}},
        target="google/flan-t5-xxl",
        drafters=drafters,
        strategies=arms,
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=1024,
        max_new_tokens=128,
        bucket=128,
        **changes,
    )
