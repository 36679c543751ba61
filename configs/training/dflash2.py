"""A block with dynamic convolutions and a selector among its candidates (DFlash 2).

    python -m specjax.main --config=configs/training/dflash2.py --workdir=runs/dflash2 \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

For a decoder-only target `--config=configs/training/dflash2.py:llama`, or `:published` for the
layout of the hub, there with `--config.model.shape.mask_token_id=ID` of a token that texts do not
have. The drafter is left in `model`, for `--config.drafter=runs/dflash2/model` and
`{"drafter": "dspark", "length": 5}`.
A step takes twice as long as in configs/training/dflash.py; acceptance after two minutes of steps:
docs/lab_book/drafters_2026.md.

The published shape, not trained here: blocks of 8 or 16 tokens, windows of 2,048 in all layers, a
selector of rank 256 among 16 candidates, two taps and groups of 16 channels; DFlash's loss on the
logits before the selector, and once more after it, gamma 4.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.blocks import train_blocks

OWN = {
    "selector_rank": 64,
    "selector_top_k": 16,
    "conv_kernel_size": 2,
    "conv_group_size": 16,
}
"""Of a shape."""


def get_config(kind: str = "t5") -> ConfigDict:
    """The experiment on a kind of target; every field can be set by a flag."""
    return train_blocks("dflash2", kind, {"gamma": 4.0, "base_weight": 1.0}, OWN, OWN)
