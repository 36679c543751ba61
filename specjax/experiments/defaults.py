"""The fields of a decode config and their defaults; config files change what differs."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict


def decode_config(**changes: Any) -> ConfigDict:
    """A decode experiment; every field can be set by a flag such as `--config.batch_size=4`."""
    config = ConfigDict()
    config.experiment = "decode"
    config.name = ""  # of the data, for tables and reports

    config.target = ""  # directory or hub id
    config.drafter = ""  # directory or hub id of the model called "drafter", if there is one
    config.drafters = ConfigDict()  # more of them: name -> directory or hub id
    config.heads = ""  # file of the parallel heads of blockwise drafters; empty: none
    config.dtype = "float32"  # bfloat16 on TPU and GPU
    config.mesh = ConfigDict({"data": 1, "model": 1})  # devices that split batch and weights
    config.split_drafters = False  # False: every device holds the drafters whole

    config.update(data_fields())
    config.examples = 200  # 0: all

    config.batch_size = 1
    config.max_new_tokens = 64
    config.max_prompt_tokens = 512
    config.bucket = 8  # prompts are padded to multiples of it; each width compiles once
    config.repeats = 3
    config.seed = 0

    config.strategies = ConfigDict()
    for field, value in changes.items():
        config[field] = ConfigDict(value) if isinstance(value, dict) else value
    return config


def data_fields(**changes: Any) -> ConfigDict:
    """Where examples come from; `experiments.data.load_data` reads them."""
    config = ConfigDict()
    # Data: a task with its prompts, references and metric, read from its own or another source ...
    config.task = ""
    config.data = ConfigDict(
        {
            "kind": "",  # hub, parquet, tfds, json, tsv, text, grammar; empty: the task's source
            "path": "",
            "reference_path": "",
            "subset": "",
            "split": "",
            "data_dir": "",
        }
    )
    # ... or plain files: text with one segment per line, or JSONL; gzip by the ending.
    config.source_file = ""
    config.reference_file = ""
    config.source_field = "source"  # of JSONL
    config.reference_field = "reference"
    config.prefix = ""  # put before every source

    config.examples = 0  # how many; 0: all
    config.metric = ""  # empty: the task's, or none
    config.ngram_file = ""  # text to fit n-grams from; empty: rows that are not decoded
    config.ngram_examples = 1000  # of a task, read beyond `examples` when a strategy needs them
    config.update(changes)
    return config


def neural(model: str, length: int, temperature: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A strategy that drafts `length` tokens with `model` under the lossless rule."""
    found = {"drafter": "neural", "model": model, "length": length, **fields}
    return found | ({"temperature": temperature} if temperature else {})


AUTOREGRESSIVE = {"drafter": "none"}
SAMPLED = {"drafter": "none", "temperature": 1.0}
