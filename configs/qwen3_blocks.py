"""Qwen3-8B with the published parallel drafters: DSpark in chains, JetSpec in trees.

    python -m specjax.main --config=configs/qwen3_blocks.py --dry_run
    python -m specjax.main --config=configs/qwen3_blocks.py --dry_run --config.topology=v5e:2x4
    python -m specjax.main --config=configs/qwen3_blocks.py --config.data.path=question.jsonl

Resources: 16 GB of weights in bfloat16 and 2.2 GB of each drafter, over the eight chips of a TPU
v5e or v6e 2x4 as set here, or `--config.mesh.model=1` on one 40 GB GPU. TPU plan, next to what
engines report: docs/lab_book/accelerators.md, "Parallel drafters of Qwen3-8B". The drafters have
five layers; those of DSpark draft 7 tokens one after the other from one call, those of JetSpec are
drawn as trees of the most probable nodes. Spec-Bench's 480 prompts are one JSONL file. Not run
here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config

DSPARK, JETSPEC = "deepseek-ai/dspark_qwen3_8b_block7", "JetSpec/jetspec-qwen3-8b"


def tree(nodes: int) -> dict:
    """The most probable nodes of JetSpec's block."""
    return {"drafter": "dflash", "model": "jetspec", "length": 15, "nodes": nodes}


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="spec_bench",
        turns=1,
        target="Qwen/Qwen3-8B",
        drafters={"dspark": DSPARK, "jetspec": JETSPEC},
        chat=True,
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        drafter_ways={"dspark": 0, "jetspec": 0},
        examples=480,
        max_prompt_tokens=1536,
        max_new_tokens=512,
        bucket=128,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "dspark_7": {"drafter": "dspark", "model": "dspark", "length": 7},
            "jetspec_64": tree(64),
            "jetspec_128": tree(128),
            "jetspec_256": tree(256),
        },
    )
