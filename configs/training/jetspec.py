"""A block whose places see none after them, for trees of its most probable nodes (JetSpec).

    python -m specjax.main --config=configs/training/jetspec.py --workdir=runs/jetspec \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

For a decoder-only target `--config=configs/training/jetspec.py:llama`, or `:published` for the
layout of the hub, there with `--config.model.shape.mask_token_id=ID` of a token that texts do not
have. The drafter is left in `model`, for `--config.drafter=runs/jetspec/model` and
`{"drafter": "dflash", "length": 7, "nodes": 64}`.
About as long as configs/training/dflash.py; acceptance after three minutes of steps:
docs/lab_book/drafters_2026.md.

The paper (arXiv 2606.18394), not run here: blocks of 16 tokens, forward KL from the target without
weights by position. Optimizer, data and anchors are not known.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.blocks import train_blocks


def get_config(kind: str = "t5") -> ConfigDict:
    """The experiment on a kind of target; every field can be set by a flag."""
    return train_blocks(
        "jetspec", kind, {"gamma": 1e6}, {"block_is_causal": True}, {"is_causal": True}
    )
