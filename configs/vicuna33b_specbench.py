"""Vicuna-33B with three small drafters on Spec-Bench (assistant selection, Table 5).

    python -m specjax.main --config=configs/vicuna33b_specbench.py --dry_run
    python -m specjax.main --config=configs/vicuna33b_specbench.py \
      --config.data.path=question.jsonl --config.mesh.model=4

Spec-Bench's 480 prompts are one JSONL file, their first turns are decoded. Resources: 65 GB of
weights in bfloat16; 52 heads split over 4 devices. Mean speedups in the paper: Vicuna-68M 1.60,
Vicuna-160M 1.40, Llama-68M 1.41; by task 1.28 (translation) to 1.74 for Vicuna-68M. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="spec_bench",
        turns=1,
        target="lmsys/vicuna-33b-v1.3",
        drafters={
            "vicuna_68m": "double7/vicuna-68m",
            "vicuna_160m": "double7/vicuna-160m",
            "llama_68m": "JackFram/llama-68m",
        },
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        examples=480,
        max_prompt_tokens=1536,
        max_new_tokens=256,
        bucket=128,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "vicuna_68m": neural_spec("vicuna_68m", 7),
            "vicuna_160m": neural_spec("vicuna_160m", 7),
            "llama_68m": neural_spec("llama_68m", 7),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 7},
        },
    )
