"""Donut reads receipts, with a drafter that has one of its decoder layers.

    python -m specjax.main --config=configs/donut.py --dry_run
    python -m specjax.main --config=configs/donut.py --workdir=runs/donut \
      --config.data.path=receipts.jsonl --config.drafter=runs/donut_drafter/model

Each row of `receipts.jsonl` has `image`, the path of a file relative to it, and `text`: what the
model writes, tags included. The drafter is made by configs/training/trocr.py with
`--config.target`, `--config.model.checkpoint` and `--config.model.decoder_layers=(0,)`, and borrows
the encoder. Outputs repeat tags and their parts, which drafters that copy find.

Resources: 0.55 GiB of weights and caches in bfloat16 on one device. Not run here:
neither the weights nor receipts were there. Tiny random models
were decoded.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="read_image",
        target="naver-clova-ix/donut-base-finetuned-cord-v2",
        drafter="donut-cord-drafter",
        dtype="bfloat16",
        max_new_tokens=512,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "drafter_3": neural_spec("drafter", 3),
            "drafter_5": neural_spec("drafter", 5),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
            "suffix": {"drafter": "suffix", "length": 8},
        },
    )
