"""Qwen3-8B answers the questions of Spec-Bench in a chat, drafted for by Qwen3-0.6B.

    python -m specjax.main --config=configs/qwen3.py --dry_run
    python -m specjax.main --config=configs/qwen3.py --dry_run --config.topology=v5e:2x2
    python -m specjax.main --config=configs/qwen3.py --config.data.path=question.jsonl

Resources: 16 GB of weights in bfloat16, over the four 16 GB chips of a TPU v5e 2x2 as set here, or
`--config.mesh.model=1` on one 40 GB GPU. The dry run counts 5.22 GiB on each chip: 3.82 of the
target, 1.11 of the drafter, which is whole, and 0.29 of caches, three quarters of them the
drafter's. Spec-Bench's 480
prompts are one JSONL file, their first turns are decoded. The template lets the model think before
it answers, unless `--config.chat_template_kwargs.enable_thinking=False`. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="spec_bench",
        turns=1,
        target="Qwen/Qwen3-8B",
        drafter="Qwen/Qwen3-0.6B",
        chat=True,
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        examples=480,
        max_prompt_tokens=1536,
        max_new_tokens=512,
        bucket=128,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_4": neural_spec("drafter", 4),
            "speculative_7": neural_spec("drafter", 7),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 7},
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 4, temperature=1.0),
        },
    )
