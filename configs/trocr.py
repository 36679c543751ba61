"""TrOCR large reads lines of handwriting, with TrOCR small as its drafter.

    python -m specjax.main --config=configs/trocr.py --dry_run
    python -m specjax.main --config=configs/trocr.py --workdir=runs/trocr \
      --config.data.path=lines.jsonl

Each row of `lines.jsonl` has `image`, the path of a file relative to it, and `text`.
`character_accuracy` is 100 less the character error rate.

Both read images of 384 x 384 pixels in patches of 16 x 16. The small model has an encoder of its
own and another vocabulary: `config.cross_vocabulary` maps it (docs/methods/cross_vocabulary.md).
Not run here: neither the weights nor handwriting were there, and tiny random models and models
trained on rendered lines were decoded.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="read_image",
        target="microsoft/trocr-large-handwritten",
        drafter="microsoft/trocr-base-handwritten",
        dtype="bfloat16",
        max_new_tokens=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "base_3": neural_spec("drafter", 3),
            "base_5": neural_spec("drafter", 5),
            "max_gram": {"drafter": "max_gram", "length": 3},
        },
    )
