"""Offline data of Vicuna-33B with three small drafters for Spec-Bench (assistant selection, 5).

    python -m specjax.main --config=configs/selection/data_specbench.py --dry_run
    python -m specjax.main --config=configs/selection/data_specbench.py --workdir=runs/spec_data \
      --config.tasks.mt_bench.data.path=question.jsonl

2,000 training examples of each source task; MT-Bench has 80 questions and no others, so that its
figures are optimistic (in the paper, too). Of Spec-Bench's other sources TriviaQA stands in for
Natural Questions, and retrieval-augmented questions are left out. Train with
`configs/selection/policy.py`. Resources: 65 GB of weights in bfloat16; 52 heads split over 4
devices. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_data_config
from specjax.experiments.recipes.selection import parse_arms

ARMS = "vicuna_68m=double7/vicuna-68m,vicuna_160m=double7/vicuna-160m,llama_68m=JackFram/llama-68m"
TASKS = ("wmt14_deen", "cnn_dailymail", "gsm8k_qa", "triviaqa")


def get_config() -> ConfigDict:
    """The data; every field can be set by a flag."""
    drafters, arms = parse_arms(ARMS)
    place = {"kind": "json", "path": "question.jsonl"}
    questions = {"task": "spec_bench", "turns": 1, "data": place}
    return select_data_config(
        tasks={
            "mt_bench": questions | {"examples": 80},
            **{task: {"task": task, "examples": 2000} for task in TASKS},
        },
        target="lmsys/vicuna-33b-v1.3",
        drafters=drafters,
        strategies=arms,
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        max_prompt_tokens=1536,
        max_new_tokens=256,
        bucket=128,
    )
