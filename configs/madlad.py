"""MADLAD-400 with a drafter distilled from it, on any text to be translated.

    python -m specjax.main --config=configs/madlad.py --dry_run
    python -m specjax.main --config=configs/training/distill.py --workdir=runs/madlad_drafter \
      --config.target=google/madlad400-3b-mt --config.model.checkpoint=google/madlad400-3b-mt \
      --config.model.encoder_layers=0,1,2,3 --config.model.decoder_layers=0,1 \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz \
      --config.dtype=bfloat16
    python -m specjax.main --config=configs/madlad.py --workdir=runs/madlad \
      --config.drafter=runs/madlad_drafter/model \
      --config.source_file=test.en.gz --config.reference_file=test.de.gz

The models read the language of the output before the text: `<2de> `. No small MADLAD-400 was
published, so the drafter is the target's first layers, which then learn its distribution. The 7B
and the 10B model have the same vocabulary, and the 3B may draft for them:
`--config.target=google/madlad400-10b-mt --config.drafter=google/madlad400-3b-mt`, or distil from
them as above. Resources: 7.4 GB of weights in bfloat16, one GPU or a TPU core of 16 GB; training
holds the target beside the drafter's 0.74 billion parameters. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        name="madlad",
        metric="bleu",
        prefix="<2de> ",
        target="google/madlad400-3b-mt",
        drafter="madlad400-3b-mt-drafter",
        dtype="bfloat16",
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural("drafter", 3),
            "speculative_5": neural("drafter", 5),
            "bigram": {"drafter": "bigram", "length": 2},
            "sampled": SAMPLED,
            "speculative_sampling": neural("drafter", 3, temperature=1.0),
        },
    )
