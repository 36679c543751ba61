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

from specjax.experiments.config.defaults import train_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return train_config(
        name="whisper_drafter",
        target="openai/whisper-base",
        model={
            "checkpoint": "openai/whisper-base",
            "decoder_layers": (0, 5),
            "frozen": ("embedding",),
        },
        speech={"task": "transcribe"},
        train={"task": "transcribe"},
        validation={"examples": 24},  # the last rows
        sequences={"data": 0.0, "target": 1.0},
        target_outputs={"batch_size": 8},
        objective={"name": "distillation", "divergence": "forward_kl"},
        optimizer={"steps": 400, "learning_rate": 5e-4, "warmup": 40},
        evaluation={
            "every": 100,
            "batch_size": 8,
            "decode": False,
            "acceptance": (0.0,),
            "keep": "acceptance_0",
        },
        batch_size=8,
        bucket=64,
        max_output_tokens=192,
    )
