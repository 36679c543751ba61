"""NLLB-200 3.3B with its distilled 600M, on any parallel text: every strategy side by side.

    python -m specjax.main --config=configs/nllb.py --dry_run
    python -m specjax.main --config=configs/nllb.py --dry_run --config.mesh.model=4 \
      --config.topology=v5e:2x2
    python -m specjax.main --config=configs/nllb.py --workdir=runs/nllb \
      --config.source_file=flores.eng --config.reference_file=flores.deu

One vocabulary of 256,206 tokens, whose output layer is a large part of what the small model costs.
Prompts are English and texts German unless `source_language` and `target_language` say other codes
(docs/how_to/checkpoints.md, "Languages"). Resources: 8 GB of weights in bfloat16, one GPU or a TPU
chip of 16 GB, where the dry run counts 7.47 GiB: 6.23 of the target, 1.15 of the drafter and 0.09
of caches. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        name="nllb",
        metric="bleu",
        target="facebook/nllb-200-3.3B",
        drafter="facebook/nllb-200-distilled-600M",
        source_language="eng_Latn",
        target_language="deu_Latn",
        dtype="bfloat16",
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_5": neural_spec("drafter", 5),
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 3, temperature=1.0),
            "max_gram": {"drafter": "max_gram", "length": 4},
        },
    )
