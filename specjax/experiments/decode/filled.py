"""Decodes all examples in slots that are refilled, once per strategy and repeat: throughput."""

from __future__ import annotations

import contextlib
import itertools
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from specjax.batching.outputs import decode_all, decode_stream, get_tokens
from specjax.batching.requests import Refusal
from specjax.batching.slots import EndedRows
from specjax.decoding.strategy import Strategy
from specjax.experiments.decode import filled_results
from specjax.experiments.decode.filled_log import Pass, Row, RowLog, list_logs, open_log
from specjax.experiments.decode.filled_merging import MERGED, merge_logs
from specjax.experiments.decode.filled_session import FilledSession, open_filled
from specjax.experiments.decode.results import arm_names
from specjax.metrics.occupancy import occupancy
from specjax.metrics.sums import sum_rows
from specjax.pair import Pair
from specjax.runtime import processes
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress

_TOGETHER = 16
"""Rows that a line of the log holds: their figures are summed in one step while others go on."""


def run(
    config: ConfigDict, strategies: Mapping[str, Strategy], pair: Pair, workdir: Path
) -> dict[str, Any]:
    """Decodes, measures and writes results; returns the content of results.json.

    An interrupted run goes on with the prompts that have no row. Of several processes each decodes
    its own prompts, and the first one writes the results of all.
    """
    session = open_filled(config, strategies, pair, workdir)
    index, count = processes.get_place()
    files = list_logs(workdir, count)
    with open_log(files[index], session.description) as log:
        measure(session, log)
        if count > 1:
            return write_together(session, log, files, workdir)
        return filled_results.write(session, log, workdir)


def write_together(
    session: FilledSession, own: RowLog, files: Sequence[Path], workdir: Path
) -> dict[str, Any]:
    """The results of all processes, which the first one writes from their logs."""
    own.out.close()  # so that another host sees all of it
    processes.wait_for_all()
    content = None
    if processes.is_first():
        with merge_logs(files, workdir / MERGED) as log:
            content = filled_results.write(session, log, workdir)
    processes.wait_for_all()
    return processes.from_first(content)


def measure(session: FilledSession, log: RowLog) -> None:
    """Makes all passes that are not in the log, strategies in alternation."""
    keys = itertools.product(range(session.config.repeats), session.generators)
    left = [(name, number) for number, name in keys if (name, number) not in log.figures]
    for name in dict.fromkeys(name for name, _ in left):
        warm_up(session, name)
    for key in left:
        make_pass(session, key, log)
    release_programs()


def warm_up(session: FilledSession, name: str) -> None:
    """Compiles every program of a strategy, and decodes as many prompts as there are slots."""
    slots = session.make_slots(name)
    session.warm_up(slots)
    first = itertools.islice(enumerate(session.source.examples()), session.size)
    decode_all(slots, [session.make_entry(*pair) for pair in first])


def make_pass(session: FilledSession, key: Pass, log: RowLog) -> None:
    """Decodes all prompts without a row in the log by a strategy, and logs rows as they end.

    Raises:
      UserError: when a prompt cannot be decoded.
    """
    done, slots = log.get_done(key), session.make_slots(key[0])
    if done:
        print(f"{len(done):,} of {len(session.own):,} rows of {key[0]} were decoded before")
    timing = Timing(session.size)
    bar = progress(total=len(session.own), initial=len(done), desc=key[0], unit="row")
    with bar, contextlib.closing(decode_stream(slots, session.feed(done))) as ended:
        for group in group_rows(ended, min(_TOGETHER, session.size)):
            rows = [row for one in group for row in describe_rows(session, key[0], one)]
            timing.add(group)
            log.add(key, rows, sum_up(session, key[0], group))
            bar.set_postfix_str(f"{timing.speed():,.0f} tokens/s", refresh=False)
            bar.update(len(rows))
    log.finish(key, timing.figures(resumed=len(done)))


def group_rows(ended: Iterable[EndedRows | Refusal], least: int) -> Iterator[list[EndedRows]]:
    """Rows that ended one after another, `least` or more at a time but for the last ones.

    Raises:
      UserError: that of a prompt that was refused.
    """
    group: list[EndedRows] = []
    for one in ended:
        if isinstance(one, Refusal):
            raise one.error
        group.append(one)
        if sum(len(each.entries) for each in group) >= least:
            yield group
            group = []
    if group:
        yield group


def describe_rows(session: FilledSession, name: str, one: EndedRows) -> list[Row]:
    """The rows of the log for prompts that ended together."""
    tokens = get_tokens(one.generation)
    texts = session.generators[name].prompts.texts(tokens)
    columns = one.entries, texts, tokens, one.start_times, one.first_token_times
    return [
        {
            "example": entry.place,
            "output": text,
            "tokens": ids,
            "first_token_seconds": first - start,
            "last_token_seconds": one.end_time - start,
        }
        for entry, text, ids, start, first in zip(*columns, strict=True)
    ]


def sum_up(session: FilledSession, name: str, group: Sequence[EndedRows]) -> dict[str, Any]:
    """The sums of a group of rows."""
    traces = [(one.generation, len(one.entries)) for one in group]
    names = arm_names(session.strategies[name])
    return sum_rows(session.generators[name].decoder, traces, names)


class Timing:
    """Times and occupancy of a pass, from a few numbers for each of its rows."""

    def __init__(self, slots: int) -> None:
        self._slots, self._tokens, self._start = slots, 0, time.perf_counter()
        self._first, self._ran = array("q"), array("q")
        self._first_token, self._last_token = array("d"), array("d")

    def add(self, group: Sequence[EndedRows]) -> None:
        """Adds a group of rows."""
        for one in group:
            committed = np.asarray(one.generation.trace.committed)
            self._tokens += int(committed.sum())
            self._first.extend(one.first_rounds)
            self._ran.extend((committed > 0).sum(axis=1).tolist())
            pairs = zip(one.first_token_times, one.start_times, strict=True)
            self._first_token.extend(first - start for first, start in pairs)
            self._last_token.extend(one.end_time - start for start in one.start_times)

    def speed(self) -> float:
        """Tokens a second so far."""
        return self._tokens / (time.perf_counter() - self._start)

    def figures(self, resumed: int) -> dict[str, Any]:
        """The figures of the whole pass, without its `resumed` rows of an earlier process.

        Shares and times are None where there are no other rows.
        """
        seconds, rows = time.perf_counter() - self._start, len(self._first)
        whole, before, rounds = None, None, 0
        if rows:
            whole, before, rounds = occupancy(self._first, self._ran, self._slots)
        return {
            "resumed_rows": resumed,
            "rows": rows,
            "tokens": self._tokens,
            "seconds": seconds,
            "tokens_per_second": self._tokens / seconds if rows else None,
            "rounds": rounds,
            "occupancy": whole,
            "occupancy_before_tail": before or None,
            "first_token_seconds": describe_times(self._first_token),
            "last_token_seconds": describe_times(self._last_token),
        }


def describe_times(seconds: array[float]) -> dict[str, float | None]:
    """The median and the 95th percentile; None without times."""
    if not seconds:
        return {"median": None, "p95": None}
    median, most = np.percentile(np.asarray(seconds), [50, 95])
    return {"median": float(median), "p95": float(most)}
