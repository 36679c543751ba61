"""TrOCR large reads lines of handwriting, with a drafter that has two of its decoder layers.

    python -m specjax.main --config=configs/trocr.py --dry_run
    python -m specjax.main --config=configs/trocr.py --workdir=runs/trocr \
      --config.data.path=lines.jsonl --config.drafter=runs/trocr_drafter/model

Each row of `lines.jsonl` has `image`, the path of a file relative to it, and `text`. The drafter is
made by configs/training/trocr.py and borrows the encoder. `character_accuracy` is 100 less the
character error rate.

Resources: 1.2 GiB of weights in bfloat16 on one device, the encoder counted once (557 million
parameters of the target, 86 million of the drafter), and 35 MB of caches a row. Not run here:
neither the weights nor handwriting were there. Tiny random models and models trained on rendered
lines (configs/training/lines.py) were decoded.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="read_image",
        target="microsoft/trocr-large-handwritten",
        drafter="trocr-large-handwritten-drafter",
        dtype="bfloat16",
        max_new_tokens=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "drafter_3": neural_spec("drafter", 3),
            "drafter_5": neural_spec("drafter", 5),
            "max_gram": {"drafter": "max_gram", "length": 3},
        },
    )
