"""A head for multi-token prediction (MTP) of a decoder-only target, trained as in FastMTP.

    python -m specjax.main --config=configs/training/mtp.py --workdir=runs/mtp \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

The head is a layer of the target's kind that begins as its last one. `--config=...:checkpoint` goes
on from a head that the target's checkpoint has, there with `--config.model.checkpoint=TARGET#mtp`.
The drafter is left in `model`, in the layout of vLLM's speculators, for
`--config.drafter=runs/mtp/model` and `{"drafter": "eagle", "length": 3}`.
Its time and its acceptance were not measured here.

The paper (arXiv 2509.18362), not run here: one head for three steps, the cross-entropy of step k
weighted by 0.6 to the power of k, on answers of the target.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MINUTES
from specjax.runtime.errors import UserError

MODELS = {"shape": {"shape": {"model_type": "mtp"}}, "checkpoint": {}}


def get_config(start: str = "shape") -> ConfigDict:
    """The experiment from a fresh head or one of a checkpoint; every field can be set by a flag."""
    if start not in MODELS:
        raise UserError(f"--config=...:{start!r} is no start; known are {', '.join(MODELS)}")
    return train_config(
        name="mtp",
        objective={"name": "eagle", "steps": 3, "decay": 0.6},
        model=MODELS[start],
        sequences={"data": 0.0, "target": 1.0},
        optimizer={"steps": 750, "learning_rate": 5e-4, "warmup": 50, "decay": "cosine"},
        evaluation={"every": 375, "keep": "tokens_0"},
        **MINUTES,
    )
