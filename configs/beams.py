"""Beam search, plain and speculative, of any pair of models on any task.

    python -m specjax.main --config=configs/beams.py --workdir=runs/beams \
      --config.target=DIR_OR_HUB_ID --config.drafter=DIR_OR_HUB_ID --config.task=multi30k_ende \
      --config.data.kind=text --config.data.path=test.en.gz --config.data.reference_path=test.de.gz

Leaves `results.json` and `outputs.jsonl`, which has all returned texts with their scores. The
texts of speculative searches are those of the plain one (docs/methods/beam_search.md).
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import beams_config

BEAMS = {"beams": 4, "length_penalty": 1.0, "early_stopping": "False", "sequences": 2}


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return beams_config(
        strategies={
            "beams": {"drafter": "none", **BEAMS},
            "copies_1": {"drafter": "prompt_lookup", "length": 1, "width": 4, **BEAMS},
            "speculative_1": {"drafter": "neural", "length": 1, "width": 4, **BEAMS},
            "speculative_2": {"drafter": "neural", "length": 2, "width": 4, **BEAMS},
        },
    )
