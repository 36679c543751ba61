"""Prompts with settings of their own, from lists or from iterables that may never end."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from specjax.checks import check_integer
from specjax.data.batching import Prompt
from specjax.logits.settings import parse_stop_strings
from specjax.prompts import Prompts
from specjax.runtime.errors import UserError

PUT_SECONDS = 0.1
"""How long the thread of a feed waits for room before it looks whether it is still needed."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A prompt (a text, token ids or audio) with settings of its own.

    `max_new_tokens` and `seed` None are those of the generator and of the call. A row's random
    numbers follow from its seed and `index`; None is the prompt's place among all. `stop_strings`
    end the text in place of the generator's, an empty list of them none (`generation`).
    """

    prompt: Any
    max_new_tokens: int | None = None
    seed: int | None = None
    index: int | None = None
    stop_strings: str | Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class Entry:
    """An encoded prompt that waits for a slot, or holds one."""

    place: int  # among all prompts, from 0
    ids: Prompt
    limit: int  # new tokens
    seed: int
    index: int  # seeds its key, together with `seed`
    stop_strings: tuple[str, ...] | None = None  # None: the generator's


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A prompt that cannot be decoded, and why."""

    place: int
    error: UserError


@dataclasses.dataclass(frozen=True)
class RequestEncoder:
    """Encodes prompts and requests, with `seed` where they have none."""

    prompts: Prompts
    seed: int

    def __call__(self, place: int, given: Any) -> Entry:
        """The entry of a prompt or a request.

        Raises:
          UserError: when the prompt or a setting is invalid, naming its place.
        """
        request = given if isinstance(given, Request) else Request(given)
        most = self.prompts.decoder.max_new_tokens
        limit = most if request.max_new_tokens is None else request.max_new_tokens
        check_integer(f"prompt {place}: max_new_tokens", limit, 1)
        if limit > most:
            raise UserError(
                f"prompt {place}: max_new_tokens is {limit}; it must be at most the generator's,"
                f" {most}"
            )
        seed = self.seed if request.seed is None else request.seed
        index = place if request.index is None else request.index
        check_integer(f"prompt {place}: seed", seed, 0)
        check_integer(f"prompt {place}: index", index, 0)
        stops = None
        if request.stop_strings is not None:
            given = request.stop_strings, self.prompts.tokenizer
            stops = parse_stop_strings(f"prompt {place}: ", *given)
        return Entry(
            place, self.prompts.encode_one(place, request.prompt), limit, seed, index, stops
        )


class Feed(Protocol):
    """Where slots take their prompts from."""

    @property
    def ended(self) -> bool:
        """Whether no further prompt will come."""
        ...

    def take(self, most: int, *, wait: bool) -> list[Entry | Refusal]:
        """Up to `most` of the next prompts that are there.

        With `wait` at least one, unless the feed ends.
        """
        ...


class ListFeed:
    """The prompts of a list."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = deque(entries)

    @property
    def ended(self) -> bool:
        return not self._entries

    def take(self, most: int, *, wait: bool) -> list[Entry | Refusal]:
        count = min(most, len(self._entries))
        return [self._entries.popleft() for _ in range(count)]


class _End:
    """The end of an iterable, and the error that ended it, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class ThreadFeed:
    """The prompts of an iterable, which a thread reads and encodes `ahead` of the slots.

    The iterable may be endless, and may block: rows that are being decoded go on. Only `ahead`
    prompts are read before they are needed. An error of the iterable ends the feed; `check` raises
    it.
    """

    def __init__(
        self, prompts: Iterable[Any], encode: Callable[[int, Any], Entry], ahead: int
    ) -> None:
        self._encode = encode
        self._waiting: queue.Queue[Entry | Refusal | _End] = queue.Queue(ahead)
        self._closed = threading.Event()
        self._end: _End | None = None
        read = threading.Thread(target=self._read, args=(prompts,), daemon=True)
        read.start()

    @property
    def ended(self) -> bool:
        return self._end is not None

    def take(self, most: int, *, wait: bool) -> list[Entry | Refusal]:
        taken: list[Entry | Refusal] = []
        while len(taken) < most and self._end is None:
            try:
                one = self._waiting.get(block=wait and not taken)
            except queue.Empty:
                break
            if isinstance(one, _End):
                self._end = one
            else:
                taken.append(one)
        return taken

    def close(self) -> None:
        """Lets the thread end; no further prompt is taken."""
        self._closed.set()

    def check(self) -> None:
        """Raises the error that ended the iterable, if any."""
        if self._end is not None and self._end.error is not None:
            raise self._end.error

    def _read(self, prompts: Iterable[Any]) -> None:
        end = _End()
        try:
            for place, prompt in enumerate(prompts):
                if not self._put(self._encode_or_refuse(place, prompt)):
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the prompts are taken
            end = _End(error)
        self._put(end)

    def _encode_or_refuse(self, place: int, prompt: Any) -> Entry | Refusal:
        try:
            return self._encode(place, prompt)
        except UserError as error:
            return Refusal(place, error)

    def _put(self, one: Entry | Refusal | _End) -> bool:
        """Whether there was room for it before the feed was closed."""
        while not self._closed.is_set():
            try:
                self._waiting.put(one, timeout=PUT_SECONDS)
            except queue.Full:
                continue
            return True
        return False
