"""A drafter that learns from a stream of texts while it drafts them, beside one that does not.

    python -m specjax.main --config=configs/online.py --workdir=runs/online \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID \
      --config.sources.captions.source_file=test_2016_flickr.en.gz \
      --config.sources.questions.source_file=gsm8k/test.jsonl.gz

200 captions, as the drafter was trained on, then 200 questions of GSM8K, which it has never seen,
all to be translated. `fixed` stays as it is, `row` and `row_fast` learn within each text, `shared`
learns from every eight texts for the next ones. `configs/online.py:eagle` and `:dflash` are of
feature drafters. The workdir gets the adapted drafter (`model`), `texts.jsonl`, `results.json` and
a plot.

Expected: 328 of these texts took about 25 minutes on two CPU cores that had other work, with a 28M
target. On the questions 0.31 of the tested tokens are accepted by `fixed`, 0.36 by `row`, 0.41 by
`row_fast`, and by `shared` 0.35 at first and 0.40 after eighty of them (docs/lab_book/online.md).
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import neural_spec, online_config
from specjax.runtime.errors import UserError

OBJECTIVES = {"neural": "distillation", "eagle": "eagle", "dflash": "dflash"}
"""What a kind of drafter learns by."""

PREFIX = "translate English to German: "


def get_config(kind: str = "neural") -> ConfigDict:
    """The experiment on a kind of drafter; every field can be set by a flag."""
    if kind not in OBJECTIVES:
        raise UserError(
            f"--config=...:{kind!r} is no kind of drafter; known are {', '.join(OBJECTIVES)}"
        )
    drafter = neural_spec("drafter", 3, drafter=kind)
    config = online_config(
        sources={
            "captions": {"prefix": PREFIX, "examples": 200},
            "questions": {"prefix": PREFIX, "examples": 200, "source_field": "question"},
        },
        strategies={
            "fixed": drafter,
            "row": drafter | {"online_rate": 0.3},
            "row_fast": drafter | {"online_rate": 1.0},
            "shared": drafter,
        },
        learns="shared",
    )
    config.objective.name = OBJECTIVES[kind]
    return config
