"""Words of the embedded corpus (`lexicon.json`): one German word for each English word.

English verbs whose past looks like their base form (put, read) are left out: a plural subject
would not tell their tense, and German has to know it.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Noun:
    """A noun with the forms that cannot be derived."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str  # m, f or n
    genitive: str = ""  # singular; feminine nouns do not change
    weak: bool = False  # "der Junge, den Jungen": like the plural in all cases but the nominative

    def german_form(self, case: str, plural: bool) -> str:
        """The noun in nom, acc, dat or gen."""
        if not plural:
            if self.weak and case != "nom":
                return self.german_plural
            return (self.genitive or self.german) if case == "gen" else self.german
        ends_in_n = self.german_plural.endswith(("n", "s"))
        return self.german_plural + ("n" if case == "dat" and not ends_in_n else "")


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb: English forms, German present, participle and what it governs.

    `singular` and `plural` are the third person, without the separable `prefix`.
    """

    english: str  # base form, particle included
    english_third: str
    english_past: str
    singular: str
    plural: str
    participle: str
    prefix: str = ""
    auxiliary: str = "haben"
    case: str = "acc"  # of a personal object
    preposition: str = ""  # before a personal object
    benefit: bool = False  # whether it takes "for somebody"

    @property
    def infinitive(self) -> str:
        return self.prefix + self.plural

    def english_form(self, tense: str, plural: bool) -> str:
        """The third person in the present, the past or with a verb of MODALS."""
        if tense == "present":
            return self.english if plural else self.english_third
        if tense == "past":
            return self.english_past
        modal = MODALS[tense]
        return f"{modal.english_plural if plural else modal.english_third} {self.english}"

    def german_forms(self, tense: str, plural: bool) -> tuple[str, str, str]:
        """(finite verb, end of a main clause, end of a subordinate clause); past is the perfect."""
        if tense == "present":
            finite = self.plural if plural else self.singular
            return finite, self.prefix, self.prefix + finite
        if tense == "past":
            finite = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}[self.auxiliary][plural]
            end = self.participle
        else:
            finite = MODALS[tense].plural if plural else MODALS[tense].singular
            end = self.infinitive
        return finite, end, f"{end} {finite}"


@dataclasses.dataclass(frozen=True)
class Modal:
    """A verb that takes an infinitive: modal verbs and the future."""

    english_third: str
    english_plural: str
    singular: str
    plural: str


@dataclasses.dataclass(frozen=True)
class Kind:
    """Nouns that occur in the same phrases; a determiner None means no article."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[str, ...]
    determiners: tuple[str | None, ...]
    plural_determiners: tuple[str | None, ...] = ()  # none: it cannot be counted
    numbers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Frame:
    """Things, the verbs that take them, and their places."""

    objects: Kind
    verbs: tuple[Verb, ...]
    places: tuple[str, ...] = ()


_DATA: dict[str, Any] = json.loads(
    importlib.resources.files("specjax.data").joinpath("lexicon.json").read_text("utf-8")
)


def _kind(words: Mapping[str, Any]) -> Kind:
    nouns = tuple(_NOUNS[noun] for noun in words["nouns"])
    others = {name: tuple(words[name]) for name in words if name != "nouns"}
    return Kind(nouns=nouns, **others)


def _frame(words: Mapping[str, Any]) -> Frame:
    return Frame(_KINDS[words["objects"]], _verbs(words["verbs"]), tuple(words.get("places", ())))


def _verbs(names: list[str]) -> tuple[Verb, ...]:
    return tuple(_VERBS[name] for name in names)


_NOUNS = {english: Noun(english, **forms) for english, forms in _DATA["nouns"].items()}
_VERBS = {english: Verb(english, **forms) for english, forms in _DATA["verbs"].items()}
_KINDS = {name: _kind(words) for name, words in _DATA["kinds"].items()}

FAMILY, ADULTS, CHILDREN = (_KINDS[name] for name in ("family", "adults", "children"))
GIFTS = _KINDS["gifts"]
FRAMES = tuple(_frame(words) for words in _DATA["frames"])

MEETERS = _verbs(_DATA["groups"]["meeters"])
"""Verbs with a person as their object."""

GIVERS = _verbs(_DATA["groups"]["givers"])
"""Verbs with a person (dative) and a thing (accusative)."""

DOERS = _verbs(_DATA["groups"]["doers"])
"""Verbs without an object, done alone or with somebody."""

MOVERS = _verbs(_DATA["groups"]["movers"])
"""Verbs with a direction."""

THINKERS = _verbs(_DATA["groups"]["thinkers"])
"""Verbs followed by a that-clause."""

MODALS = {tense: Modal(**forms) for tense, forms in _DATA["modals"].items()}

# English to German.

ADJECTIVES: dict[str, str] = _DATA["adjectives"]
NUMBERS: dict[str, str] = _DATA["numbers"]
PLACES: dict[str, str] = _DATA["places"]
DIRECTIONS: dict[str, str] = _DATA["directions"]
TIMES: dict[str, str] = _DATA["times"]
PRESENT_TIMES: dict[str, str] = _DATA["present_times"]
PAST_TIMES: dict[str, str] = _DATA["past_times"]
FUTURE_TIMES: dict[str, str] = _DATA["future_times"]
DAYS: dict[str, str] = _DATA["days"]
MONTHS: dict[str, str] = _DATA["months"]
PRESENT_CONJUNCTIONS: dict[str, str] = _DATA["present_conjunctions"]
PAST_CONJUNCTIONS: dict[str, str] = _DATA["past_conjunctions"]
COORDINATORS: dict[str, str] = _DATA["coordinators"]
"""Conjunctions with the commas before them."""
