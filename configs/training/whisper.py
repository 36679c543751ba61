"""A drafter for Whisper base that borrows its encoder: two decoder layers, distilled.

    python -m specjax.main --config=configs/training/whisper.py --workdir=runs/whisper_drafter \
      --config.train.data.path=speech.jsonl

Each row of `speech.jsonl` has `audio`, the path of a file of at most 30 seconds, from the folder of
the manifest on, and `text`, which is only needed with `--config.sequences.data=1`: by default the
target's own transcripts are learned. Languages are detected by the target unless
`config.speech.language` names one. The drafter begins as the first and the last decoder layer of
its target, as Distil-Whisper (Gandhi et al. 2023); the encoder and the embedding stay as they are.
Encoder states of each file are computed once and lie in the workdir: 1.5 MB a file. Local folders:
`--config.target=FOLDER --config.model.checkpoint=FOLDER`.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.borrowed_encoder import distill_decoder


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return distill_decoder(
        "openai/whisper-base",
        (0, 5),
        "transcribe",
        name="whisper_drafter",
        speech={"task": "transcribe"},
        bucket=64,
        max_output_tokens=192,
    )
