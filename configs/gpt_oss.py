"""gpt-oss-120b, experts in MXFP4, with a published EAGLE-3 drafter on GSM8K.

    python -m specjax.main --config=configs/gpt_oss.py --dry_run
    python -m specjax.main --config=configs/gpt_oss.py --dry_run --config.topology=v5p:2x1x1
    python -m specjax.main --config=configs/gpt_oss.py --workdir=runs/gpt_oss

A token has 4 of 128 experts in each layer; they stay four bits wide, as they are published. The
drafter is one dense layer with 32,000 ids. Its shape is that of SpecForge's recipe, and is a guess
for the published weights. Drafts of 3 tokens are what its authors serve it with.
Resources: 65 GB of weights and 1.8 GB of the drafter: 33.0 GiB on each of two TPU v5p chips as set
here. Their parts of an expert's inputs are whole blocks of 32, which share a scale; over four or
eight chips each holds all scales. Bounds of rounds: docs/lab_book/accelerators.md, "Heads, experts
and recurrent layers". Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="openai/gpt-oss-120b",
        drafter="lmsys/EAGLE3-gpt-oss-120b-bf16",
        chat=True,
        chat_template_kwargs={"reasoning_effort": "low"},
        dtype="bfloat16",
        mesh={"data": 1, "model": 2},
        drafter_ways={"drafter": 0},
        examples=200,
        max_prompt_tokens=512,
        max_new_tokens=512,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "eagle3_3": {"drafter": "eagle", "model": "drafter", "length": 3},
            "eagle3_5": {"drafter": "eagle", "model": "drafter", "length": 5},
        },
    )
