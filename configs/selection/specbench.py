"""Vicuna-33B choosing among three small drafters on Spec-Bench (assistant selection, 5).

    python -m specjax.main --config=configs/selection/specbench.py --dry_run
    python -m specjax.main --config=configs/selection/specbench.py:policy=runs/policy/policy \
      --config.data.path=question.jsonl

The policy is of the data of `data_specbench.py`; pairs of drafters by
`--config.arms="('llama_68m', 'vicuna_68m')"` of `configs/selection/policy.py`. Resources: 65 GB of
weights in bfloat16; 52 heads split over 4 devices. Mean speedups in the paper (Table 5): Vicuna-68M
1.60, Vicuna-160M 1.40, Llama-68M 1.41; greedy policies 1.59 (the Vicunas), 1.60 (68M both), 1.41
(Vicuna-160M and Llama-68M). Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.selection import parse_choices

ARMS = "vicuna_68m=double7/vicuna-68m,vicuna_160m=double7/vicuna-160m,llama_68m=JackFram/llama-68m"


def get_config(words: str = "") -> ConfigDict:
    """The experiment; `words` are policy, oracle, temperature, length."""
    drafters, strategies, _ = parse_choices(words, ARMS, temperature=1.0)
    return decode_config(
        task="spec_bench",
        turns=1,
        target="lmsys/vicuna-33b-v1.3",
        drafters=drafters,
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        examples=480,
        max_prompt_tokens=1536,
        max_new_tokens=256,
        bucket=128,
        strategies=strategies,
    )
