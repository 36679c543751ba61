"""Models, texts and generators of a stream."""

from __future__ import annotations

import dataclasses

from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.data.batching import Prompt
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.defaults import to_decode_config
from specjax.experiments.config.fields import check_reads
from specjax.experiments.decode.data import stream
from specjax.experiments.online.learner import DRAFTER, Learner, make_learner
from specjax.experiments.pairs import load_pair
from specjax.runtime.errors import UserError


@dataclasses.dataclass
class Job:
    """A stream ready to be decoded."""

    config: ConfigDict
    sources: list[str]  # of every text
    texts: list[str]
    prompts: list[Prompt]
    generators: dict[str, Generator]
    learner: Learner | None
    compiled: set[tuple[str, tuple[int, ...]]] = dataclasses.field(default_factory=set)

    @property
    def batches(self) -> int:
        return -(-len(self.texts) // self.config.batch_size)

    def rows(self, batch: int) -> range:
        """The texts of a batch."""
        first = batch * self.config.batch_size
        return range(first, min(first + self.config.batch_size, len(self.texts)))

    @property
    def turns(self) -> int:
        """Number of batches of an update."""
        return self.config.every // self.config.batch_size


def prepare(config: ConfigDict, strategies: dict[str, Strategy]) -> Job:
    """Loads models and texts, and makes a generator for each strategy."""
    pair = load_pair(to_decode_config(config))
    target = pair.target
    if target.tokenizer is None:
        raise UserError(f"target {config.target!r} has no tokenizer files")
    check_reads("target", target.model)
    sizes = {name: config[name] for name in ("max_new_tokens", "max_prompt_tokens", "bucket")}
    generators = {
        name: Generator(target, pair.drafters, strategy, **sizes)
        for name, strategy in strategies.items()
    }
    sources, texts = [], []
    for name in config.stream:
        found = [example.source for example in stream(config.sources[name])]
        if not found:
            raise UserError(f"config.sources.{name} has no text that can be decoded")
        sources += [name] * len(found)
        texts += found
    prompts = next(iter(generators.values())).encode(texts)
    job = Job(config, sources, texts, prompts, generators, None)
    if config.learns:
        updates = len(texts) // config.every
        job.learner = make_learner(config, target, pair.drafters[DRAFTER], updates)
    return job
