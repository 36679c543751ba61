"""A seeded generator of English-German sentence pairs from a small hand-written grammar.

The embedded corpus of the quickstart. German side: three genders, four cases, strong, weak and
mixed adjective endings, prepositions, separable verbs, verb-final clauses, verb-second inversion,
numbers and dates. English side: plain declarative sentences. German is a function of English, so a
model that has learnt the grammar can translate without guessing:

    sentence   = clause | clause coordinator clause | clause conjunction clause
               | conjunction clause, clause | subject verb "that" clause
    clause     = [time] subject predicate [time], in the present, the past (German perfect) or
                 with a modal verb
    predicate  = verb [with person] [place] | verb [with person] direction
               | verb thing [for person] [place] | verb person [place]
               | verb person thing [place]
    phrase     = [determiner] [number] [adjective] noun | owner's [adjective] noun | pronoun

German orders a clause differently: known people as bare objects, time, place, all else; the finite
verb comes second, first or last.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random

from specjax.data import lexicon
from specjax.data.lexicon import Verb
from specjax.data.phrases import Phrase, join, person, resume_subject, thing

SPLITS = {"test": range(0, 1), "validation": range(1, 2), "train": range(2, 20)}
"""The twentieths of all sentences that belong to each split."""

WORDS = range(6, 31)
"""Most German words of a sentence."""

LEAST_LIMIT = 10
"""The smallest word limit: there are few shorter sentences."""

MOST_PAIRS = 1_000_000
"""Most pairs of a split; a million distinct ones take minutes."""

Text = tuple[str, str]
"""English and German."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A sentence and its translation."""

    source: str  # English
    target: str  # German


def pairs(split: str, count: int, seed: int = 0, most_words: int = WORDS.stop - 1) -> list[Pair]:
    """`count` distinct pairs of a split; a larger count keeps the first ones.

    Their German has at most `most_words` words. No sentence belongs to two splits for any seeds: a
    hash of the English side decides.

    Raises:
      ValueError: when `split` is unknown, `count` negative or more than `MOST_PAIRS`, or
        `most_words` less than `LEAST_LIMIT`.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; it must be one of {', '.join(SPLITS)}")
    if not 0 <= count <= MOST_PAIRS:
        raise ValueError(f"count is {count:,}; it must be from 0 to {MOST_PAIRS:,}")
    if most_words < LEAST_LIMIT:
        raise ValueError(f"most_words is {most_words}; it must be at least {LEAST_LIMIT}")
    rng = random.Random(seed)
    drawn: dict[str, Pair] = {}
    while len(drawn) < count:
        pair = sentence(rng, most_words)
        if pair.source not in drawn and _twentieth(pair.source) in SPLITS[split]:
            drawn[pair.source] = pair
    return list(drawn.values())


def _twentieth(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 20


def _both(*parts: Text) -> Text:
    return join(part[0] for part in parts), join(part[1] for part in parts)


@dataclasses.dataclass(frozen=True)
class Predicate:
    """A verb with what follows it in English, and in German before and after the time."""

    verb: Verb
    english: str
    early: str
    late: str


def predicate(rng: random.Random, subject: Phrase) -> Predicate:
    """A random predicate; its objects may belong to the subject."""
    make = rng.choices((_get, _make_meeting, _give, _do, _move), (6, 4, 3, 1, 2))[0]
    return make(rng, subject)


def _get(rng: random.Random, subject: Phrase) -> Predicate:
    frame = rng.choice(lexicon.FRAMES)
    verb, what = rng.choice(frame.verbs), thing(rng, frame.objects, subject)
    whom = _companion(rng, "for", subject) if verb.benefit else ("", "")
    place = _place(rng, frame.places)
    english = join([what.english, whom[0], place[0]])
    return Predicate(verb, english, "", join([place[1], what.german["acc"], whom[1]]))


def _make_meeting(rng: random.Random, subject: Phrase) -> Predicate:
    verb, whom = rng.choice(lexicon.MEETERS), person(rng, subject)
    place = _place(rng, tuple(lexicon.PLACES))
    english, german = join([whom.english, place[0]]), whom.german[verb.case]
    if whom.definite and not verb.preposition:
        return Predicate(verb, english, german, place[1])
    return Predicate(verb, english, "", join([place[1], verb.preposition, german]))


def _give(rng: random.Random, subject: Phrase) -> Predicate:
    verb, whom = rng.choice(lexicon.GIVERS), person(rng, subject)
    what = thing(rng, lexicon.GIFTS, subject)
    german = whom.german["dat"], what.german["acc"]
    early, late = german if whom.definite else ("", join(german))
    return Predicate(verb, join([whom.english, what.english]), early, late)


def _do(rng: random.Random, subject: Phrase) -> Predicate:
    whom = _companion(rng, "with", subject)
    english, german = _both(whom, _place(rng, tuple(lexicon.PLACES)))
    return Predicate(rng.choice(lexicon.DOERS), english, "", german)


def _move(rng: random.Random, subject: Phrase) -> Predicate:
    whom = _companion(rng, "with", subject)
    where = rng.choice(_items(lexicon.DIRECTIONS))
    verb = rng.choice(lexicon.MOVERS)
    return Predicate(verb, join([where[0], whom[0]]), "", join([whom[1], where[1]]))


def _companion(rng: random.Random, english: str, subject: Phrase) -> Text:
    """A preposition and a person, or nothing."""
    if rng.random() < 0.6:
        return "", ""
    german, case = {"for": ("für", "acc"), "with": ("mit", "dat")}[english]
    whom = person(rng, subject)
    return f"{english} {whom.english}", f"{german} {whom.german[case]}"


def _place(rng: random.Random, places: tuple[str, ...]) -> Text:
    if not places or rng.random() < 0.5:
        return "", ""
    english = rng.choice(places)
    return english, lexicon.PLACES[english]


def _items(table: dict[str, str]) -> list[Text]:
    return list(table.items())


@dataclasses.dataclass(frozen=True)
class Clause:
    """A clause whose word order is still open."""

    subject: Phrase
    predicate: Predicate
    tense: str  # present, past or a modal verb
    time: Text = ("", "")

    def english(self, time_first: bool = False) -> str:
        """The clause, with its time at the end or in front."""
        verb = self.predicate.verb.english_form(self.tense, self.subject.plural)
        words = [self.subject.english, verb, self.predicate.english]
        return join([self.time[0], *words] if time_first else [*words, self.time[0]])

    def german(self, order: str = "second") -> str:
        """The clause, with its finite verb `first`, `second`, second after the `time`, or `last`.

        First is a main clause after a subordinate one, and last is a subordinate clause.
        """
        finite, end, verbs = self.predicate.verb.german_forms(self.tense, self.subject.plural)
        subject, time = self.subject.german["nom"], self.time[1]
        early, late = self.predicate.early, self.predicate.late
        orders = {
            "first": (finite, subject, early, time, late, end),
            "second": (subject, finite, early, time, late, end),
            "time": (time, finite, subject, early, late, end),
            "last": (subject, early, time, late, verbs),
        }
        return join(orders[order])


def clause(rng: random.Random, subject: Phrase, tense: str, time: float = 0.6) -> Clause:
    """A random clause about `subject`; `time` is the probability of a time phrase."""
    what = predicate(rng, subject)
    when = time_phrase(rng, tense) if rng.random() < time else ("", "")
    return Clause(subject, what, tense, when)


def date(day: int, month: str) -> Text:
    """A date after "on", in the American order."""
    return f"on {month} {day}", f"am {day}. {lexicon.MONTHS[month]}"


_ON_DAYS = [(f"on {english}", f"am {german}") for english, german in _items(lexicon.DAYS)]
_EVERY = [(f"every {english}", f"jeden {german}") for english, german in _items(lexicon.DAYS)]
_AGO = [(f"{number} days ago", f"vor {zahl} Tagen") for number, zahl in _items(lexicon.NUMBERS)]
_AHEAD = [(f"in {number} days", f"in {zahl} Tagen") for number, zahl in _items(lexicon.NUMBERS)]
_DATES = [date(day, month) for month in lexicon.MONTHS for day in range(1, 29)]
_ANY = _items(lexicon.TIMES)
_TIMES = {
    "present": (_ANY, _items(lexicon.PRESENT_TIMES), _EVERY),
    "past": (_ANY, _items(lexicon.PAST_TIMES), _AGO, _ON_DAYS, _DATES),
}
_FUTURE = (_ANY, _items(lexicon.FUTURE_TIMES), _AHEAD, _ON_DAYS, _DATES)


def time_phrase(rng: random.Random, tense: str) -> Text:
    """A time phrase; with modal verbs it lies in the future."""
    return rng.choice(rng.choice(_TIMES.get(tense, _FUTURE)))


def sentence(rng: random.Random, most_words: int = WORDS.stop - 1) -> Pair:
    """A random sentence pair within the bounds of length."""
    english, german, bounds = "", "", range(WORDS.start, min(WORDS.stop, most_words + 1))
    while len(german.split()) not in bounds:
        make = rng.choices(
            (_plain, _coordination, _subordinate, _inversion, _that), (2, 3, 4, 3, 3)
        )
        # Both clauses share the tense: "when he came, he sees" is wrong.
        english, german = make[0](rng, rng.random() < 0.35)
    return Pair(_finish(english), _finish(german))


def _finish(text: str) -> str:
    text = text.replace(" ,", ",")
    return text[0].upper() + text[1:] + "."


MAIN_TENSES = ("present", "present", *lexicon.MODALS)
SIDE_TENSES = ("present", "present", "can", "must", "want")  # no future or advice after "if"


def _main(rng: random.Random, subject: Phrase, past: bool) -> Text:
    made = clause(rng, subject, "past" if past else rng.choice(MAIN_TENSES))
    time_first = made.time[0] != "" and rng.random() < 0.4
    return made.english(time_first), made.german("time" if time_first else "second")


def _side(rng: random.Random, subject: Phrase, past: bool) -> Text:
    """A subordinate clause with its conjunction."""
    table = lexicon.PAST_CONJUNCTIONS if past else lexicon.PRESENT_CONJUNCTIONS
    conjunction = rng.choice(_items(table))
    # Avoids "before she can help every day".
    before = conjunction[0] == "before"
    tense = "past" if past else "present" if before else rng.choice(SIDE_TENSES)
    made = clause(rng, subject, tense, time=0.0 if before else 0.2)
    return _both(conjunction, (made.english(), made.german("last")))


def _plain(rng: random.Random, past: bool) -> Text:
    return _main(rng, person(rng), past)


def _coordination(rng: random.Random, past: bool) -> Text:
    subject = person(rng)
    first, link = _main(rng, subject, past), rng.choice(_items(lexicon.COORDINATORS))
    return _both(first, link, _main(rng, resume_subject(rng, subject), past))


def _subordinate(rng: random.Random, past: bool) -> Text:
    subject = person(rng)
    main = _main(rng, subject, past)
    return _both(main, ("", ","), _side(rng, resume_subject(rng, subject), past))


def _inversion(rng: random.Random, past: bool) -> Text:
    subject = person(rng)
    side = _side(rng, subject, past)
    main = clause(rng, resume_subject(rng, subject), "past" if past else rng.choice(MAIN_TENSES))
    return _both(side, (",", ","), (main.english(), main.german("first")))


def _that(rng: random.Random, past: bool) -> Text:
    subject, verb = person(rng), rng.choice(lexicon.THINKERS)
    made = clause(rng, resume_subject(rng, subject), "past" if past else rng.choice(MAIN_TENSES))
    says = verb.english_form("present", subject.plural)
    sagt = verb.german_forms("present", subject.plural)[0]
    start = f"{subject.english} {says} that", f"{subject.german['nom']} {sagt}, dass"
    return _both(start, (made.english(), made.german("last")))
