"""A seeded generator of English-German sentence pairs from a small hand-written grammar.

The embedded corpus of the quickstart. German side: three genders, four cases, strong, weak and
mixed adjective endings, separable verbs, verb-final clauses, verb-second inversion, numbers and
dates. English side: plain declarative sentences. German is a function of English, so a model that
has learnt the grammar can translate without guessing:

    sentence   = clause | clause conjunction clause | conjunction clause, clause
               | subject verb "that" clause | clause "and" clause
    clause     = [time] subject predicate [place] [time]
    predicate  = verb | verb thing | verb person | verb person thing, in the present, the past
                 (German perfect) or with a modal verb
    phrase     = article [adjective] noun ["of" phrase] | number [adjective] nouns | pronoun
"""

from __future__ import annotations

import dataclasses
import hashlib
import random

from specjax.data import lexicon
from specjax.data.lexicon import Noun, Verb

SPLITS = {"test": range(0, 1), "validation": range(1, 2), "train": range(2, 20)}
"""Which twentieths of all sentences belong to a split."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A sentence and its translation."""

    source: str  # English
    target: str  # German


@dataclasses.dataclass(frozen=True)
class Phrase:
    """A noun phrase in English and in the four German cases."""

    english: str
    german: dict[str, str]  # nom, acc, dat, gen
    plural: bool
    pronoun: tuple[str, str] | None = None  # that may take it up again


def pairs(split: str, count: int, seed: int = 0) -> list[Pair]:
    """`count` distinct pairs of a split; fewer never change the ones before.

    No sentence belongs to two splits, whatever the seeds: a hash of the English side decides.

    Raises:
      ValueError: when `split` is unknown or `count` is negative.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; it must be one of {', '.join(SPLITS)}")
    if count < 0:
        raise ValueError(f"count is {count}; it must be 0 or positive")
    rng = random.Random(seed)
    found: dict[str, Pair] = {}
    while len(found) < count:
        pair = sentence(rng)
        if pair.source not in found and _twentieth(pair.source) in SPLITS[split]:
            found[pair.source] = pair
    return list(found.values())


def _twentieth(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 20


# Endings by case: masculine, feminine, neuter, plural.
_GENDERS = "mfnp"
_DER = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den",
        "gen": "des der des der"}  # fmt: skip
_DIESER = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "es er es er"}
_EIN = {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en", "gen": "es er es er"}
_WEAK = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en", "gen": "en en en en"}
_MIXED = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en", "gen": "en en en en"}
_STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "en er en er"}

ARTICLES = ("the", "a", "this", "my", "our")
_STEMS = {"a": "ein", "my": "mein", "our": "unser"}


def _form(table: dict[str, str], case: str, gender: str) -> str:
    return table[case].split()[_GENDERS.index(gender)].removeprefix("-")


def article(english: str, case: str, gender: str) -> str:
    """The German article of a phrase; gender `p` is the plural."""
    if english == "the":
        return _form(_DER, case, gender)
    if english == "this":
        return "dies" + _form(_DIESER, case, gender)
    return _STEMS[english] + _form(_EIN, case, gender)


def adjective_ending(english: str | None, case: str, gender: str) -> str:
    """The ending after an article: weak, mixed, or strong after none (None) or a number."""
    if english is None:
        return _form(_STRONG, case, gender)
    return _form(_WEAK if english in ("the", "this") else _MIXED, case, gender)


def noun_phrase(
    noun: Noun, determiner: str | None, adjective: tuple[str, str] | None, number: str | None = None
) -> Phrase:
    """A phrase with an article, or a number and no article (then it is plural)."""
    plural = number is not None
    gender = "p" if plural else noun.gender
    german = {}
    for case in _DER:
        words = [] if determiner is None else [article(determiner, case, gender)]
        words += [lexicon.NUMBERS[number]] if number else []
        if adjective:
            words.append(adjective[1] + adjective_ending(determiner, case, gender))
        german[case] = " ".join([*words, noun.german_form(case, plural)])
    english = [*_english_article(determiner, adjective, noun), *([number] if number else [])]
    english += [adjective[0]] if adjective else []
    english.append(noun.english_plural if plural else noun.english)
    pronoun = ("they", "sie") if plural else {"m": ("he", "er"), "f": ("she", "sie")}.get(gender)
    return Phrase(" ".join(english), german, plural, pronoun)


def _english_article(
    determiner: str | None, adjective: tuple[str, str] | None, noun: Noun
) -> list[str]:
    if determiner != "a":
        return [determiner] if determiner else []
    following = adjective[0] if adjective else noun.english
    return ["an" if following[0] in "aeiou" else "a"]


def person(rng: random.Random) -> Phrase:
    """A phrase about people."""
    return _random_phrase(rng, lexicon.PEOPLE, lexicon.PERSON_ADJECTIVES, ("the", "my", "our", "a"))


def thing(rng: random.Random) -> Phrase:
    """A phrase about things, sometimes with their owner in the genitive."""
    phrase = _random_phrase(rng, lexicon.THINGS, lexicon.THING_ADJECTIVES, ARTICLES)
    if not phrase.english.startswith("the ") or rng.random() < 0.5:
        return phrase
    owner = noun_phrase(rng.choice(lexicon.PEOPLE), rng.choice(("the", "my", "our")), None)
    german = {case: f"{text} {owner.german['gen']}" for case, text in phrase.german.items()}
    return Phrase(f"{phrase.english} of {owner.english}", german, phrase.plural)


def _random_phrase(
    rng: random.Random,
    nouns: tuple[Noun, ...],
    adjectives: dict[str, str],
    articles: tuple[str, ...],
) -> Phrase:
    noun = rng.choice(nouns)
    adjective = rng.choice(list(adjectives.items())) if rng.random() < 0.5 else None
    if rng.random() < 0.2:
        return noun_phrase(noun, None, adjective, rng.choice(list(lexicon.NUMBERS)))
    return noun_phrase(noun, rng.choice(articles), adjective)


@dataclasses.dataclass(frozen=True)
class Clause:
    """A clause whose German word order is still open."""

    subject: Phrase
    english_verb: str
    english_rest: str  # objects
    finite: str
    german_rest: str  # objects
    place: tuple[str, str] | None
    time: tuple[str, str] | None
    end: str = ""  # infinitive, participle or separated prefix
    verb_final: str = ""  # the verbs of a subordinate clause, in order

    def english(self, time_first: bool = False) -> str:
        words = [self.subject.english, self.english_verb, self.english_rest]
        words.append(self.place[0] if self.place else "")
        time = self.time[0] if self.time else ""
        return _join([time, *words] if time_first else [*words, time])

    def german(self, time_first: bool = False) -> str:
        """Main clause: the finite verb comes second."""
        subject, time = self.subject.german["nom"], self.time[1] if self.time else ""
        head = [time, self.finite, subject] if time_first and time else [subject, self.finite, time]
        return _join([*head, *self._tail(), self.end])

    def german_inverted(self) -> str:
        """Main clause after a subordinate clause: the finite verb comes first."""
        time = self.time[1] if self.time else ""
        return _join([self.finite, self.subject.german["nom"], time, *self._tail(), self.end])

    def german_final(self) -> str:
        """Subordinate clause: all verbs come last."""
        time = self.time[1] if self.time else ""
        return _join([self.subject.german["nom"], time, *self._tail(), self.verb_final])

    def _tail(self) -> list[str]:
        return [self.german_rest, self.place[1] if self.place else ""]


def _join(words: list[str]) -> str:
    return " ".join(word for word in words if word)


def clause(rng: random.Random, subject: Phrase, past: bool) -> Clause:
    """A random clause about `subject`, in the past, or in the present or with a modal verb."""
    verb, english_rest, german_rest = _predicate(rng)
    tense = "past" if past else rng.choice(("present", "present", *lexicon.MODALS))
    english_verb, finite, end, verb_final = conjugate(verb, tense, subject.plural)
    place = rng.choice(list(lexicon.PLACES.items())) if rng.random() < 0.45 else None
    time = time_phrase(rng) if rng.random() < 0.5 else None
    return Clause(
        subject, english_verb, english_rest, finite, german_rest, place, time, end, verb_final
    )


def _predicate(rng: random.Random) -> tuple[Verb, str, str]:
    """A verb with its English and German objects."""
    kind = rng.choices(("get", "meet", "give", "do"), (5, 4, 3, 2))[0]
    if kind == "do":
        return rng.choice(lexicon.DOERS), "", ""
    if kind == "get":
        verb, what = rng.choice(lexicon.GETTERS), thing(rng)
        return verb, what.english, what.german["acc"]
    whom = person(rng)
    if kind == "meet":
        verb = rng.choice(lexicon.MEETERS)
        return verb, whom.english, whom.german[verb.case]
    verb, what = rng.choice(lexicon.GIVERS), thing(rng)
    return verb, f"{whom.english} {what.english}", f"{whom.german['dat']} {what.german['acc']}"


def conjugate(verb: Verb, tense: str, plural: bool) -> tuple[str, str, str, str]:
    """(English verb, German finite verb, end of a main clause, end of a subordinate clause)."""
    present = verb.plural if plural else verb.singular
    if tense == "present":
        english = verb.english if plural else verb.english_third
        return english, present, verb.prefix, verb.prefix + present
    if tense == "past":
        forms = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}[verb.auxiliary]
        auxiliary = forms[plural]
        return verb.english_past, auxiliary, verb.participle, f"{verb.participle} {auxiliary}"
    modal = lexicon.MODALS[tense][plural]
    return f"{tense} {verb.english}", modal, verb.infinitive, f"{verb.infinitive} {modal}"


def time_phrase(rng: random.Random) -> tuple[str, str]:
    """When it happens: a common phrase, a weekday or a date."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(list(lexicon.TIMES.items()))
    if kind < 0.7:
        english, german = rng.choice(list(lexicon.DAYS.items()))
        return f"on {english}", f"am {german}"
    return date(rng.randint(1, 28), rng.choice(list(lexicon.MONTHS)))


def date(day: int, month: str) -> tuple[str, str]:
    """A date after "on", in the American order."""
    return f"on {month} {day}", f"am {day}. {lexicon.MONTHS[month]}"


def sentence(rng: random.Random) -> Pair:
    """A random sentence pair."""
    make = rng.choices((_plain, _subordinate, _inverted, _that, _and), (3, 4, 3, 3, 2))[0]
    # Both clauses share it: "when he came, he sees" is no sentence.
    past = rng.random() < 0.3
    english, german = make(rng, past)
    return Pair(_finish(english), _finish(german))


def _finish(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _plain(rng: random.Random, past: bool) -> tuple[str, str]:
    made = clause(rng, person(rng), past)
    time_first = made.time is not None and rng.random() < 0.5
    return made.english(time_first), made.german(time_first)


def _subordinate(rng: random.Random, past: bool) -> tuple[str, str]:
    main = clause(rng, person(rng), past)
    english, german = rng.choice(list(lexicon.CONJUNCTIONS.items()))
    side = clause(rng, _taken_up(rng, main.subject), past)
    return (
        f"{main.english()} {english} {side.english()}",
        f"{main.german()}, {german[past]} {side.german_final()}",
    )


def _inverted(rng: random.Random, past: bool) -> tuple[str, str]:
    english, german = rng.choice(list(lexicon.CONJUNCTIONS.items()))
    side = clause(rng, person(rng), past)
    main = clause(rng, _taken_up(rng, side.subject), past)
    return (
        f"{english} {side.english()}, {main.english()}",
        f"{german[past]} {side.german_final()}, {main.german_inverted()}",
    )


def _that(rng: random.Random, past: bool) -> tuple[str, str]:
    subject, verb = person(rng), rng.choice(lexicon.THINKERS)
    english, finite, _, _ = conjugate(verb, "present", subject.plural)
    side = clause(rng, _taken_up(rng, subject), past)
    return (
        f"{subject.english} {english} that {side.english()}",
        f"{subject.german['nom']} {finite}, dass {side.german_final()}",
    )


def _and(rng: random.Random, past: bool) -> tuple[str, str]:
    first, second = clause(rng, person(rng), past), clause(rng, person(rng), past)
    return f"{first.english()}, and {second.english()}", f"{first.german()}, und {second.german()}"


def _taken_up(rng: random.Random, subject: Phrase) -> Phrase:
    """The subject of a second clause: a pronoun for the first one, or somebody else."""
    if subject.pronoun is None or rng.random() < 0.5:
        return person(rng)
    english, german = subject.pronoun
    return Phrase(english, dict.fromkeys(_DER, german), subject.plural)
