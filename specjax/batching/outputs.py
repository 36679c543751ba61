"""Decodes many prompts in few slots, for a generator."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, TypeVar

import jax
import numpy as np

from specjax.batching.requests import Entry, ListFeed, Refusal, ThreadFeed
from specjax.batching.slots import EndedRows, Slots
from specjax.decoding.state import Generation
from specjax.runtime.errors import UserError

Output = str | list[int] | UserError
"""A text, its token ids without a tokenizer, or the error of a prompt that was refused."""

T = TypeVar("T")


def decode_all(slots: Slots, entries: Sequence[Entry]) -> list[EndedRows]:
    """The rows of all entries, as they ended."""
    ended = list(slots.run(ListFeed(entries)))
    return [one for one in ended if isinstance(one, EndedRows)]


def decode_stream(slots: Slots, feed: ThreadFeed) -> Generator[EndedRows | Refusal, None, None]:
    """The rows of a feed as they end; an error of its iterable is raised after the last row."""
    try:
        yield from slots.run(feed)
        feed.check()
    finally:
        feed.close()


def get_tokens(generation: Generation) -> list[list[int]]:
    """Generated ids of every row, fetched from the device."""
    return _cut_rows(generation, generation.tokens)


def get_logprobs(generation: Generation) -> list[list[float]]:
    """Log-probabilities of the generated ids of every row, which the decoder must have computed."""
    return _cut_rows(generation, generation.trace.logprobs)


def _cut_rows(generation: Generation, values: jax.Array | None) -> list[list[Any]]:
    """The `values` [N, L] of the generated tokens of every row, fetched from the device."""
    rows, begin, length = jax.device_get((values, generation.begin, generation.length))
    return [row[b:n].tolist() for row, b, n in zip(rows, begin, length, strict=True)]


def order_rows(ended: Sequence[EndedRows], read: Callable[[Generation], list[T]]) -> list[T]:
    """What `read` returns of each row, in the order of the places of their prompts."""
    found: dict[int, T] = {}
    for one in ended:
        rows = read(one.generation)
        found |= {entry.place: row for entry, row in zip(one.entries, rows, strict=True)}
    return [found[place] for place in sorted(found)]


def gather_rows(ended: Sequence[EndedRows], count: int) -> Generation:
    """The rows of the first `count` prompts, in the order of their places."""
    found: dict[int, tuple[Generation, int]] = {}
    for one in ended:
        for row, entry in enumerate(one.entries):
            if entry.place < count:
                found[entry.place] = one.generation, row
    rows = [found[place] for place in range(count)]

    def stack(*path: str) -> np.ndarray:
        return np.stack([_get(generation, path)[row] for generation, row in rows])

    first = rows[0][0]
    trace = first.trace.replace(
        **{name: stack("trace", name) for name in ("numbers", "overlap", "drafts", "written_by")},
        logprobs=None,
    )
    own = {name: stack(name) for name in ("tokens", "begin", "length")}
    return first.replace(trace=trace, **own)


def _get(generation: Generation, path: Sequence[str]) -> Any:
    for name in path:
        generation = getattr(generation, name)
    return generation


def get_outputs(
    one: EndedRows | Refusal, decode: Callable[[list[list[int]]], list[str] | None]
) -> list[tuple[int, Output]]:
    """The places of prompts with their texts, or token ids without a tokenizer, or their error."""
    if isinstance(one, Refusal):
        return [(one.place, one.error)]
    tokens = get_tokens(one.generation)
    places = [entry.place for entry in one.entries]
    return list(zip(places, decode(tokens) or tokens, strict=True))


async def stream_async(
    stream: Callable[[Iterable[Any]], Iterator[T]], prompts: Iterable[Any] | AsyncIterable[Any]
) -> AsyncIterator[T]:
    """The items of `stream(prompts)`, each computed in a thread while the event loop goes on."""
    if isinstance(prompts, AsyncIterable):
        prompts = _read(prompts, asyncio.get_running_loop())
    items, end = stream(prompts), object()
    while (item := await asyncio.to_thread(next, items, end)) is not end:
        yield item  # pyright: ignore[reportReturnType]  # the end is never yielded


def _read(prompts: AsyncIterable[Any], loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """The items of an asynchronous iterable, for another thread than that of its event loop."""
    items = aiter(prompts)
    while True:
        try:
            yield asyncio.run_coroutine_threadsafe(_next(items), loop).result()
        except StopAsyncIteration:
            return


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)
