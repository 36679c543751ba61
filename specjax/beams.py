"""Beam search from Python.

target = specjax.load("google/t5-v1_1-xxl")
drafter = specjax.load("google/t5-v1_1-small")
strategy = specjax.beam_search(beams=4, length_penalty=0.6, drafter="neural", length=2)
generator = specjax.BeamGenerator(target, {"drafter": drafter}, strategy)
result = generator(["translate English to German: A man rides a bike."])
print(result.texts, result.scores, result.statistics)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from specjax.checks import check_dictionary, check_integer, check_integers
from specjax.data.batching import Batch
from specjax.decoding.beams.loop import advance_jitted, begin_jitted, search
from specjax.decoding.beams.outcome import (
    BeamStatistics,
    Found,
    collect_found,
    final_tokens,
    statistics,
)
from specjax.decoding.beams.state import Search
from specjax.decoding.beams.strategy import BeamStrategy, beam_search
from specjax.hf.tokenizer import check_same_vocabulary
from specjax.loading import LoadedModel
from specjax.logits.settings import apply_settings, parse_settings
from specjax.models.base import Params
from specjax.pair import Pair, check_parts
from specjax.prompts import Prompts
from specjax.result import pieces
from specjax.runtime.errors import UserError
from specjax.runtime.programs import release_programs


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """A finished text of a prompt."""

    tokens: list[int]  # generated ids, EOS included
    text: str | None  # None without a tokenizer
    score: float  # log-probability over its length to the power of the length penalty


@dataclasses.dataclass(frozen=True, repr=False)
class BeamResult:
    """Outputs of one call, prompt by prompt."""

    hypotheses: list[list[Hypothesis]]  # of each prompt, best first
    statistics: BeamStatistics

    @property
    def tokens(self) -> list[list[int]]:
        """Generated ids of the best hypothesis of each prompt, EOS included."""
        return [best[0].tokens for best in self.hypotheses]

    @property
    def texts(self) -> list[str | None]:
        """The best text of each prompt; None without a tokenizer."""
        return [best[0].text for best in self.hypotheses]

    @property
    def scores(self) -> list[float]:
        """Score of the best hypothesis of each prompt."""
        return [best[0].score for best in self.hypotheses]

    def __repr__(self) -> str:
        made = self.statistics
        return (
            f"BeamResult({made.texts} texts, {made.tokens} tokens,"
            f" {made.steps_per_round:.2f} beam steps per target call)"
        )


def check_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a beam search applies.

    Raises:
      UserError: when one of them is not supported.
    """
    settings = parse_settings(given)
    if "stop_strings" in settings:
        raise UserError(
            f"stop_strings is {settings['stop_strings']}; it must be None for a beam search,"
            " whose texts end at an end token only"
        )
    return settings


def default_search(target: LoadedModel) -> BeamStrategy:
    """The plain beam search of the target's generation file, else of `specjax.beam_search`.

    Raises:
      UserError: when that is no beam search.
    """
    beams = {"beams": target.beams} if target.beams > 1 else {}
    names = ("length_penalty", "early_stopping")
    search_fields = {name: target.generation[name] for name in names if name in target.generation}
    try:
        return beam_search(**beams, **search_fields)
    except UserError as error:
        raise UserError(f"{target.name} has an invalid beam search: {error}") from None


class BeamGenerator:
    """Decodes texts or token ids by beam search, plain or speculative.

    The texts and scores are those of transformers' `generate(num_beams=...)`, up to rounding.
    Prompts and batches are padded as by `Generator`; each call is one host dispatch per batch, and
    rows do not depend on their batch. Penalties and stopping may be changed without compiling.
    `tables` are fitted counts, by the names under which drafters read them. `generation` are
    settings in place of those of the target, as of `Generator`. Without a `strategy` the beams,
    length penalty and stopping are those of the target's generation file.
    """

    def __init__(
        self,
        target: LoadedModel,
        drafters: Mapping[str, LoadedModel] | None = None,
        strategy: BeamStrategy | None = None,
        *,
        tables: Mapping[str, Params] | None = None,
        max_new_tokens: int = 64,
        max_prompt_tokens: int = 512,
        bucket: int = 8,
        generation: Mapping[str, Any] | None = None,
    ) -> None:
        check_parts(target, drafters or {}, tables or {})
        for name, drafter in (drafters or {}).items():
            check_same_vocabulary(name, drafter, target)
        check_integers(
            max_new_tokens=max_new_tokens, max_prompt_tokens=max_prompt_tokens, bucket=bucket
        )
        self.strategy = default_search(target) if strategy is None else strategy
        if not isinstance(self.strategy, BeamStrategy):
            raise UserError(
                f"strategy is {strategy!r}; it must be what specjax.beam_search returns"
            )
        pair = Pair(target, drafters or {})
        for name, entry in pair.members.items():
            if entry.mesh is not None:
                raise UserError(f"{name} is on a mesh; beam search needs models on one device")
        models = tuple((name, entry.model) for name, entry in pair.members.items())
        try:
            self.decoder = self.strategy.decoder(models, max_new_tokens)
        except ValueError as error:
            raise UserError(f"strategy: {error}") from None
        self.params = pair.params(self.decoder.inputs, tables or {})
        try:
            self.decoder.drafter.check(self.decoder, self.params)
        except ValueError as error:
            raise UserError(f"strategy: {error}") from None
        read = target.tokenizer, self.decoder, max_prompt_tokens, bucket
        self.prompts = Prompts(*read, extractor=target.extractor)
        check_dictionary("generation", generation)
        scoring = self.strategy.scoring(max_new_tokens)
        settings = check_settings({**target.settings, **(generation or {})})
        options = apply_settings(scoring.options, settings, target.model, beams=True)
        self.scoring = scoring.replace(options=options)

    def __call__(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int] | np.ndarray],
        *,
        batch_size: int | None = None,
    ) -> BeamResult:
        """Decodes prompts (texts, or token ids) and returns hypotheses and statistics.

        Raises:
          UserError: when prompts or batch size are invalid.
        """
        if batch_size is not None:
            check_integers(batch_size=batch_size)
        ids = self.prompts.encode(prompts)
        size = batch_size or len(ids)
        rows: list[Found] = []
        searches = []
        for start in range(0, len(ids), size):
            release_programs()
            batch = self.prompts.batch(ids[start : start + size], size, first=start)
            made = self.run(batch)
            rows += collect_found(made, batch.rows, self.strategy.sequences)
            searches.append((made, batch.rows))
        best = [row.tokens[0] for row in rows]
        return BeamResult(self._hypotheses(rows), statistics(self.decoder, searches, best))

    def stream(
        self, prompt: str | Sequence[int], *, rounds: int = 1, batch_size: int = 1
    ) -> Iterator[str | list[int]]:
        """Yields final text pieces, or token ids, after every `rounds` rounds.

        The final text is the common prefix of all hypotheses that may still win; pieces join to the
        best text. Rows up to `batch_size` decode nothing: they give the batch the shape of another
        one.

        Raises:
          UserError: at once, when an argument is invalid.
        """
        check_integer("rounds", rounds, 1)
        check_integers(batch_size=batch_size)
        batch = self.prompts.batch(self.prompts.encode([prompt]), batch_size)
        return pieces(self.prompts.tokenizer, self._outputs(batch, rounds))

    def _outputs(self, batch: Batch, rounds: int) -> Iterator[tuple[list[int], bool]]:
        """The first row's final tokens after every `rounds` rounds, and whether they are all."""
        release_programs()
        state = begin_jitted(self.decoder, self.params, *_rows(batch))
        while bool(state.search.active.any()):
            state = advance_jitted(self.decoder, self.params, state, self.scoring, rounds)
            yield final_tokens(state.search), not state.search.active.any()

    def run(self, batch: Batch) -> Search:
        """One dispatch of the jitted search."""
        return search(self.decoder, self.params, *_rows(batch), self.scoring)

    def _hypotheses(self, rows: Sequence[Found]) -> list[list[Hypothesis]]:
        texts = self.prompts.decode([tokens for row in rows for tokens in row.tokens])
        given = iter(texts or [])
        return [
            [
                Hypothesis(tokens, next(given, None), score)
                for tokens, score in zip(row.tokens, row.scores, strict=True)
            ]
            for row in rows
        ]


def _rows(batch: Batch) -> tuple[Any, ...]:
    """Prompts, their lengths and the mask of active rows."""
    return batch.tokens, batch.length, jnp.asarray(batch.limit > 0)
