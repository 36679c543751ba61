"""specjax: speculative decoding in JAX.

`import specjax` is fast: public names are imported when they are first used.
"""

import importlib
import os
from typing import Any

# Silences transformers' note about missing PyTorch: only its tokenizers are used.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

__version__ = "0.1.0"

_PUBLIC = {
    "BeamGenerator": "beams",
    "BeamResult": "beams",
    "BeamStrategy": "decoding.beams.strategy",
    "Corpus": "data.corpus",
    "Generator": "api",
    "Hypothesis": "beams",
    "LoadedModel": "loading",
    "Request": "batching.requests",
    "Result": "result",
    "Segment": "transcription.transcript",
    "Strategy": "decoding.strategy",
    "Transcript": "transcription.transcript",
    "UserError": "runtime.errors",
    "autoregressive": "decoding.strategy",
    "chat_prompts": "prompts",
    "beam_search": "decoding.beams.strategy",
    "decode_config": "experiments.config.defaults",
    "grammar_pair": "experiments.quickstart",
    "in_language": "hf.speech",
    "in_vocabulary_of": "hf.shared_tokens",
    "language_token": "hf.languages",
    "load": "loading",
    "make_mesh": "parallel.mesh",
    "measure_load": "round_times",
    "plan": "jobs",
    "profile": "profiling",
    "quantize": "loading",
    "run": "jobs",
    "speculative": "decoding.strategy",
    "strategy": "decoding.strategy",
    "train_config": "experiments.config.defaults",
    "transcribe": "transcription.transcript",
}
"""The module of each public name."""

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'specjax' has no attribute {name!r}")
    return getattr(importlib.import_module(f"specjax.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *globals()]
