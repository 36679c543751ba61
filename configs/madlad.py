"""MADLAD-400 10B with a drafter distilled from it and the 3B, on any text to be translated.

    python -m specjax.main --config=configs/madlad.py --dry_run
    python -m specjax.main --config=configs/madlad.py --dry_run --config.topology=v5e:2x2
    python -m specjax.main --config=configs/training/distill.py --workdir=runs/madlad_drafter \
      --config.target=google/madlad400-10b-mt --config.model.checkpoint=google/madlad400-3b-mt \
      --config.model.encoder_layers=0,1,2,3 --config.model.decoder_layers=0,1 \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz \
      --config.dtype=bfloat16 --config.mesh.data=4
    python -m specjax.main --config=configs/madlad.py --workdir=runs/madlad \
      --config.drafter=runs/madlad_drafter/model \
      --config.source_file=test.en.gz --config.reference_file=test.de.gz

The models read the language of the output before the text: `<2de> `. The 3B, as published, has the
10B's vocabulary and drafts for it, at over a quarter of its reads; smaller ones were not published.
So the drafter is the 3B's first layers, which then learn the 10B's distribution.
Resources: 29 GB of weights in bfloat16, over the four 16 GB chips of a TPU v5e 2x2 as set here. The
dry run counts 7.82 GiB on each: 4.99 of the target, 1.38 of the drafter, which is whole, 1.37 of
the 3B, which is split, and 0.08 of caches; that of its training as above 7.8 GiB beside
activations. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        name="madlad",
        metric="bleu",
        prefix="<2de> ",
        target="google/madlad400-10b-mt",
        drafter="madlad400-3b-mt-drafter",
        drafters={"mt_3b": "google/madlad400-3b-mt"},
        drafter_ways={"mt_3b": 0},
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_5": neural_spec("drafter", 5),
            "mt_3b_3": neural_spec("mt_3b", 3),
            "bigram": {"drafter": "bigram", "length": 2},
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 3, temperature=1.0),
        },
    )
