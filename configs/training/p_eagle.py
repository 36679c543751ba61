"""A drafter on the target's features that drafts all tokens in one causal call (P-EAGLE).

    python -m specjax.main --config=configs/training/p_eagle.py --workdir=runs/p_eagle \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

For a decoder-only target `--config=configs/training/p_eagle.py:llama`. What `config.model.shape`
does not say it has from the target. The drafter is left in `model`, for
`--config.drafter=runs/p_eagle/model` and `{"drafter": "p_eagle", "length": 5}`. Its time and its
acceptance were not measured here (docs/methods/p_eagle.md).

As published (arXiv 2602.01469, SpecForge), not run here: four layers as wide as the target, 32,000
ids, three of its layers, 5 to 8 slots, of whose positions each keeps 0.7 or 0.8 of those of the
slot before it and at least 0.2, AdamW at 1e-4, 20 epochs, and embeddings that are trained; here
they are the target's. A drafter of that shape with `mask_token_id` and without `read_first_token`
can be exported for vLLM (docs/how_to/published_drafters.md).
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.layers import train_layers


def get_config(kind: str = "t5") -> ConfigDict:
    """The experiment on a kind of target; every field can be set by a flag."""
    return train_layers("p_eagle", kind, {"slots": 5}, 750, layers=2)
