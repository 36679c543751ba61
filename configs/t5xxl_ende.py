"""T5-XXL with small, base and large drafters on WMT14 En-De (Leviathan et al. 2023, Table 2).

    python -m specjax.main --config=configs/t5xxl_ende.py --dry_run
    python -m specjax.main --config=configs/t5xxl_ende.py \
      --config.target=YOUR_XXL --config.drafters.small=YOUR_SMALL ...

The paper fine-tuned T5 v1.1 on the task; the published checkpoints are pre-trained only, so give
fine-tuned ones for meaningful text. Resources: 22 GB of weights in bfloat16; one 80 GB GPU with
`--config.mesh.model=1`, or eight 16 GB TPU cores as set here. The paper on a TPU v4: small 3.4
times faster at T=0 (draft length 7, acceptance 0.75) and 2.6 at T=1 (7, 0.62); base 2.8 (7, 0.80)
and 2.4 (5, 0.68); large 1.7 (7, 0.82) and 1.4 (3, 0.71). Bigram at draft length 3: acceptance
0.20. Not run here: trained weights, no network; the shapes ran on an H200, and
docs/lab_book/accelerators.md has their times.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="wmt14_ende",
        target="google/t5-v1_1-xxl",
        drafters={
            "small": "google/t5-v1_1-small",
            "base": "google/t5-v1_1-base",
            "large": "google/t5-v1_1-large",
        },
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "small_greedy": neural_spec("small", 7),
            "base_greedy": neural_spec("base", 7),
            "large_greedy": neural_spec("large", 7),
            "bigram_greedy": {"drafter": "bigram", "length": 3},
            "sampled": SAMPLED,
            "small_sampled": neural_spec("small", 7, temperature=1.0),
            "base_sampled": neural_spec("base", 5, temperature=1.0),
            "large_sampled": neural_spec("large", 3, temperature=1.0),
        },
    )
