"""Several drafters of one target side by side: which one is worth its training?

    python -m specjax.main --config=configs/drafters.py:before=DIR,aligned=runs/align/model \
      --workdir=runs/drafters --config.target=DIR --config.task=multi30k_ende \
      --config.data.kind=text --config.data.path=test.en.gz --config.data.reference_path=test.de.gz

Behind the colon are names and directories (or hub ids) of the drafters, and before a directory how
it drafts if it is no small model: `layer=eagle@runs/eagle/model,block=dflash@runs/dflash/model`.
Each drafts three tokens, greedily and at temperature 1, against autoregressive decoding of the same
kind.
docs/how_to/training.md has the figures of four drafters of a 28M target.
"""

from ml_collections import ConfigDict

from specjax.errors import UserError
from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural

LENGTH = 3


def get_config(drafters: str = "drafter=") -> ConfigDict:
    """The experiment on drafters `name=directory,name=drafter@directory`."""
    config = decode_config(task="multi30k_ende")
    found = {"autoregressive": AUTOREGRESSIVE, "sampled": SAMPLED}
    for part in drafters.split(","):
        name, equals, place = part.partition("=")
        if not (name and equals):
            raise UserError(
                f"--config=...:{drafters!r} has {part!r}; drafters are name=directory, with commas"
            )
        before, at, behind = place.partition("@")
        kind, directory = (before, behind) if at and "/" not in before else ("neural", place)
        config.drafters[name] = directory
        found[name] = neural(name, LENGTH) | {"drafter": kind}
        found[f"{name}_sampled"] = neural(name, LENGTH, temperature=1.0) | {"drafter": kind}
    config.strategies = ConfigDict(found)
    return config
