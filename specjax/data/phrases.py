"""Noun phrases of the built-in grammar: English, and German with its genders, cases and endings."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable

from specjax.data import lexicon
from specjax.data.lexicon import Kind, Noun


@dataclasses.dataclass(frozen=True)
class Phrase:
    """A noun phrase in English and in the four German cases."""

    english: str
    german: dict[str, str]  # nom, acc, dat, gen
    noun: Noun
    gender: str  # m, f, n, or p in the plural
    definite: bool = True

    @property
    def plural(self) -> bool:
        return self.gender == "p"


# Endings by case: masculine, feminine, neuter, plural.
_GENDERS = "mfnp"
_DER = {"nom": "der die das die", "acc": "den die das die", "dat": "dem der dem den",
        "gen": "des der des der"}  # fmt: skip
_DIESER = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "es er es er"}
_EIN = {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en", "gen": "es er es er"}
_WEAK = {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en", "gen": "en en en en"}
_MIXED = {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en", "gen": "en en en en"}
_STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "en er en er"}

_STEMS = {"a": "ein", "my": "mein", "our": "unser", "his": "sein", "her": "ihr", "their": "ihr"}
_OWNERS = {"m": "his", "f": "her", "p": "their"}  # none for a neuter child
_PRONOUNS = {"m": ("he", "er"), "f": ("she", "sie"), "p": ("they", "sie")}


def _form(table: dict[str, str], case: str, gender: str) -> str:
    return table[case].split()[_GENDERS.index(gender)].removeprefix("-")


def article(english: str, case: str, gender: str) -> str:
    """The German article of a phrase; gender `p` is the plural."""
    if english == "the":
        return _form(_DER, case, gender)
    if english in ("this", "these"):
        return "dies" + _form(_DIESER, case, gender)
    return _STEMS[english] + _form(_EIN, case, gender)


def adjective_ending(english: str | None, case: str, gender: str) -> str:
    """The ending after an English determiner: weak, mixed, or strong after none."""
    if english is None:
        return _form(_STRONG, case, gender)
    return _form(_MIXED if english in _STEMS else _WEAK, case, gender)


def make_noun_phrase(
    noun: Noun,
    determiner: str | None = None,
    adjective: str | None = None,
    plural: bool = False,
    number: str | None = None,
) -> Phrase:
    """A phrase of English words and its German forms; a number needs the plural."""
    gender = "p" if plural else noun.gender
    german = {}
    for case in _DER:
        words = [article(determiner, case, gender)] if determiner else []
        words += [lexicon.NUMBERS[number]] if number else []
        if adjective:
            words.append(lexicon.ADJECTIVES[adjective] + adjective_ending(determiner, case, gender))
        german[case] = " ".join([*words, noun.german_form(case, plural)])
    english = join([number, adjective, noun.english_plural if plural else noun.english])
    before = "an" if determiner == "a" and english[0] in "aeiou" else determiner
    definite = determiner not in (None, "a")
    return Phrase(join([before, english]), german, noun, gender, definite)


def join(words: Iterable[str | None]) -> str:
    """Joins the nonempty words with spaces."""
    return " ".join(word for word in words if word)


def person(rng: random.Random, other_than: Phrase | None = None) -> Phrase:
    """A phrase about people; `other_than` are possible owners, but not the people themselves."""
    kind = rng.choices((lexicon.FAMILY, lexicon.ADULTS, lexicon.CHILDREN), (4, 4, 2))[0]
    owner = _OWNERS.get(other_than.gender) if other_than else None
    phrase = _random_phrase(rng, kind, owner)
    while other_than and phrase.noun is other_than.noun:
        phrase = _random_phrase(rng, kind, owner)
    return phrase


def thing(rng: random.Random, kind: Kind, subject: Phrase) -> Phrase:
    """A phrase about things, sometimes with their owner in the genitive."""
    if not kind.plural_determiners or rng.random() < 0.85:
        return _random_phrase(rng, kind, _OWNERS.get(subject.gender))
    owner = make_noun_phrase(rng.choice(lexicon.FAMILY.nouns), rng.choice(("my", "our")))
    phrase = make_noun_phrase(rng.choice(kind.nouns), "the", _adjective(rng, kind, 0.4))
    german = {case: f"{text} {owner.german['gen']}" for case, text in phrase.german.items()}
    english = f"{owner.english}'s {phrase.english.removeprefix('the ')}"
    return dataclasses.replace(phrase, english=english, german=german)


def _random_phrase(rng: random.Random, kind: Kind, owner: str | None) -> Phrase:
    noun, adjective = rng.choice(kind.nouns), _adjective(rng, kind, 0.4)
    own = (owner,) if owner and "my" in kind.determiners else ()
    if not kind.plural_determiners or rng.random() < 0.65:
        return make_noun_phrase(noun, rng.choice((*kind.determiners, *own)), adjective)
    number = rng.choice(kind.numbers) if kind.numbers and rng.random() < 0.5 else None
    determiner = rng.choice((*kind.plural_determiners, *own))
    return make_noun_phrase(noun, determiner, adjective, True, number)


def _adjective(rng: random.Random, kind: Kind, probability: float) -> str | None:
    return rng.choice(kind.adjectives) if rng.random() < probability else None


def resume_subject(rng: random.Random, subject: Phrase) -> Phrase:
    """The subject of a second clause: a pronoun for the first one, or somebody else."""
    if subject.gender not in _PRONOUNS or rng.random() < 0.4:
        return person(rng, subject)
    english, german = _PRONOUNS[subject.gender]
    return dataclasses.replace(subject, english=english, german=dict.fromkeys(_DER, german))
