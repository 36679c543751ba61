"""Several drafters of one target side by side: which one is worth its training?

    python -m specjax.main --config=configs/drafters.py:before=DIR,aligned=runs/align/model \
      --workdir=runs/drafters --config.target=DIR --config.task=multi30k_ende \
      --config.data.kind=text --config.data.path=test.en.gz --config.data.reference_path=test.de.gz

Behind the colon are names and directories (or hub ids) of the drafters, and before a directory how
it drafts if it is no small model: `layer=eagle@runs/eagle/model,block=dflash@runs/dflash/model`.
Heads on the target are one file for all: `heads=medusa@runs/medusa/heads.safetensors`, and their
tree `tree=medusa_tree@runs/medusa/heads.safetensors` (`hydra`, `hydra_tree`). What copies has no
place: `copies=suffix@`. Each drafts three tokens, or a tree of widths 3, 2, 1, greedily and at
temperature 1, against autoregressive decoding of the same kind.
docs/how_to/training.md has the figures of four drafters of a 28M target, and
docs/lab_book/feature_drafters.md those of seven.
"""

from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec
from specjax.runtime.errors import UserError

LENGTH, WIDTHS = 3, (3, 2, 1)
COPYING = ("max_gram", "suffix")
ON_TARGET: dict[str, dict[str, Any]] = {
    "hydra": {"drafter": "hydra", "length": LENGTH},
    "hydra_tree": {"drafter": "hydra", "widths": WIDTHS},
    "medusa": {"drafter": "medusa", "model": "target", "length": LENGTH},
    "medusa_tree": {"drafter": "medusa", "model": "target", "widths": WIDTHS},
}
"""Strategies whose drafters read heads."""


def get_config(drafters: str = "drafter=") -> ConfigDict:
    """The experiment on drafters `name=directory,name=drafter@place`."""
    config = decode_config(task="multi30k_ende")
    found = {"autoregressive": AUTOREGRESSIVE, "sampled": SAMPLED}
    for part in drafters.split(","):
        name, equals, place = part.partition("=")
        if not (name and equals):
            raise UserError(
                f"--config=...:{drafters!r} has {part!r}; drafters are name=directory, with commas"
            )
        before, at, behind = place.partition("@")
        kind, place = (before, behind) if at and "/" not in before else ("neural", place)
        strategy = neural_spec(name, LENGTH) | {"drafter": kind}
        if kind in ON_TARGET:
            if config.heads not in ("", place):
                raise UserError(
                    f"--config=...:{drafters!r} has heads in {config.heads!r} and in {place!r};"
                    " a run reads one file of heads"
                )
            config.heads, strategy = place, ON_TARGET[kind]
        elif kind in COPYING:
            strategy = {"drafter": kind, "length": LENGTH}
        else:
            config.drafters[name] = place
        found[name] = strategy
        found[f"{name}_sampled"] = strategy | {"temperature": 1.0}
    config.strategies = ConfigDict(found)
    return config
