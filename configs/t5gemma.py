"""T5Gemma 9B-9B with 2B-2B as its drafter, on grade-school mathematics.

    python -m specjax.main --config=configs/t5gemma.py --dry_run
    python -m specjax.main --config=configs/t5gemma.py --dry_run --config.topology=v5e:2x4
    python -m specjax.main --config=configs/t5gemma.py --workdir=runs/t5gemma \
      --config.data.path=test.jsonl.gz

Both are instruction-tuned, so that the question is a user's message in a chat, and share a
vocabulary of 256,000 tokens. Every second layer keeps the last 4,096 tokens only where outputs are
longer. 9B-2B lies between them: as a drafter it decodes at
the 2B's cost a token, behind the 9B's encoder. Resources: 52 GB of weights in bfloat16; one 80 GB
GPU with `--config.mesh.model=1`, or the eight 16 GB chips of a TPU v5e 2x4 as set here. The dry run
counts 6.75 GiB on each: 4.74 of the target, 1.90 of the drafter and 0.11 of caches. Whole on every
chip the drafter would be 10.43 GiB, 15.27 with the others, and so it is split too. Not run here.

    python -m specjax.main --config=configs/t5gemma.py:2 --dry_run

is T5Gemma 2: 4B-4B with 270M-270M. Both were published without instruction tuning and
have no chat, so they continue the question rather than answer it: train them for it first. 15 GB of
weights in bfloat16;
one 24 GB GPU, or two 16 GB TPU cores with `--config.mesh.model=2`. Not run here either.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec
from specjax.runtime.errors import UserError

PAIRS = {
    "1": ("google/t5gemma-9b-9b-prefixlm-it", "google/t5gemma-2b-2b-prefixlm-it", 8),
    "2": ("google/t5gemma-2-4b-4b", "google/t5gemma-2-270m-270m", 1),
}
"""Target, drafter, devices that share them."""


def get_config(version: str = "1") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    if version not in PAIRS:
        raise UserError(f"the version of T5Gemma is {version!r}; it must be '1' or '2'")
    target, drafter, devices = PAIRS[version]
    chat = target.endswith("-it")
    return decode_config(
        task="gsm8k" if chat else "gsm8k_qa",
        target=target,
        drafter=drafter,
        chat=chat,
        dtype="bfloat16",
        mesh={"data": 1, "model": devices},
        drafter_ways={"drafter": 0},
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_5": neural_spec("drafter", 5),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 4},
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 5, temperature=1.0),
        },
    )
