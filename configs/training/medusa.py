"""Heads on the target's own states: a draft costs no model call (Medusa, Hydra).

    python -m specjax.main --config=configs/training/medusa.py --workdir=runs/medusa \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

`--config=...:hydra` trains heads that read the tokens before theirs. The target stays as it is and
is read once. The heads are left in `heads.safetensors`, for `--config.heads=FILE` and
`{"drafter": "medusa", "model": "target", "widths": (3, 2, 1)}`, `{"drafter": "medusa", "model":
"target", "length": 3}`, `{"drafter": "hydra", "length": 3}` or `{"drafter": "hydra", "widths": (3,
2, 1)}`. On two CPU cores Medusa's heads on a 28M target take five minutes, twice as long
beside other programs; accepted are 0.46, 0.29, 0.19 and 0.16. `--config.train.examples=0` takes all
there are.

As published, Medusa-1 has five heads with output matrices of their own, weights 0.8**k, and learns
the tokens of texts like the target's (`objective.divergence=cross_entropy` is nearest) in two
epochs of 60,000 conversations, 64 rows a step, at 2e-3 behind 40 steps of warmup. Hydra's heads see
the tokens before theirs; Hydra++ learns the target's distributions, for ten epochs, with more
layers.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import train_config
from specjax.experiments.recipes.common import MINUTES
from specjax.runtime.errors import UserError

KINDS = ("medusa", "hydra")


def get_config(kind: str = "medusa") -> ConfigDict:
    """The experiment on a kind of heads; every field can be set by a flag."""
    if kind not in KINDS:
        raise UserError(f"--config=...:{kind!r} is no kind of heads; known are {', '.join(KINDS)}")
    return train_config(
        name=kind,
        objective={"name": kind, "heads": 4},
        sequences={"data": 0.0, "target": 1.0},
        optimizer={"steps": 800, "learning_rate": 2e-3, "warmup": 40, "decay": "cosine"},
        evaluation={"every": 400, "keep": "tokens_0"},
        **MINUTES,
    )
