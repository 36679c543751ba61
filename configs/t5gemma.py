"""T5Gemma 9B-9B with 2B-2B as its drafter, on grade-school mathematics.

    python -m specjax.main --config=configs/t5gemma.py --dry_run
    python -m specjax.main --config=configs/t5gemma.py --workdir=runs/t5gemma \
      --config.data.path=test.jsonl.gz

Both are instruction-tuned and share a vocabulary of 256,000 tokens. Every second layer keeps the
last 4,096 tokens only where outputs are longer. 9B-2B lies between them: as a drafter it decodes at
the 2B's cost a token, behind the 9B's encoder. Resources: 52 GB of weights in bfloat16;
one 80 GB GPU with `--config.mesh.model=1`, or eight 16 GB TPU cores as set here. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k_qa",
        target="google/t5gemma-9b-9b-prefixlm-it",
        drafter="google/t5gemma-2b-2b-prefixlm-it",
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural("drafter", 3),
            "speculative_5": neural("drafter", 5),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
            "sampled": SAMPLED,
            "speculative_sampling": neural("drafter", 5, temperature=1.0),
        },
    )
