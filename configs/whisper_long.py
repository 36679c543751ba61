"""Whisper base on audio of any length, window by window, with and without a drafter.

    python -m specjax.main --config=configs/whisper_long.py --workdir=runs/whisper_long \
      --config.data.path=talks.jsonl

Each row of `talks.jsonl` has `audio`, the path of a file of any length, and `text`; without
transcripts: `--config.metric=none`. Local folders: `--config.target=FOLDER`
`--config.drafter=FOLDER`.
Fallback as published: `--config.windows.temperature=0.0,0.2,0.4,0.6,0.8,1.0`
`--config.windows.compression_ratio_threshold=2.4 --config.windows.logprob_threshold=-1.0`
`--config.windows.no_speech_threshold=0.6`, and `--config.windows.condition_on_prev_tokens=True`
for previous text.

Expected: the same texts in every row. A window of 30 seconds takes two CPU cores a second or two of
encoder (twice that with `logprob_threshold`) and as much of decoding, which is what drafts make
shorter. Result: docs/lab_book/published_speech.md.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, neural_spec, transcribe_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return transcribe_config(
        target="openai/whisper-base",
        drafter="openai/whisper-tiny.en",
        speech={"task": "transcribe"},
        strategies={"autoregressive": AUTOREGRESSIVE, "tiny_4": neural_spec("drafter", 4)},
    )
