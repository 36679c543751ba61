"""Pix2Struct large for captions of images with text: its base model as drafter, and copies.

    python -m specjax.main --config=configs/pix2struct.py --dry_run
    python -m specjax.main --config=configs/pix2struct.py --workdir=runs/pix2struct \
      --config.data.path=captions.jsonl

Each row of `captions.jsonl` has `image`, the path of a file, and `text`. Images have up to 2,048
patches of 16 x 16 pixels; `bucket` is in patches. Models that answer questions are refused: their
processor draws the question into the image.

Resources: 3.2 GB of weights in bfloat16, one device. Not run here: neither the weights nor images
were there, and pairs of tiny random models were decoded.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="read_image",
        metric="cer",
        target="google/pix2struct-textcaps-large",
        drafter="google/pix2struct-textcaps-base",
        dtype="bfloat16",
        bucket=128,
        max_new_tokens=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "base_2": neural_spec("drafter", 2),
            "base_3": neural_spec("drafter", 3),
            "base_5": neural_spec("drafter", 5),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
        },
    )
