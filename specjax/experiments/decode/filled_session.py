"""A decode experiment in slots that are refilled: generators, and prompts that are not held."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.batching.requests import Entry, ThreadFeed
from specjax.batching.rows import list_bounds
from specjax.batching.slots import Slots
from specjax.data.batching import Batch, Prompt, round_up
from specjax.data.text import Example
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.choosing import selection_trees
from specjax.experiments.decode.arm_selection import ArmSelector
from specjax.experiments.decode.data import choose_metric, read_rest, stream_checked
from specjax.experiments.decode.prompts import make_prompts
from specjax.experiments.decode.session import (
    check_input,
    list_tables,
    make_arm_selectors,
    make_generators,
)
from specjax.experiments.decode.strategies import BASELINE
from specjax.experiments.decode.tables import reads_rest
from specjax.experiments.workdir import describe_run
from specjax.pair import Pair
from specjax.runtime.errors import UserError
from specjax.runtime.processes import get_place
from specjax.runtime.progress import UNNOTICED, progress


@dataclasses.dataclass
class Survey:
    """What one pass over all prompts finds out: their number and lengths, in tokens."""

    count: int = 0
    shortest: int = 0
    longest: int = 0

    def pass_on(self, prompts: Iterator[Prompt]) -> Iterator[Prompt]:
        """The prompts, which are counted as they are read."""
        for prompt in prompts:
            length = len(prompt)
            self.shortest = min(self.shortest or length, length)
            self.longest = max(self.longest, length)
            self.count += 1
            yield prompt


@dataclasses.dataclass(frozen=True)
class PromptSource:
    """Examples and prompts of a config, which every pass reads anew."""

    config: ConfigDict
    workdir: Path
    generator: Generator  # whose models read the prompts, as those of every strategy

    def examples(self) -> Iterator[Example]:
        """All examples in their order."""
        return stream_checked(self.config)

    def encode(self, index: int, example: Example) -> Prompt:
        """The prompt of an example.

        Raises:
          UserError: when it cannot be decoded, naming its index.
        """
        texts = make_prompts(self.config, self.generator.target, [example], self.workdir)
        return self.generator.prompts.encode_one(index, texts[0])

    def prompts(self) -> Iterator[Prompt]:
        """All prompts in the order of their examples."""
        for index, example in enumerate(self.examples()):
            yield self.encode(index, example)


@dataclasses.dataclass(frozen=True)
class FilledSession:
    """A decode experiment ready to run; no example, prompt or output is held."""

    config: ConfigDict
    pair: Pair
    metric: str
    source: PromptSource
    survey: Survey
    description: dict[str, Any]  # of the run (`workdir.describe_run`)
    strategies: dict[str, Strategy]
    generators: dict[str, Generator]
    arm_selectors: dict[str, ArmSelector]

    @property
    def size(self) -> int:
        """The number of this process's slots."""
        _, count = get_place()
        return self.generators[BASELINE].padded_size(self.config.batch_size // count)

    @property
    def own(self) -> range:
        """The examples that this process decodes."""
        index, count = get_place()
        return range(index, self.survey.count, count)

    @property
    def width(self) -> int:
        """Prompt tokens of a slot: the longest prompt's, in multiples of `config.bucket`."""
        return round_up(self.survey.longest, self.config.bucket or 1)

    def make_slots(self, name: str) -> Slots:
        """Empty slots of a strategy."""
        selector = self.arm_selectors[name]

        def get_rows(batch: Batch) -> Mapping[str, Any] | None:
            return selector.run_arguments(0, batch).get("rows")

        return self.generators[name].slots(self.size, self.width, rows=get_rows)

    def warm_up(self, slots: Slots) -> None:
        """Compiles the programs that slots run for prompts of these lengths."""
        shortest, longest = self.survey.shortest, self.survey.longest
        whole = min(longest, slots.part or longest)
        bounds: list[int | None] = []
        if shortest <= whole:
            bounds = list_bounds(self.source.generator.prompts, self.width, shortest, whole)
        slots.warm_up(bounds, in_parts=whole < longest)

    def make_entry(self, index: int, example: Example) -> Entry:
        """An example's entry; its place and its key are those of its index."""
        ids = self.source.encode(index, example)
        return Entry(index, ids, self.config.max_new_tokens, self.config.seed, index)

    def feed(self, done: Collection[int]) -> ThreadFeed:
        """The entries of this process's examples but those that are `done`, read by a thread."""
        own = self.own
        left = (
            (index, example)
            for index, example in enumerate(self.source.examples())
            if index in own and index not in done
        )
        return ThreadFeed(left, lambda _, pair: self.make_entry(*pair), self.size)


def open_filled(
    config: ConfigDict, strategies: Mapping[str, Strategy], pair: Pair, workdir: Path
) -> FilledSession:
    """Makes a generator for each strategy on a loaded pair, and checks every prompt in one pass.

    The pass finds the width of the slots and a prompt that is too long before anything is decoded.

    Raises:
      UserError: when the data or a strategy cannot be used with the pair.
    """
    check_input(config, pair.target)
    policies = selection_trees(strategies, pair.target.model)
    is_read = reads_rest(config, list_tables(strategies, policies))
    rest = read_rest(config) if is_read else []
    generators = make_generators(config, strategies, pair, policies, rest)
    source = PromptSource(config, workdir, generators[BASELINE])
    survey = Survey()
    bar = functools.partial(progress, desc="read prompts", unit="row", delay=UNNOTICED)
    with bar(survey.pass_on(source.prompts())) as prompts:
        description = describe_run(config, prompts)
    if not survey.count:
        place = f"config.task {config.task!r}" if config.task else "config.source_file"
        raise UserError(f"{place} has no example; it must have at least one")
    selectors = make_arm_selectors(config, strategies, policies, survey.count)
    found = choose_metric(config), source, survey, description
    return FilledSession(config, pair, *found, dict(strategies), generators, selectors)
