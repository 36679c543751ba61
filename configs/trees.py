"""Chains of three lengths beside trees of 4, 8, 16 and 32 nodes, all drafted by the same model.

    python -m specjax.main --config=configs/trees.py:0 --workdir=runs/trees \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \
      --config.source_file=test.en.gz --config.prefix='translate English to German: '

Behind the colon is the temperature. The trees have the best shapes by the greedy acceptance of the
translation pair in docs/lab_book/trees.md. For another pair or temperature measure it first, with
`configs/trees.py:0,wide`, then give that run: `configs/trees.py:0,runs/wide/results.json`.
`likeliest` trees send those nodes of a larger one to the target that the drafter finds likeliest.
Where tokens are drawn, `tree_16_traversal` judges the tree of 16 nodes from its leaves on.

`:0,eagle` drafts with a layer on the target's states, `:0,medusa` and `:0,hydra` with heads on them
(`--config.heads=FILE` in place of a drafter): `:0,eagle,wide`, `:0,eagle,runs/wide/results.json`.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.trees import (
    ACCEPTANCE,
    KINDS,
    WIDE,
    best_trees,
    chains,
    read_acceptance,
    wide,
)


def get_config(words: str = "0") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    temperature, *rest = words.split(",")
    heat = float(temperature)
    kind = KINDS[rest.pop(0) if rest and rest[0] in KINDS else "neural"]
    source = ",".join(rest)
    if source == WIDE:
        drafted = wide(kind, heat)
    else:
        table = read_acceptance(source) if source else ACCEPTANCE
        drafted = chains(kind, heat) | best_trees(kind, heat, table)
    return decode_config(
        name="trees",
        examples=60,
        bucket=32,
        strategies={
            "autoregressive": {"drafter": "none"},
            **({"sampled": {"drafter": "none", "temperature": heat}} if heat else {}),
            **drafted,
        },
    )
