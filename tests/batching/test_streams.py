"""Many prompts in few slots: what users of `Generator` see, and what feeds promise."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest
from tiny import corpus

import specjax
from specjax.batching.requests import Entry, ListFeed, ThreadFeed
from specjax.batching.rows import find_width, list_bounds
from specjax.decoding import filling
from specjax.runtime.errors import UserError

PROMPTS = [each.source * (1 + n % 3) for n, each in enumerate(corpus()[:23])]
NEW = 12


@pytest.fixture(scope="module")
def loaded(pair):
    return specjax.load(pair / "target"), specjax.load(pair / "drafter")


@pytest.fixture(scope="module")
def generator(loaded):
    target, drafter = loaded
    strategy = specjax.speculative(length=3)
    return specjax.Generator(
        target, {"drafter": drafter}, strategy, max_new_tokens=NEW, max_prompt_tokens=256
    )


@pytest.fixture(scope="module")
def whole(generator):
    return generator(PROMPTS)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5])
def test_a_call_with_few_slots_gives_the_rows_of_one_batch(generator, whole, size):
    result = generator(PROMPTS, batch_size=size)
    assert result.tokens == whole.tokens and result.texts == whole.texts
    assert result.statistics == whole.statistics
    assert result.first.entries() == whole.first.entries()


@pytest.mark.slow
def test_sampled_rows_of_few_slots_have_the_seeds_of_their_places(loaded):
    target, drafter = loaded
    strategy = specjax.speculative(length=3, temperature=0.7)
    made = specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=NEW, bucket=256)
    assert made(PROMPTS, seed=3, batch_size=4).tokens == made(PROMPTS, seed=3).tokens


@pytest.mark.slow
def test_rows_are_handed_out_as_they_end(generator, whole):
    found = list(generator.stream_many(iter(PROMPTS), batch_size=4))
    assert sorted(found) == list(enumerate(whole.texts))


@pytest.mark.slow
def test_no_mixture_of_prompts_compiles_anything_new(generator):
    programs = filling.fill, filling.advance_until, filling.take, filling.make_slots
    list(generator.stream_many(PROMPTS, batch_size=4))
    sizes = [program._cache_size() for program in programs]
    stopping = [specjax.Request(each, stop_strings=[each[:n]]) for n, each in enumerate(PROMPTS, 1)]
    list(generator.stream_many([*reversed(PROMPTS * 2), *stopping], batch_size=4))
    assert [program._cache_size() for program in programs] == sizes


@pytest.mark.slow
def test_warm_slots_compile_nothing_and_know_the_times_of_their_rows(loaded):
    target, drafter = loaded
    strategy = specjax.speculative(length=2)
    made = specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=NEW)
    ids = made.encode(PROMPTS)
    width, lengths = find_width(made.prompts, ids), list(map(len, ids))
    slots = made.slots(5, width)
    slots.warm_up(list_bounds(made.prompts, width, min(lengths), max(lengths)))
    programs = filling.fill, filling.advance_until, filling.take, filling.make_slots
    sizes = [program._cache_size() for program in programs]
    start = time.perf_counter()
    ended = list(slots.run(ListFeed([Entry(n, row, NEW, 0, n) for n, row in enumerate(ids)])))
    assert [program._cache_size() for program in programs] == sizes
    for one in ended:
        for begin, first in zip(one.start_times, one.first_token_times, strict=True):
            assert start < begin < first <= one.end_time


def test_bounds_are_those_of_the_lengths(generator):
    known = (1, 64, [8, 16, 32, None]), (9, 64, [16, 32, None]), (1, 16, [8, 16])
    for shortest, longest, bounds in (*known, (33, 40, [None])):
        assert list_bounds(generator.prompts, 64, shortest, longest) == bounds


@pytest.mark.slow
def test_a_prompt_has_settings_of_its_own(loaded, whole):
    target, drafter = loaded
    strategy = specjax.speculative(length=3, temperature=1.0)
    made = specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=NEW)
    ask = [
        specjax.Request(PROMPTS[0], max_new_tokens=3, seed=1),
        specjax.Request(PROMPTS[0], seed=2, index=0),
        specjax.Request(PROMPTS[0], seed=1, index=0),
        PROMPTS[0],
    ]
    texts = dict(made.stream_many(ask, seed=2, batch_size=2))
    tokens = {place: len(target.tokenizer(text).input_ids) for place, text in texts.items()}
    assert texts[1] == made(PROMPTS[0], seed=2).texts[0]
    assert texts[2] == made(PROMPTS[0], seed=1).texts[0] != texts[1]
    assert texts[2].startswith(texts[0]) and tokens[0] < tokens[2]
    assert texts[3] == made([PROMPTS[0]] * 4, seed=2).texts[3]


@pytest.mark.slow
def test_a_prompt_ends_at_stop_strings_of_its_own(generator, whole):
    string = whole.texts[1][3:5]
    ask = [PROMPTS[0], specjax.Request(PROMPTS[1], stop_strings=string), *PROMPTS[2:5]]
    found = dict(generator.stream_many(ask, batch_size=4))
    end = found.pop(1)
    assert string in end != whole.texts[1] and whole.texts[1].startswith(end)
    assert found == {place: whole.texts[place] for place in found}


@pytest.mark.slow
def test_rows_with_stop_strings_of_their_own_are_those_of_generators_with_them(loaded):
    target, drafter = loaded
    given = {"strategy": specjax.speculative(length=3), "max_new_tokens": NEW}
    plain = specjax.Generator(target, {"drafter": drafter}, **given)(PROMPTS[:6]).texts
    strings = [(plain[0][3:5],), (plain[1][2:4], "nowhere")]

    def make(stop_strings):
        generation = {"stop_strings": stop_strings}
        return specjax.Generator(target, {"drafter": drafter}, generation=generation, **given)

    first, second = (make(own)(PROMPTS[:6]).texts for own in strings)
    ask = [*PROMPTS[:3], *(specjax.Request(each, stop_strings=()) for each in PROMPTS[3:5])]
    ask.append(specjax.Request(PROMPTS[5], stop_strings=strings[1]))
    ask += [specjax.Request(each, stop_strings=strings[1]) for each in PROMPTS[:6]]
    found = dict(make(strings[0]).stream_many(ask, batch_size=3))
    assert [found[place] for place in range(12)] == [
        *first[:3], *plain[3:5], second[5], *second
    ]  # fmt: skip
    assert first[0] != plain[0] and second[1] != plain[1]


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (specjax.Request("a", stop_strings=["b", ""]), "stop_strings is ('b', ''); it must be a"),
        (specjax.Request("a", stop_strings=["a" * 300] * 2), "stop_strings have 600 bytes"),
        (specjax.Request("a", max_new_tokens=NEW + 1), "max_new_tokens is 13; it must be at most"),
        (specjax.Request("a", max_new_tokens=0), "max_new_tokens is 0"),
        (specjax.Request("a", seed=-1), "seed is -1"),
        ("word " * 400, "tokens; max_prompt_tokens allows 1 to 256"),
        (7, "prompt 1"),
    ],
)
def test_a_prompt_that_cannot_be_decoded_is_named_and_the_others_go_on(generator, request_, named):
    found = dict(generator.stream_many([PROMPTS[0], request_, PROMPTS[1]], batch_size=2))
    assert isinstance(found[1], UserError) and named in str(found[1])
    assert "prompt 1" in str(found[1])
    assert [found[0], found[2]] == generator(PROMPTS[:2]).texts


def test_an_iterable_that_fails_hands_out_what_came_before(generator, whole):
    def prompts():
        yield from PROMPTS[:3]
        raise OSError("the disk is gone")

    rows = generator.stream_many(prompts(), batch_size=2)
    assert sorted(itertools.islice(rows, 3)) == list(enumerate(whole.texts[:3]))
    with pytest.raises(OSError, match="the disk is gone"):
        next(rows)


def test_rows_go_on_while_the_producer_stalls(generator, whole):
    go_on = threading.Event()

    def prompts():
        yield PROMPTS[0]
        if not go_on.wait(60):
            raise TimeoutError("the first row was not handed out before the second prompt")
        yield PROMPTS[1]

    rows = generator.stream_many(prompts(), batch_size=2)
    assert next(rows) == (0, whole.texts[0])  # without the second prompt
    go_on.set()
    assert list(rows) == [(1, whole.texts[1])]


def test_a_consumer_that_stops_reading_stops_the_producer(generator):
    read = []

    def prompts():
        for n in itertools.count():
            read.append(n)
            yield PROMPTS[n % len(PROMPTS)]

    rows = generator.stream_many(prompts(), batch_size=2)
    for _ in range(4):
        next(rows)
    time.sleep(0.5)
    count = len(read)
    assert count <= 4 + 2 * 2 + 3 + 2  # handed out or ready, in slots, queued, in hand
    time.sleep(0.5)
    assert len(read) == count
    rows.close()


def test_a_closed_feed_lets_its_thread_end():
    others = {*threading.enumerate()}
    feed = ThreadFeed(itertools.count(), lambda place, _: place, 2)
    (thread,) = {*threading.enumerate()} - others
    assert feed.take(1, wait=True) == [0] and thread.is_alive()
    feed.close()
    thread.join(10)
    assert not thread.is_alive()


def test_an_event_loop_goes_on(generator, whole):
    ticks = []

    async def prompts():
        for prompt in PROMPTS[:5]:
            await asyncio.sleep(0.01)
            yield prompt

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.005)

    async def read():
        ticking = asyncio.create_task(tick())
        found = [row async for row in generator.stream_many_async(prompts(), batch_size=2)]
        ticking.cancel()
        return found

    assert sorted(asyncio.run(read())) == list(enumerate(whole.texts[:5]))
    assert len(ticks) > 5


def test_bad_arguments_are_refused_at_once(generator):
    with pytest.raises(UserError, match="batch_size is 0"):
        generator.stream_many(PROMPTS, batch_size=0)
    with pytest.raises(UserError, match="prompts is 'one text'"):
        generator.stream_many("one text")
    with pytest.raises(UserError, match="tables has 'corpus'"):
        generator.stream_many(PROMPTS, tables={"corpus": {}})
