"""A drafter on the target's features: one layer that reads the target's states (EAGLE-3).

    python -m specjax.main --config=configs/training/eagle.py --workdir=runs/eagle \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

`config.model.shape.model_type` is `eagle_t5` or `eagle_llama`; what it does not say it has from the
target. The drafter is left in `model`, for `--config.drafter=runs/eagle/model` and
`{"drafter": "eagle", "length": 4}`. Of a large target the published recipe is AdamW at 5e-5, betas
0.9 and 0.95, 32,000 ids, seven steps, ten epochs of what the target says.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.training import train_config
from specjax.experiments.recipes.common import MULTI30K


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="eagle",
        objective={"name": "eagle", "steps": 3},
        model={"shape": {"model_type": "eagle_t5", "draft_vocab_size": 4000}},
        sequences={"data": 0.0, "target": 1.0},
        optimizer={"steps": 1200, "learning_rate": 1e-3, "warmup": 100, "decay": "cosine"},
        evaluation={"every": 300, "keep": "tokens_0"},
        **MULTI30K,
    )
