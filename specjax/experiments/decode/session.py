"""A decode experiment with its models, data and generators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.data.batching import Batch, Prompt, pad_to_few_shapes
from specjax.data.text import Example
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.choosing import selection_trees
from specjax.experiments.decode.arm_selection import ArmSelector, make_arm_selector
from specjax.experiments.decode.data import load_data
from specjax.experiments.decode.prompts import make_prompts
from specjax.experiments.decode.strategies import BASELINE, common_width
from specjax.experiments.decode.tables import load_tables, reads_rest
from specjax.hf.shared_tokens import share_in
from specjax.hf.tokenizer import token_ids
from specjax.loading import LoadedModel
from specjax.pair import Pair
from specjax.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class Session:
    """A decode experiment ready to run: the same pair and data for all of its strategies."""

    config: ConfigDict
    pair: Pair
    examples: list[Example]
    metric: str
    prompts: list[Prompt]
    strategies: dict[str, Strategy]
    generators: dict[str, Generator]
    arm_selectors: dict[str, ArmSelector]
    compiled: dict[tuple[str, tuple[int, ...]], float] = dataclasses.field(default_factory=dict)
    """Seconds, by strategy and shape of the batch."""

    def batches(self) -> list[Batch]:
        """The examples in order, padded; the same for every strategy.

        Widths are multiples of `config.bucket`; if it is 0, a few widths that fit the lengths.
        """
        size = self.config.batch_size
        first = next(iter(self.generators.values()))
        batches = [
            first.batch(self.prompts[start : start + size], size, first=start)
            for start in range(0, len(self.prompts), size)
        ]
        if self.config.bucket:
            return batches
        pad = self.pair.target.model.info.pad
        return pad_to_few_shapes(batches, self.config.max_new_tokens, pad)


def open_session(
    config: ConfigDict, strategies: Mapping[str, Strategy], pair: Pair, workdir: Path
) -> Session:
    """Loads data and makes a generator for each strategy on a loaded pair.

    Answers to earlier turns of conversations are kept in the workdir.

    Raises:
      UserError: when the data or a strategy cannot be used with the pair.
    """
    check_input(config, pair.target)
    models = tuple(pair.models.items())
    strategies = {name: strategy.bind(models) for name, strategy in strategies.items()}
    policies = selection_trees(strategies, pair.target.model)
    data = load_data(config, more=reads_rest(config, list_tables(strategies, policies)))
    report_shared(pair, data.examples)
    generators = make_generators(config, strategies, pair, policies, data.rest)
    texts = make_prompts(config, pair.target, data.examples, workdir)
    prompts = generators[BASELINE].encode(texts)
    arm_selectors = make_arm_selectors(config, strategies, policies, len(prompts))
    made = strategies, generators, arm_selectors
    return Session(config, pair, data.examples, data.metric, prompts, *made)


def check_input(config: ConfigDict, target: LoadedModel) -> None:
    """Refuses a target without a tokenizer, and a prefix of audio.

    Raises:
      UserError: naming what is missing or the field.
    """
    if target.tokenizer is None:
        raise UserError(f"target {config.target!r} has no tokenizer files")
    if config.prefix and target.model.info.input:
        raise UserError(f"config.prefix is {config.prefix!r}; it must be empty for a speech model")


def list_tables(strategies: Mapping[str, Strategy], policies: Mapping[str, Any]) -> set[str]:
    """Names of the trees that strategies read in addition to models and policies."""
    tables = {table for one in strategies.values() for table in one.drafter.spec.resources}
    return tables - set(policies)


def make_generators(
    config: ConfigDict,
    strategies: Mapping[str, Strategy],
    pair: Pair,
    policies: Mapping[str, Any],
    rest: list[Example],
) -> dict[str, Generator]:
    """A generator for each strategy; tables may be made of the `rest` of the examples.

    Raises:
      UserError: when a strategy or a table cannot be used with the pair.
    """
    read = list_tables(strategies, policies)
    tables = load_tables(config, read, pair.target, pair.vocab_size, rest)
    invariant = common_width(config, strategies)
    return {
        name: Generator(
            pair.target,
            pair.drafters,
            strategy,
            tables={**policies, **tables},
            max_new_tokens=config.max_new_tokens,
            max_prompt_tokens=config.max_prompt_tokens,
            bucket=config.bucket,
            invariant=invariant,
        )
        for name, strategy in strategies.items()
    }


def make_arm_selectors(
    config: ConfigDict,
    strategies: Mapping[str, Strategy],
    policies: dict[str, Any],
    examples: int,
) -> dict[str, ArmSelector]:
    """The arm selector of each strategy.

    Raises:
      UserError: when given arms do not fit.
    """
    return {
        name: make_arm_selector(name, config.strategies.get(name), strategy, policies, examples)
        for name, strategy in strategies.items()
    }


def report_shared(pair: Pair, examples: list[Example]) -> None:
    """Prints the share of reference tokens that drafters of another vocabulary have."""
    texts = [example.output for example in examples if example.output]
    for name, entry in pair.drafters.items():
        if entry.own_tokenizer is not None and texts:
            share = share_in(entry, token_ids(entry.tokenizer, texts))
            print(f"drafter {name!r} has {share:.1%} of the tokens of the references")
