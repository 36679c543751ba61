"""Moonshine base: Moonshine tiny as its drafter, and copies from the output.

    python -m specjax.main --config=configs/moonshine.py --dry_run
    python -m specjax.main --config=configs/moonshine.py --workdir=runs/moonshine \
      --config.data.path=speech.jsonl

Each row of `speech.jsonl` has `audio`, the path of a file of at most 30 seconds, and `text`. The
encoder costs as much as the audio of a batch is long; `bucket` is in frames of 64 samples, 4 ms.

Resources: 0.4 GB of weights in float32, two CPU cores. Not run here: neither the weights nor speech
were there, and pairs of tiny random models were decoded.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="transcribe",
        metric="wer_english",
        target="UsefulSensors/moonshine-base",
        drafter="UsefulSensors/moonshine-tiny",
        bucket=64,
        max_new_tokens=192,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "tiny_2": neural_spec("drafter", 2),
            "tiny_3": neural_spec("drafter", 3),
            "tiny_5": neural_spec("drafter", 5),
            "tiny_adaptive": neural_spec("drafter", 8, adapt="acceptance"),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
        },
    )
