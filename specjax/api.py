"""Generators for notebooks and scripts: the five-line API.

target, drafter = specjax.load("google/t5-v1_1-xxl"), specjax.load("google/t5-v1_1-small")
generator = specjax.Generator(target, {"drafter": drafter}, specjax.speculative(length=4))
result = generator(["translate English to German: A man rides a bike."])
print(result.texts, result.statistics)
"""

from __future__ import annotations

import copy
import functools
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Self

import jax
import numpy as np

from specjax.batching.outputs import (
    Output,
    decode_all,
    decode_stream,
    gather_rows,
    get_logprobs,
    get_outputs,
    get_tokens,
    order_rows,
    stream_async,
)
from specjax.batching.requests import Entry, RequestEncoder, ThreadFeed
from specjax.batching.rows import RowMaker, StopMaker, find_width, fold_each
from specjax.batching.slots import Slots
from specjax.checks import check_dictionary, check_integer, check_integers
from specjax.contracts.context import Options
from specjax.data.batching import Batch, Prompt
from specjax.decoding.logprobs import parse_logprobs
from specjax.decoding.loop import advance_jitted, begin_jitted, generate
from specjax.decoding.state import Generation, check_resources
from specjax.decoding.strategy import Strategy, autoregressive
from specjax.decoding.summary import summarize
from specjax.hf.families.generation import note_beams
from specjax.loading import LoadedModel
from specjax.logits.settings import STOP_STRINGS, apply_settings, parse_settings
from specjax.models.base import Params
from specjax.pair import check_parts, fit
from specjax.prompts import Prompts, make_all_own_ids
from specjax.result import SHOWN, FirstTexts, Result, pieces
from specjax.runtime.errors import UserError
from specjax.runtime.programs import release_programs


class Generator:
    """Decodes texts, token ids or audio with a target, its drafters and a strategy.

    A drafter of another tokenizer drafts the tokens that both have (`specjax.in_vocabulary_of`).
    Prompts are padded to multiples of `bucket` (0: as wide as the longest of their batch) and
    batches to full size, so that few programs are compiled. A call with no more prompts than its
    batch has rows is one host dispatch; of more, each takes the slot of a row that has ended
    (`decoding.filling`). Rows have the same tokens as alone under the same seed and index, with
    `adapt="load"` if greedy, up to rounding, which changes a token rarely in float32 and more often
    in half precision (docs/how_to/half_precision.md).

    `invariant`: tokens that every call of the target feeds; 0: as many as needed.
    Generators that share it, `max_new_tokens` and the batch's shape give the same greedy tokens
    in any dtype. `generation` are settings by Hugging Face's names instead of the target's own.

    `logprobs` adds the log-probability of each written token under the target, in nats
    (`Result.logprobs`). True or "raw": of its softmax at temperature 1 before all settings, as
    teacher forcing gives it and vLLM by default; "processed": of the distribution that lossless
    text is drawn from (docs/how_to/rollouts.md).
    """

    def __init__(
        self,
        target: LoadedModel,
        drafters: Mapping[str, LoadedModel] | None = None,
        strategy: Strategy | None = None,
        *,
        tables: Mapping[str, Params] | None = None,
        max_new_tokens: int = 64,
        max_prompt_tokens: int = 512,
        bucket: int = 8,
        invariant: int = 0,
        generation: Mapping[str, Any] | None = None,
        logprobs: bool | str = False,
    ) -> None:
        check_parts(target, drafters or {}, tables or {})
        note_beams(target.name, target.beams)
        if not isinstance(strategy, Strategy | None):
            raise UserError(
                f"strategy is {strategy!r}; it must be a Strategy, as specjax.speculative(length=4)"
            )
        check_integers(
            max_new_tokens=max_new_tokens, max_prompt_tokens=max_prompt_tokens, bucket=bucket
        )
        check_integer("invariant", invariant, 0)
        check_dictionary("generation", generation)
        kind = parse_logprobs(logprobs)
        settings = parse_settings({**target.settings, **(generation or {})})
        self.pair = pair = fit(target, drafters or {}).with_guidance(settings)
        self.target, self.strategy = pair.target, strategy or autoregressive()
        models = tuple(pair.models.items())
        try:
            self.decoder = self.strategy.decoder(
                models, max_new_tokens, layout=pair.layout, invariant=invariant, logprobs=kind
            )
        except ValueError as error:
            raise UserError(f"strategy: {error}") from None
        read = target.tokenizer, self.decoder, max_prompt_tokens, bucket
        self.prompts = Prompts(
            *read, make_all_own_ids(pair.members, max_new_tokens), target.extractor
        )
        self.params = pair.params(self.decoder.inputs, tables or {})
        check_resources(self.decoder, self.params)
        self.options = apply_settings(
            self.strategy.options(), settings, pair.target.model, target.tokenizer
        )
        self._own_stops = StopMaker(target, settings.get(STOP_STRINGS, ()))

    def __call__(
        self,
        prompts: str | Sequence[str] | Sequence[Sequence[int] | np.ndarray],
        *,
        seed: int = 0,
        batch_size: int | None = None,
        tables: Mapping[str, Params] | None = None,
    ) -> Result:
        """Decodes prompts (texts, token ids or audio); returns tokens, texts and statistics.

        A single text gives a result of one text.

        `tables` replace those that the generator was made with, in this call: a `Corpus` with
        outputs of earlier calls. Of the same shapes they compile nothing.

        Raises:
          UserError: when prompts, seed, batch size or tables are invalid.
        """
        check_integers(seed=seed, **({} if batch_size is None else {"batch_size": batch_size}))
        trees = self._check_tables(tables)
        ids = self.encode(prompts)
        size = self.padded_size(batch_size or len(ids))
        release_programs()
        if len(ids) > size:
            return self._fill(ids, seed, size, trees)
        batch = self.batch(ids, size)
        generation = self.run(batch, self.keys(batch, seed), trees=trees)
        tokens = self.rows(generation)[: len(ids)]
        logprobs = get_logprobs(generation)[: len(ids)] if self.decoder.logprobs else None
        # Leaves out the drafter's memory, which may be large.
        shown = generation.replace(memory=())
        return self._result(ids, tokens, logprobs, [(generation, len(ids))], shown)

    def _fill(self, ids: list[Prompt], seed: int, size: int, trees: Mapping[str, Params]) -> Result:
        """The result of more prompts than `size` slots, which take them one after the other."""
        most = self.decoder.max_new_tokens
        entries = [Entry(place, row, most, seed, place) for place, row in enumerate(ids)]
        slots = self.slots(size, find_width(self.prompts, ids), trees)
        ended = decode_all(slots, entries)
        tokens = order_rows(ended, get_tokens)
        logprobs = order_rows(ended, get_logprobs) if self.decoder.logprobs else None
        traces = [(one.generation, len(one.entries)) for one in ended]
        shown = gather_rows(ended, min(SHOWN, len(ids)))
        return self._result(ids, tokens, logprobs, traces, shown)

    def _result(
        self,
        ids: list[Prompt],
        tokens: list[list[int]],
        logprobs: list[list[float]] | None,
        traces: list[tuple[Generation, int]],
        shown: Generation,
    ) -> Result:
        """A result whose first texts, for notebooks, are those of `shown`."""
        statistics, tokenizer = summarize(self.decoder, traces), self.target.tokenizer
        first = FirstTexts(shown, ids[:SHOWN], self.decoder, tokenizer) if tokenizer else None
        return Result(tokens, self.decode(tokens), statistics, first, logprobs)

    def slots(
        self,
        size: int,
        width: int,
        trees: Mapping[str, Params] | None = None,
        rows: Callable[[Batch], Mapping[str, np.ndarray] | None] | None = None,
        stops: StopMaker | None = None,
        **how: Any,
    ) -> Slots:
        """`size` slots for prompts of up to `width` tokens; `rows` are those of `run`, by batch."""

        def arguments(batch: Batch, keys: jax.Array) -> tuple[Any, ...]:
            return self.arguments(batch, keys, rows=rows(batch) if rows else None)[2:]

        make_rows = RowMaker(self.prompts, arguments, width, stops)
        params = self.params | dict(trees or {})
        return Slots(self.decoder, params, make_rows, size, **how)

    def stream_many(
        self,
        prompts: Iterable[Any],
        *,
        seed: int = 0,
        batch_size: int = 32,
        tables: Mapping[str, Params] | None = None,
    ) -> Iterator[tuple[int, Output]]:
        """Yields each prompt's place and text, or token ids, as soon as its row has ended.

        `prompts` are texts, token ids, audio or `Request`s. The iterable may be endless, and may
        wait for prompts: a thread reads it, at most `batch_size` prompts ahead, while rows go on.
        Nothing is decoded while nobody asks for the next row. A prompt that cannot be decoded gives
        its error in place of a text.

        Raises:
          UserError: at once, when an argument is invalid.
        """
        check_integers(seed=seed, batch_size=batch_size)
        if isinstance(prompts, str) or not isinstance(prompts, Iterable):
            raise UserError(f"prompts is {prompts!r:.80}; it must be an iterable of prompts")
        trees, size = self._check_tables(tables), self.padded_size(batch_size)
        encode = RequestEncoder(self.prompts, seed)

        def outputs() -> Iterator[tuple[int, Output]]:
            release_programs()
            how = {"stops": self._own_stops, "eager": True}
            slots = self.slots(size, find_width(self.prompts), trees, **how)
            for one in decode_stream(slots, ThreadFeed(prompts, encode, size)):
                yield from get_outputs(one, self.decode)

        return outputs()

    def stream_many_async(
        self, prompts: Iterable[Any] | AsyncIterable[Any], **options: Any
    ) -> AsyncIterator[tuple[int, Output]]:
        """`stream_many` for an event loop, which goes on while rows are decoded.

        `prompts` may be an asynchronous iterable.
        """
        return stream_async(functools.partial(self.stream_many, **options), prompts)

    def _check_tables(self, tables: Mapping[str, Params] | None) -> Mapping[str, Params]:
        """Tables for a call; refuses those that the strategy does not read or that do not fit."""
        check_dictionary("tables", tables)
        read = self.decoder.drafter.spec.resources
        for name in tables or {}:
            if name not in read:
                known = ", ".join(map(repr, read)) or "none"
                raise UserError(f"tables has {name!r}; of tables the strategy reads {known}")
        check_resources(self.decoder, self.params | dict(tables or {}))
        return tables or {}

    def with_params(self, target: Params, drafters: Mapping[str, Params] | None = None) -> Self:
        """A generator with other weights that shares this one's compiled programs.

        `target` are the target's parameters, `drafters` those of drafters by name, each a tree as
        in `generator.params`; they are moved to the devices of those before. Other drafters keep
        theirs, but a feature drafter gets the embedding and output layer that it has from the
        target anew, and one without an encoder of its own reads the states of the new target's.

        Raises:
          UserError: naming the first leaf that is missing, or of another shape or dtype.
        """
        made = copy.copy(self)
        made.pair = self.pair.with_params(target, drafters)
        made.target, members = made.pair.target, made.pair.members
        own = {name: one.params for name, one in members.items() if name in self.params}
        made.params = self.params | own
        return made

    def padded_size(self, wanted: int) -> int:
        """The rows of a batch: filled up to a multiple of the mesh's `data` axis."""
        ways = self.decoder.row_ways
        return -(-wanted // ways) * ways

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        seed: int = 0,
        rounds: int = 1,
        batch_size: int = 1,
    ) -> Iterator[str | list[int]]:
        """Yields final text pieces, or token ids, after every `rounds` rounds.

        Pieces join to the whole text: characters that a later token may change are held back. Rows
        up to `batch_size` decode nothing: they give the batch the shape of another one.

        Raises:
          UserError: at once, when an argument is invalid.
        """
        check_integers(seed=seed, batch_size=batch_size)
        check_integer("rounds", rounds, 1)
        batch = self.batch(self.encode([prompt]), self.padded_size(batch_size))
        return pieces(self.target.tokenizer, self._outputs(batch, seed, rounds))

    def _outputs(self, batch: Batch, seed: int, rounds: int) -> Iterator[tuple[list[int], bool]]:
        """The first row's tokens after every `rounds` rounds, and whether they are complete."""
        release_programs()
        state = begin_jitted(*self.arguments(batch, self.keys(batch, seed)))
        while bool(state.context.active.any()):
            state = advance_jitted(self.decoder, self.params, state, rounds)
            context = state.context
            row = np.asarray(context.tokens)[0, int(context.begin[0]) : int(context.length[0])]
            yield row.tolist(), not context.active.any()

    def encode(self, prompts: Sequence[Any]) -> list[Prompt]:
        """Token ids of prompts, or audio features; checks that all can be decoded."""
        return self.prompts.encode(prompts)

    def batch(self, ids: Sequence[Prompt], size: int, first: int = 0) -> Batch:
        """Rows `first ..` padded to a compiled shape; missing rows decode nothing."""
        return self.prompts.batch(ids, size, first)

    def keys(self, batch: Batch, seed: int) -> jax.Array:
        """One key per row, from the seed and the row's index in the data."""
        return fold_each(jax.random.key(seed), batch.index)

    def run(
        self,
        batch: Batch,
        keys: jax.Array,
        limit: np.ndarray | None = None,
        *,
        rows: Mapping[str, np.ndarray] | None = None,
        trees: Mapping[str, Params] | None = None,
        options: Options | None = None,
    ) -> Generation:
        """One dispatch of the jitted decode.

        `limit` [B] overrides the batch's, `trees` parameter trees, `options` the strategy's own;
        `rows` [B] are the numbers per row that a strategy needs (`Spec.rows`).

        Raises:
          UserError: when a strategy lacks its numbers per row.
        """
        return generate(*self.arguments(batch, keys, limit, rows, trees, options))

    def compile(
        self,
        batch: Batch,
        keys: jax.Array,
        *,
        rows: Mapping[str, np.ndarray] | None = None,
        trees: Mapping[str, Params] | None = None,
    ) -> None:
        """Compiles the program that `run` uses with the same arguments."""
        generate.lower(*self.arguments(batch, keys, None, rows, trees)).compile()

    def program(
        self,
        batch: Batch,
        keys: jax.Array,
        *,
        rows: Mapping[str, np.ndarray] | None = None,
        trees: Mapping[str, Params] | None = None,
    ) -> Hashable:
        """Key of the program that `run` uses; equal keys share a program."""
        decoder, *arrays = self.arguments(batch, keys, None, rows, trees)
        leaves, structure = jax.tree.flatten(arrays)
        return decoder, structure, tuple(map(jax.typeof, leaves))

    def arguments(
        self,
        batch: Batch,
        keys: jax.Array,
        limit: np.ndarray | None = None,
        rows: Mapping[str, np.ndarray] | None = None,
        trees: Mapping[str, Params] | None = None,
        options: Options | None = None,
    ) -> tuple[Any, ...]:
        """Arguments of `decoding.loop.generate` and `begin` for `run`."""
        given = dict(rows or {})
        choice = self.decoder.drafter.choice
        for name in choice.rows if choice else ():
            if name not in given:
                raise UserError(
                    f"{name} is None; the strategy needs that of each row, by its index"
                )
        prompts = {name: batch.own[name] for name in self.decoder.used if name in batch.own}
        params = self.params | dict(trees or {})
        limit = batch.limit if limit is None else limit
        options = (options or self.options).replace(rows=given, prompts=prompts)
        return self.decoder, params, batch.tokens, batch.length, keys, limit, options

    @staticmethod
    def rows(generation: Generation) -> list[list[int]]:
        """Generated ids of every row, fetched from the device."""
        return get_tokens(generation)

    def decode(self, tokens: list[list[int]]) -> list[str] | None:
        """Texts of generated ids without special tokens; None without a tokenizer."""
        return self.prompts.decode(tokens)
