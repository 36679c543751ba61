"""The fields of a config that transcribes audio of any length, and their defaults."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import changed, decode_config

WITHOUT = (
    "acceptance", "chat", "chat_template_kwargs", "invariant", "max_prompt_tokens", "prices",
    "profile_rounds", "sweep", "system", "topology",
)  # fmt: skip
"""Fields of a decode config that say nothing of audio, or of what is not measured here."""


def transcribe_config(**changes: Any) -> ConfigDict:
    """Audio of any length, window by window, by strategies that are timed side by side."""
    config = decode_config(max_new_tokens=220)
    for field in WITHOUT:
        del config[field]
    config.experiment = "transcribe"
    config.task, config.metric = "transcribe", "wer_basic"
    config.speech.timestamps = True  # which audio of more than one window needs
    config.windows = window_fields()
    return changed(config, changes)


def window_fields() -> ConfigDict:
    """How windows of audio follow each other; names are those of transformers' `generate`."""
    config = ConfigDict()
    config.condition_on_prev_tokens = False  # True: what was said before precedes a window's text
    config.temperature = ()  # tried in turn where a threshold is not met, as (0.0, 0.2, 0.4);
    # empty: that of each strategy
    config.compression_ratio_threshold = 0.0  # above it a text is decoded again; 0: not tested
    config.logprob_threshold = 0.0  # so is one of a lower mean log probability; 0: not tested
    config.no_speech_threshold = 0.0  # above it such a text is silence; 0: not tested
    return config
