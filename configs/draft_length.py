"""Every draft length from 1 to 10 and both adaptive ones: predicted against measured speedup.

    python -m specjax.main --config=configs/draft_length.py:0 --workdir=runs/lengths \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \
      --config.source_file=test.en.gz --config.prefix='translate English to German: ' \
      --config.strategies.acceptance.cost=0.1 --config.strategies.acceptance.verification=0

Behind the colon is the temperature, and how the drafter drafts if it is no small model:
`configs/draft_length.py:0,eagle`. docs/lab_book/draft_length.md has the figures, and says what
the numbers of adaptive drafters are. Thirteen strategies take four minutes on two CPU cores, half
of it compilation.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config, neural_spec

LONGEST = 10
ADAPTIVE = {"verification": 0.1, "overhead": 0.33, "reader": "fitted"}
COST = {"greedy": 0.05, "sampled": 0.1}
"""Of a drafter step, over one of the target: drawing from a distribution makes it dearer."""


def get_config(words: str = "0") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    temperature, _, kind = words.partition(",")
    heat, drafter = float(temperature), {"drafter": kind or "neural"}
    adaptive = {**ADAPTIVE, **drafter, "cost": COST["sampled" if heat else "greedy"]}
    lengths = range(1, LONGEST + 1)
    return decode_config(
        name="draft lengths",
        examples=60,
        bucket=32,
        strategies={
            "autoregressive": {"drafter": "none"},
            **({"sampled": {"drafter": "none", "temperature": heat}} if heat else {}),
            **{
                f"speculative_{length}": neural_spec("drafter", length, heat, **drafter)
                for length in lengths
            },
            "acceptance": neural_spec("drafter", 7, heat, adapt="acceptance", **adaptive),
            "break_even": neural_spec("drafter", 7, heat, adapt="break_even", **adaptive),
        },
    )
