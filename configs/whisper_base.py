"""Whisper base: tiny.en of another tokenizer as its drafter, one that borrows its encoder, copies.

    python -m specjax.main --config=configs/whisper_base.py --workdir=runs/whisper_base \
      --config.data.path=speech.jsonl
    python -m specjax.main --config=configs/whisper_base.py --workdir=runs/whisper_base \
      --config.data.path=speech.jsonl --config.target=FOLDER --config.drafter=FOLDER \
      --config.drafters.borrowing=runs/whisper_drafter/model

Each row of `speech.jsonl` has `audio`, the path of a file of at most 30 seconds, and `text`;
without transcripts: `--config.metric=none`. Longer audio: configs/whisper_long.py. The drafter
`borrowing` is made by configs/training/whisper.py; without one:
`--config.drafters.borrowing=openai/whisper-base --config.only=tiny_2,tiny_3,tiny_4,tiny_5`.
`draft_tokens` makes the drafters' output layers smaller, which over 51,865 tokens are most of them.

Expected: the same texts in every row. A clip takes two CPU cores a second or two of encoder and one
of decoding, each strategy a minute to compile. Result: docs/lab_book/published_speech.md.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="transcribe",
        metric="wer_basic",
        target="openai/whisper-base",
        drafter="openai/whisper-tiny.en",
        drafters={"borrowing": "runs/whisper_drafter/model"},
        speech={"language": "", "task": "transcribe", "timestamps": False},
        draft_tokens=8000,
        max_new_tokens=200,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "tiny_2": neural_spec("drafter", 2),
            "tiny_3": neural_spec("drafter", 3),
            "tiny_4": neural_spec("drafter", 4),
            "tiny_5": neural_spec("drafter", 5),
            "borrowing_2": neural_spec("borrowing", 2),
            "borrowing_3": neural_spec("borrowing", 3),
            "borrowing_4": neural_spec("borrowing", 4),
            "borrowing_5": neural_spec("borrowing", 5),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
        },
    )
