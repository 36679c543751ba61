"""The 6M-parameter drafter of Leviathan et al. (2023), Table 3, from scratch on lm1b.

    python -m specjax.main --config=configs/training/gpt_lm1b_6m.py --dry_run
    python -m specjax.main --config=configs/training/gpt_lm1b_6m.py \\
      --config.model.tokenizer=runs/lm1b_tokenizer/tokenizer

The paper gives the shape (2 layers of width 256, 8k pieces) and the data, not the recipe: AdamW
with cosine decay is our choice. `n_layer=12 n_embd=768 n_inner=3072 n_head=12` makes its 97M
target.
Resources: `--dry_run` says what a device must hold, activations aside. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    config = train_config(
        name="gpt lm1b 6m",
        train={"task": "lm1b"},
        validation={"task": "lm1b", "examples": 1000},
        optimizer={
            "steps": 200_000,
            "learning_rate": 1e-3,
            "warmup": 4000,
            "decay": "cosine",
            "weight_decay": 0.01,
        },
        evaluation={"every": 5000, "decode": False},
        dtype="bfloat16",
        batch_size=256,
        bucket=32,
        dropout=0.1,
        learn_prompt=True,
        max_prompt_tokens=64,
        max_output_tokens=192,
    )
    config.validation.data.split = "test"  # lm1b has no other
    config.model.shape = ConfigDict(
        {
            "model_type": "gpt2",
            "vocab_size": 8192,
            "n_embd": 256,
            "n_inner": 1024,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 512,
            "tie_word_embeddings": False,
            "eos_token_id": 0,
        }
    )
    return config
