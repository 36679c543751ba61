"""What `accelerator.py` times: calls and decodes of specjax, each against the target's own.

A contest has two sides that are timed in turn; side 0 is the baseline. Nothing here knows where
results go or when to stop.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import numpy as np
import planted
from bandwidth_bound import TABLE

import specjax
from specjax.contracts.spec import Call
from specjax.decoding.summary import summarize
from specjax.measuring.stopwatch import Stopwatch
from specjax.models.base import LanguageModel, Params

VERIFY, DRAFT, DECODE = "verify", "draft", "decode"
"""Kinds of a unit: a call of K + 1 tokens, a drafter's step, both against the target's step of one
token; a decode with drafts against one without."""

ROOM = 16
"""Slots of a timed cache beyond the longest output, and tokens that a timed call may feed."""

STEPS = 32
"""Turns of a timed loop: reading 64 prompts takes as long, and its jitter must not count."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """What is measured at once, with what it is compared with."""

    kind: str
    batch: int = 1
    drafter: str = ""
    length: int = 0
    acceptance: float = 0.0

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        words = [self.kind, f"batch={self.batch}"]
        words += [self.drafter] * bool(self.drafter) + [f"K={self.length}"] * bool(self.length)
        return "/".join(words + [f"acceptance={self.acceptance}"] * bool(self.acceptance))


def units(pair: planted.Pair, batches: list[int], lengths: list[int]) -> Iterator[Unit]:
    """All units of specjax on a pair, the decodes first: they say most."""
    yield from decodes(pair)
    for batch in batches:
        yield from (Unit(DRAFT, batch, drafter) for drafter in pair.drafters)
        yield from (Unit(VERIFY, batch, length=length) for length in lengths)


def decodes(pair: planted.Pair) -> Iterator[Unit]:
    """Decodes at the paper's draft lengths and acceptance rates, batch 1.

    The rates of a drafter that the paper has are its own; others are given all of them.
    """
    known = {row[0] for row in TABLE}
    for drafter in pair.drafters:
        for name, _, length, acceptance, _ in TABLE:
            if name == drafter or drafter not in known:
                yield Unit(DECODE, 1, drafter, length, acceptance)


@dataclasses.dataclass(frozen=True)
class Trial:
    """One look at the clock."""

    milliseconds: float  # of a call, or of a generated token
    tokens: list[int] | None = None  # of a decode
    accepted: float | None = None  # of the positions that were tested, where it is known


class Contest(Protocol):
    """Two sides that can be timed any number of times."""

    def trial(self, side: int, repeat: int) -> Trial: ...


@dataclasses.dataclass(frozen=True)
class Texts:
    """Length of prompts and outputs."""

    prompt: int
    new: int

    def head(self, encoder_decoder: bool) -> int:
        """Slots of a decoder's cache that hold no output."""
        return 1 if encoder_decoder else self.prompt


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The models of a pair with weights on the device."""

    pair: planted.Pair
    texts: Texts
    models: dict[str, LanguageModel]
    params: dict[str, Params]

    @classmethod
    def make(cls, pair: planted.Pair, texts: Texts) -> Loaded:
        shapes = {"target": pair.target, **pair.drafters}
        models = {name: planted.describe_model(shape) for name, shape in shapes.items()}
        params = {
            name: planted.weights(model, seed) for seed, (name, model) in enumerate(models.items())
        }
        return cls(pair, texts, models, jax.block_until_ready(params))

    def contest(self, unit: Unit) -> Contest:
        """The contest of a unit, its programs compiled."""
        return Decodes(self, unit) if unit.kind == DECODE else Calls(self, unit)


class Calls:
    """A call of one model against the target's step of one token, each in a jitted loop."""

    def __init__(self, loaded: Loaded, unit: Unit) -> None:
        texts = loaded.texts
        watch = Stopwatch(
            loaded.models,
            loaded.params,
            batch=unit.batch,
            prompt=texts.prompt,
            capacity=texts.head(loaded.pair.encoder_decoder) + texts.new + ROOM,
            steps=STEPS,
        )
        fed = unit.length + 1
        other = Call(unit.drafter, 1, 1) if unit.kind == DRAFT else Call("target", fed, fed)
        self._timings = [watch.timing([(call,)]) for call in (Call("target", 1, 1), other)]

    def trial(self, side: int, repeat: int) -> Trial:
        timing = self._timings[side]
        timing.take()
        return Trial(timing.trials[-1][0])


class Decodes:
    """Speculative decoding of one prompt against autoregressive decoding.

    The drafter errs elsewhere in every repeat, as often as the acceptance rate of the unit says.
    """

    def __init__(self, loaded: Loaded, unit: Unit) -> None:
        self._unit, self._loaded = unit, loaded
        drafted = specjax.speculative(unit.length)
        self._sides = [self._generator(s) for s in (specjax.autoregressive(), drafted)]
        for side in (0, 1):
            self.trial(side, 0)  # compiles and warms up

    def _generator(self, strategy: specjax.Strategy) -> specjax.Generator:
        loaded = {
            name: specjax.LoadedModel(self._loaded.models[of], self._loaded.params[of])
            for name, of in (("target", "target"), ("drafter", self._unit.drafter))
        }
        drafter = {"drafter": loaded["drafter"]} if strategy.drafter.spec.models else {}
        return specjax.Generator(
            loaded["target"],
            drafter,
            strategy,
            max_new_tokens=self._loaded.texts.new,
            max_prompt_tokens=self._loaded.texts.prompt,
        )

    def trial(self, side: int, repeat: int) -> Trial:
        """Milliseconds of a token; reading the prompt does not count."""
        generator, texts = self._sides[side], self._loaded.texts
        batch = generator.batch([planted.prompt(self._loaded.pair, texts.prompt)], 1)
        keys = generator.keys(batch, 0)
        trees = self._erring(repeat) if side else {}

        def run(limit: int) -> Any:
            return generator.run(batch, keys, np.full_like(batch.limit, limit), trees=trees)

        jax.block_until_ready((keys, trees))
        reading, _ = time_run(lambda: jax.block_until_ready(run(0)))
        whole, generation = time_run(lambda: jax.block_until_ready(run(texts.new)))
        statistics = summarize(generator.decoder, [(generation, 1)])
        return Trial(
            (whole - reading) / texts.new * 1e3,
            generator.rows(generation)[0],
            statistics.acceptance_rate if side else None,
        )

    def _erring(self, repeat: int) -> dict[str, Params]:
        """The drafter's parameters with the errors of a repeat."""
        vocabulary = self._loaded.models["target"].info.vocab_size
        after = planted.successors(vocabulary, self._unit.acceptance, seed=repeat)
        return {"drafter": planted.set_successors(self._loaded.params[self._unit.drafter], after)}


def time_run(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    start = time.perf_counter()
    found = run()
    return time.perf_counter() - start, found


def alternate(contest: Contest, repeats: int) -> dict[str, Any]:
    """Both sides timed `repeats` times in turn, each time the other one first."""
    trials: tuple[list[Trial], list[Trial]] = [], []
    for repeat in range(repeats):
        for side in (0, 1) if repeat % 2 == 0 else (1, 0):
            trials[side].append(contest.trial(side, repeat))
    base, other = ([trial.milliseconds for trial in side] for side in trials)
    row: dict[str, Any] = {"base_ms": base, "other_ms": other}
    if trials[0][0].tokens is not None:
        texts = [trial.tokens for side in trials for trial in side]
        row["same_tokens"] = all(text == texts[0] for text in texts)
        row["accepted"] = [trial.accepted for trial in trials[1]]
    return row
