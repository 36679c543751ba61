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
from collections.abc import Mapping, Sequence

import jax

from specjax.api import Generator, LoadedModel
from specjax.checks import check_integers
from specjax.data.batching import Batch
from specjax.decoding.beams.loop import search
from specjax.decoding.beams.outcome import BeamStatistics, Found, found, statistics
from specjax.decoding.beams.state import Search
from specjax.decoding.beams.strategy import BeamStrategy, beam_search
from specjax.decoding.strategy import autoregressive, speculative
from specjax.errors import UserError
from specjax.programs import release_programs


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


class BeamGenerator:
    """Decodes texts or token ids by beam search, plain or speculative.

    The texts and scores are those of transformers' `generate(num_beams=...)`, up to rounding.
    Prompts and batches are padded as by `Generator`; each call is one host dispatch per batch, and
    rows do not depend on their batch. Penalties and stopping may be changed without compiling.
    """

    def __init__(
        self,
        target: LoadedModel,
        drafters: Mapping[str, LoadedModel] | None = None,
        strategy: BeamStrategy | None = None,
        *,
        max_new_tokens: int = 64,
        max_prompt_tokens: int = 512,
        bucket: int = 8,
    ) -> None:
        self.strategy = beam_search() if strategy is None else strategy
        if not isinstance(self.strategy, BeamStrategy):
            raise UserError(
                f"strategy is {strategy!r}; it must be what specjax.beam_search returns"
            )
        chain = autoregressive()
        if self.strategy.speculative:
            chain = speculative(length=self.strategy.length, model=self.strategy.model)
        # Encodes prompts, makes batches, and refuses parts that do not fit.
        self._greedy = Generator(
            target,
            drafters,
            chain,
            max_new_tokens=max_new_tokens,
            max_prompt_tokens=max_prompt_tokens,
            bucket=bucket,
        )
        loaded = {"target": target, **(drafters or {})}
        if target.mesh is not None:
            raise UserError("target is on a mesh; beam search needs models on one device")
        models = tuple((name, entry.model) for name, entry in loaded.items())
        try:
            self.decoder = self.strategy.decoder(models, max_new_tokens)
        except ValueError as error:
            raise UserError(f"strategy: {error}") from None
        self.params = {name: loaded[name].params for name in self.decoder.used}
        self.scoring = self.strategy.scoring(max_new_tokens)

    def __call__(
        self,
        prompts: Sequence[str] | Sequence[Sequence[int]],
        *,
        batch_size: int | None = None,
    ) -> BeamResult:
        """Decodes prompts (texts, or token ids) and returns hypotheses and statistics.

        Raises:
          UserError: when prompts or batch size are of no use.
        """
        if batch_size is not None:
            check_integers(batch_size=batch_size)
        ids = self._greedy.encode(prompts)
        size = batch_size or len(ids)
        rows: list[Found] = []
        searches = []
        for start in range(0, len(ids), size):
            release_programs()
            batch = self._greedy.batch(ids[start : start + size], size, first=start)
            made = self.run(batch)
            rows += found(made, batch.rows, self.strategy.sequences)
            searches.append((made, batch.rows))
        best = [row.tokens[0] for row in rows]
        return BeamResult(self._hypotheses(rows), statistics(self.decoder, searches, best))

    def run(self, batch: Batch) -> Search:
        """One dispatch of the jitted search."""
        active = jax.numpy.asarray(batch.limit > 0)
        return search(self.decoder, self.params, batch.tokens, batch.length, active, self.scoring)

    def _hypotheses(self, rows: Sequence[Found]) -> list[list[Hypothesis]]:
        texts = self._greedy.decode([tokens for row in rows for tokens in row.tokens])
        given = iter(texts or [])
        return [
            [
                Hypothesis(tokens, next(given, None), score)
                for tokens, score in zip(row.tokens, row.scores, strict=True)
            ]
            for row in rows
        ]
