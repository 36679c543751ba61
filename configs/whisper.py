"""Whisper large-v2 with Distil-Whisper as its drafter: one encoder for both.

    python -m specjax.main --config=configs/whisper.py --dry_run
    python -m specjax.main --config=configs/whisper.py --dry_run --config.topology=v5e:2x2
    python -m specjax.main --config=configs/whisper.py --workdir=runs/whisper \
      --config.data.path=speech.jsonl --config.mesh.model=1

Each row of `speech.jsonl` has `audio`, the path of a file of at most 30 seconds, and `text`. The
language is detected for each file unless `config.speech.language` says it.
`word_accuracy` is 100 less the word error rate.

Resources: 3.3 GB of weights in bfloat16, the encoder counted once: one 16 GB device, or four as set
here, where the dry run counts 1.13 GiB on each: 0.82 of the target, 0.22 of the drafter and 0.08 of
caches. Gandhi et al. (2023)
report twice the speed of Whisper alone by this pair, batch 1. Not run here: neither the weights nor
speech were there, and pairs of tiny random models were decoded.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="transcribe",
        metric="wer_english",
        target="openai/whisper-large-v2",
        drafter="distil-whisper/distil-large-v2",
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        max_new_tokens=224,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "distil_3": neural_spec("drafter", 3),
            "distil_5": neural_spec("drafter", 5),
            "distil_8": neural_spec("drafter", 8),
            "distil_adaptive": neural_spec("drafter", 8, adapt="acceptance"),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
        },
    )
