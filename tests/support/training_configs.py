"""Training configs made small enough for the tiny pair."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ml_collections import ConfigDict

ROOT = Path(__file__).parents[2]
SHAPES = (
    "assistant", "scratch", "dflash", "dflash2", "dspark", "jetspec", "eagle", "p_eagle", "medusa",
    "mtp",
)  # fmt: skip
"""Start from no checkpoint."""

HERE = {"kind": "text", "split": ""}


def get_config(name: str) -> ConfigDict:
    file = ROOT / "configs" / "training" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config()


def small(name: str, pair: Path, **changes) -> ConfigDict:
    """The config on the tiny pair and its 60 sentences, for four steps."""
    config = get_config(name)
    with config.unlocked():
        if name not in SHAPES:
            config.model.checkpoint = str(pair / "drafter")
        config.target = str(pair / "target")
        files = {"path": pair / "source.txt", "reference_path": pair / "reference.txt"}
        for side in (config.train, config.validation):
            side.data.update(HERE | {key: str(file) for key, file in files.items()})
        config.train.examples, config.validation.examples = 48, 6
        config.optimizer.update(steps=4, warmup=1)
        config.evaluation.update(every=2, batch_size=4)
        config.update(batch_size=8, bucket=128, max_prompt_tokens=128, max_output_tokens=16)
        for path, value in changes.items():
            group, _, field = path.rpartition("__")
            (config[group] if group else config)[field] = value
    return config
