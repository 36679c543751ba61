"""A parallel drafter on the target's features: one call on masks drafts a whole block (DFlash).

    python -m specjax.main --config=configs/training/dflash.py --workdir=runs/dflash \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

For a decoder-only target `--config=configs/training/dflash.py:llama`, or `:published` for a drafter
in the layout of the hub (docs/how_to/published_drafters.md), there with
`--config.model.shape.mask_token_id=ID` of a token that texts do not have. What
`config.model.shape` does not say it has from the target. The drafter is left in `model`, for
`--config.drafter=runs/dflash/model` and `{"drafter": "dflash", "length": 5}`. On two CPU
cores it ends in five minutes with a 28M target, twice as long beside other programs; accepted are
0.67, 0.51 and 0.39 at the first places.
`--config.train.examples=0` takes all there are (docs/lab_book/feature_drafters.md).

The paper (Chen et al. 2026, appendix A.1), not run here: five layers as wide as the target, all of
its ids, five of its layers, blocks of 16 tokens, 512 anchors in rows of at most 3,072 tokens,
gamma 7 (5 for blocks of 10, 4 for blocks of 8), cross-entropy, six epochs of 800,000 answers of the
target, AdamW at 6e-4 with a cosine schedule, warm-up of 4% and gradients clipped at 1.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.blocks import train_blocks


def get_config(kind: str = "t5") -> ConfigDict:
    """The experiment on a kind of target; every field can be set by a flag."""
    return train_blocks("dflash", kind, {"gamma": 4.0})
