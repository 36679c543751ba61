"""The fields of a config whose drafter learns from the texts that it drafts, and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config, example_fields, generation_fields
from specjax.experiments.config.training import objective_fields

DECODES = (
    "name", "target", "drafter", "drafters", "dtype", "ignore_generation_config", "generation",
    "batch_size", "max_new_tokens", "max_prompt_tokens", "bucket", "seed", "strategies",
)  # fmt: skip
"""Fields that mean what they mean in a decode."""


def online_config(
    sources: Mapping[str, Mapping[str, Any]] | None = None, **changes: Any
) -> ConfigDict:
    """A stream of texts, decoded while one drafter learns from it.

    `sources` give fields of `example_fields` by name; they follow each other as they are given.
    """
    config = ConfigDict()
    config.experiment = "online"
    config.name = ""  # for reports
    config.target = ""  # directory or hub id
    config.drafter = ""  # directory or hub id of the model that learns, called "drafter"
    config.drafters = ConfigDict()  # others, which do not: name -> directory or hub id
    config.dtype = "float32"  # bfloat16 on TPU and GPU; what learns is float32
    config.update(generation_fields())
    config.sources = ConfigDict()  # of texts: name -> their fields
    config.stream = ()  # their names in the order in which they are decoded
    for name, fields in (sources or {}).items():
        config.sources[name] = example_fields()
        config.sources[name].update(fields)
        config.stream += (name,)
    config.strategies = ConfigDict()  # they take turns at every batch
    config.learns = ""  # the one whose drafter learns between texts; empty: none
    config.every = 8  # texts that are decoded between its updates, which learn from these
    config.steps = 1  # of the optimiser in an update
    config.objective = ConfigDict(  # the fields of all objectives; a run reads those of its own
        objective_fields("distillation")
    )
    config.optimizer = ConfigDict(
        {
            "name": "adamw",  # adafactor, relative_adam
            "learning_rate": 5e-4,
            "warmup": 0,
            "decay": "constant",  # linear, cosine: to zero at the end of the stream
            "weight_decay": 0.0,
            "clip": 1.0,  # global norm of the gradient; 0: none
        }
    )
    config.batch_size = 1
    config.max_new_tokens = 64
    config.max_prompt_tokens = 512
    config.bucket = 32  # prompts and rows to learn are padded to multiples of it
    config.seed = 0
    config.blocks = 20  # parts of the stream that plots tell apart
    for field, value in changes.items():
        config[field] = ConfigDict(value) if field == "strategies" else value
    return config


def as_decode(config: ConfigDict) -> ConfigDict:
    """The config of a decode with the same models and strategies."""
    return decode_config(**{field: config[field] for field in DECODES})
