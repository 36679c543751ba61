"""Canary-1B-v2: speech of 25 languages, copies of the output as drafts.

    python -m specjax.main --config=configs/canary.py --dry_run
    python -m specjax.main --config=configs/canary.py --workdir=runs/canary \
      --config.data.path=speech.jsonl --config.speech.language=de

Each row of `speech.jsonl` has `audio`, the path of a file of at most 400 seconds, and `text`. The
audio is in English where no language is given; `--config.speech.task=translate` translates it to
English, `--config.target_language=fr` to another one. The encoder costs as much as the audio of a
batch is long; `bucket` is in frames of 10 ms. A small Canary of the same tokenizer is
`--config.drafter=DIR` with a strategy of its own.

Resources: 2.0 GB of weights in bfloat16, one device. Not run here: neither the weights nor speech
were there, and tiny random models were decoded.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    suffix = {"drafter": "suffix"}
    return decode_config(
        task="transcribe",
        metric="wer_basic",
        target="harshaljanjani/canary-1b-v2-hf",
        dtype="bfloat16",
        bucket=400,
        max_new_tokens=256,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
            "suffix_3": suffix | {"length": 3},
            "suffix_7": suffix | {"length": 7, "reader": "fitted"},
        },
    )
