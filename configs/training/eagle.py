"""A drafter on the target's features: one layer that reads the target's states (EAGLE-3).

    python -m specjax.main --config=configs/training/eagle.py --workdir=runs/eagle \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

For a decoder-only target `--config=configs/training/eagle.py:llama`. What `config.model.shape` does
not say it has from the target. The drafter is left in `model`, for
`--config.drafter=runs/eagle/model` and `{"drafter": "eagle", "length": 4}`. On two CPU
cores it ends in five minutes with a 28M target: two for what that says to 12,000 captions, less
than three for the steps, twice as long beside other programs; accepted are 0.70, 0.67 and 0.62.
`--config.train.examples=0` takes all there are (docs/lab_book/feature_drafters.md).

As published (Li et al. 2025, section 4), not run here: a layer as wide as the target that reads a
low, a middle and a high layer of it, what the target says to 68,000 conversations of ShareGPT and
464,000 of UltraChat, AdamW at 5e-5 with betas 0.9 and 0.95, gradients clipped at 0.5. Published
checkpoints have 32,000 ids, and SpecForge unrolls seven steps: `--config.objective.steps=7`,
`--config.model.shape.draft_vocab_size=32000`, `--config.optimizer.learning_rate=5e-5
--config.optimizer.clip=0.5`. Without `read_first_token`, as wide as the target and with three
`target_layers` it can be exported for vLLM and SGLang (docs/how_to/published_drafters.md).
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.layers import train_layers


def get_config(kind: str = "t5") -> ConfigDict:
    """The experiment on a kind of target; every field can be set by a flag."""
    return train_layers("eagle", kind, {"steps": 3}, 1000)
