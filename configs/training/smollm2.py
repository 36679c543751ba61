"""A drafter on SmolLM2-135M's features, trained on its own answers in chats.

    python benchmarks/chat_prompts.py --alpaca=alpaca_sample_2000.jsonl.gz --gsm8k=train.jsonl.gz \
      --count=2800 --heldout=128 --output=prompts
    python -m specjax.main --config=configs/training/smollm2.py --workdir=runs/smollm2_eagle \
      --config.train.source_file=prompts/train.jsonl \
      --config.validation.source_file=prompts/heldout.jsonl

The EAGLE-3 layer; `--config=configs/training/smollm2.py:dflash` is the block-parallel drafter. Both
draft the 8,000 tokens that the target's answers use most. `:further` goes on with the layer
`--config.model.checkpoint=runs/smollm2_eagle/model` on the same answers and on their prompts, in
bfloat16 (a copy of `target_outputs.jsonl` in the new workdir spares decoding them);
`:further_dflash` does so with a block-parallel drafter. The drafter is left in `model`, for
`--config=configs/smollm2.py --config.drafters.eagle=runs/smollm2_eagle/model`. Time and acceptance:
docs/lab_book/published.md and drafters_2026.md.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.runtime.errors import UserError

LAYER = {
    "draft_vocab_size": 8000,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
}
"""As wide as the target, whose last layer and output matrix the drafter begins with."""

FURTHER = {"learn_prompt": True, "dtype": "bfloat16"}

KINDS = {
    "eagle": {
        "objective": {"name": "eagle", "steps": 4},
        "model": {
            "shape": {
                "model_type": "eagle_llama",
                "read_first_token": True,
                "fc_norm": True,
                **LAYER,
            }
        },
    },
    "further": {
        "objective": {"name": "eagle", "steps": 4},
        "model": {"checkpoint": "runs/smollm2_eagle/model"},
        **FURTHER,
    },
    "further_dflash": {
        "objective": {"name": "dflash", "anchors": 32, "gamma": 4.0},
        "model": {"checkpoint": "runs/smollm2_dflash/model"},
        **FURTHER,
    },
    "dflash": {
        "objective": {"name": "dflash", "anchors": 16, "gamma": 4.0},
        "model": {
            "shape": {
                "model_type": "dflash_llama",
                "block_size": 8,
                "num_hidden_layers": 2,
                **LAYER,
            }
        },
    },
}


def get_config(kind: str = "eagle") -> ConfigDict:
    """The experiment on a kind of drafter; every field can be set by a flag."""
    if kind not in KINDS:
        raise UserError(
            f"--config=...:{kind!r} is no kind of drafter; known are {', '.join(KINDS)}"
        )
    return train_config(
        name=f"smollm2_{kind}",
        target="HuggingFaceTB/SmolLM2-135M-Instruct",
        chat=True,
        validation={"examples": 128},
        sequences={"data": 0.0, "target": 1.0},
        target_outputs={"batch_size": 16},
        optimizer={"steps": 700, "learning_rate": 1e-3, "warmup": 30, "decay": "cosine"},
        evaluation={"every": 350, "keep": "tokens_0", "batch_size": 8, "decode": False},
        batch_size=4,
        bucket=32,
        max_prompt_tokens=256,
        max_output_tokens=128,
        **KINDS[kind],
    )
