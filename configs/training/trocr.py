"""A drafter for TrOCR that borrows its encoder: two decoder layers, distilled.

    python -m specjax.main --config=configs/training/trocr.py --workdir=runs/trocr_drafter \
      --config.train.data.path=lines.jsonl
    python -m specjax.main --config=configs/training/trocr.py --dry_run

Each row of `lines.jsonl` has `image`, the path of a file, from the folder of the manifest on, and
`text`, which is only needed with `--config.sequences.data=1`: by default the target's own texts are
learned. The drafter begins as the first and the last decoder layer of its target; the encoder and
the embedding stay as they are. Encoder states of each file are computed once and lie in the
workdir: 1.2 MB a file. Local folders: `--config.target=FOLDER --config.model.checkpoint=FOLDER`.

Resources: 1.7 GiB for parameters, gradients, optimizer and target in float32, activations not
counted. Not run here: the weights were not there; a drafter of a tiny model was trained.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.borrowed_encoder import distill_decoder


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return distill_decoder(
        "microsoft/trocr-large-handwritten",
        (0, 11),
        "read_image",
        name="trocr_drafter",
        bucket=16,
        max_output_tokens=64,
    )
