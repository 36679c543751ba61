"""A block whose tokens are corrected left to right, with a confidence head (DSpark).

    python -m specjax.main --config=configs/training/dspark.py --workdir=runs/dspark \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

For a decoder-only target `--config=configs/training/dspark.py:llama`, or `:published` for the
layout of the hub, there with `--config.model.shape.mask_token_id=ID` of a token that texts do not
have. The drafter is left in `model`, for `--config.drafter=runs/dspark/model` and
`{"drafter": "dspark", "length": 5}`.
About as long as configs/training/dflash.py; acceptance after three minutes of steps:
docs/lab_book/drafters_2026.md.

The paper (arXiv 2607.05147), not run here: five layers as wide as the target, all of its ids, five
of its layers, blocks of 7 tokens, a Markov head of rank 256, 512 anchors in rows of 4,096 tokens,
gamma 4, 0.1 of the cross-entropy and 0.9 of the L1 distance, ten epochs of 1.3 million answers of
the target, AdamW at 6e-4 without decay, warm-up of 4% and gradients clipped at 1.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.blocks import train_blocks

OWN = {"block_size": 7, "markov_rank": 64, "enable_confidence_head": True}
"""Of a shape; published ones with a Markov head begin with the anchor's own place."""


def get_config(kind: str = "t5") -> ConfigDict:
    """The experiment on a kind of target; every field can be set by a flag."""
    return train_blocks(
        "dspark", kind, {"gamma": 4.0, "divergence": "tv_ce"}, OWN | {"anchor_first": True}, OWN
    )
