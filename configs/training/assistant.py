"""A drafter without a cache: its layers read the keys and values of the target's own layers.

    python -m specjax.main --config=configs/training/assistant.py --workdir=runs/assistant \
      --config.target=TARGET \
      --config.train.data.path=train.en.gz --config.train.data.reference_path=train.de.gz \
      --config.validation.data.path=val.en.gz --config.validation.data.reference_path=val.de.gz

For a decoder-only target `--config=configs/training/assistant.py:llama`. What `config.model.shape`
does not say it has from the target, whose key heads its layers must have. The drafter is left in
`model`, for `--config.drafter=runs/assistant/model` and `{"drafter": "assistant", "length": 4}`.
Its time and its acceptance were not measured here.

Gemma 4's assistants (Google 2026) have four layers and centroids of ids; how they were trained is
not published. Not run here at such sizes.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.layers import train_layers


def get_config(kind: str = "t5") -> ConfigDict:
    """The experiment on a kind of target; every field can be set by a flag."""
    return train_layers("assistant", kind, {"steps": 3}, 1000)
