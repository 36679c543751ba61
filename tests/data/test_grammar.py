"""The embedded corpus: splits, determinism, and German inflection by hand-written forms."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from specjax.data import grammar, lexicon
from specjax.data.grammar import Clause, adjective_ending, article, conjugate, noun_phrase, pairs

NOUNS = {noun.english: noun for noun in (*lexicon.PEOPLE, *lexicon.THINGS)}
VERBS = {
    verb.english: verb
    for verb in (*lexicon.GETTERS, *lexicon.MEETERS, *lexicon.GIVERS, *lexicon.DOERS)
}


def test_a_shorter_list_is_a_prefix_of_a_longer_one():
    assert pairs("train", 50) == pairs("train", 200)[:50]


def test_pairs_do_not_depend_on_the_hash_seed():
    code = "from specjax.data.grammar import pairs; print(pairs('test', 20))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": s}, capture_output=True, text=True
        )
        for s in ("1", "2")
    ]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout == f"{pairs('test', 20)}\n"


def test_splits_share_no_sentence_whatever_the_seeds():
    train = {p.source for p in pairs("train", 5000)} | {p.source for p in pairs("train", 5000, 1)}
    test = {p.source for p in pairs("test", 500)} | {p.source for p in pairs("validation", 500, 1)}
    assert not train & test


def test_german_is_a_function_of_english():
    rng, known = random.Random(0), {}
    for _ in range(30_000):
        pair = grammar.sentence(rng)
        assert known.setdefault(pair.source, pair.target) == pair.target


def test_no_sentence_is_repeated_and_lengths_stay_in_bounds():
    made = pairs("train", 10_000)
    assert len({p.source for p in made}) == 10_000
    lengths = [len(p.target.split()) for p in made]
    assert min(lengths) >= 3 and max(lengths) <= 36
    assert 12 < sum(lengths) / len(lengths) < 20


@pytest.mark.parametrize(("split", "count", "named"), [("dev", 1, "'dev'"), ("train", -1, "-1")])
def test_bad_arguments_are_named(split, count, named):
    with pytest.raises(ValueError, match=named):
        pairs(split, count)


PHRASES = [
    ("the", "letter", "nom", "der rote Brief"), ("the", "letter", "acc", "den roten Brief"),
    ("the", "letter", "dat", "dem roten Brief"), ("the", "letter", "gen", "des roten Briefes"),
    ("the", "bag", "nom", "die rote Tasche"), ("the", "bag", "dat", "der roten Tasche"),
    ("the", "book", "acc", "das rote Buch"), ("the", "book", "gen", "des roten Buches"),
    ("a", "letter", "nom", "ein roter Brief"), ("a", "letter", "acc", "einen roten Brief"),
    ("a", "bag", "acc", "eine rote Tasche"), ("a", "bag", "dat", "einer roten Tasche"),
    ("a", "book", "nom", "ein rotes Buch"), ("a", "book", "dat", "einem roten Buch"),
    ("this", "letter", "nom", "dieser rote Brief"), ("this", "book", "nom", "dieses rote Buch"),
    ("my", "letter", "gen", "meines roten Briefes"), ("our", "book", "acc", "unser rotes Buch"),
    ("our", "letter", "acc", "unseren roten Brief"), ("our", "bag", "gen", "unserer roten Tasche"),
]  # fmt: skip


@pytest.mark.parametrize(("determiner", "noun", "case", "german"), PHRASES)
def test_articles_and_adjectives_agree(determiner, noun, case, german):
    phrase = noun_phrase(NOUNS[noun], determiner, ("red", "rot"))
    assert phrase.german[case] == german


@pytest.mark.parametrize(
    ("case", "german"),
    [("nom", "drei neue Bücher"), ("dat", "drei neuen Büchern"), ("gen", "drei neuer Bücher")],
)
def test_numbers_take_strong_endings_and_the_dative_plural_ends_in_n(case, german):
    phrase = noun_phrase(NOUNS["book"], None, ("new", "neu"), "three")
    assert phrase.german[case] == german
    assert phrase.english == "three new books"


def test_plural_articles_and_weak_plural_endings():
    assert [article("the", case, "p") for case in ("nom", "dat", "gen")] == ["die", "den", "der"]
    assert {adjective_ending("the", case, "p") for case in ("nom", "acc", "dat", "gen")} == {"en"}


@pytest.mark.parametrize(("noun", "english"), [("engineer", "an engineer"), ("cook", "a cook")])
def test_the_english_article_fits_the_next_sound(noun, english):
    assert noun_phrase(NOUNS[noun], "a", None).english == english


def made(verb: str, tense: str, time=("on Monday", "am Montag")) -> Clause:
    subject = noun_phrase(NOUNS["teacher"], "the", None)
    english, finite, end, final = conjugate(VERBS[verb], tense, False)
    whom = noun_phrase(NOUNS["doctor"], "the", None)
    return Clause(
        subject, english, whom.english, finite, whom.german["acc"], None, time, end, final
    )


def test_a_separable_prefix_goes_to_the_end_of_a_main_clause():
    assert made("call", "present").german() == "die Lehrerin ruft am Montag den Arzt an"


def test_an_adverbial_in_front_moves_the_verb_before_the_subject():
    clause = made("call", "present")
    assert clause.german(True) == "am Montag ruft die Lehrerin den Arzt an"
    assert clause.english(True) == "on Monday the teacher calls the doctor"


@pytest.mark.parametrize(
    ("tense", "german"),
    [
        ("present", "die Lehrerin den Arzt anruft"),
        ("past", "die Lehrerin den Arzt angerufen hat"),
        ("can", "die Lehrerin den Arzt anrufen kann"),
    ],
)
def test_all_verbs_come_last_in_a_subordinate_clause(tense, german):
    assert made("call", tense, None).german_final() == german


def test_a_main_clause_after_a_subordinate_one_begins_with_its_verb():
    assert made("visit", "past", None).german_inverted() == "hat die Lehrerin den Arzt besucht"


def test_verbs_of_motion_take_sein():
    assert conjugate(VERBS["arrive"], "past", True)[1:] == (
        "sind", "angekommen", "angekommen sind"
    )  # fmt: skip


def test_a_date_is_an_ordinal_with_the_german_month():
    assert grammar.date(3, "May") == ("on May 3", "am 3. Mai")


def test_when_is_als_in_the_past_and_wenn_otherwise():
    made = pairs("train", 3000)
    for pair in made:
        if " when " in f" {pair.source.lower()} ":
            words = pair.target.lower().split()
            past = any(w.strip(".,") in ("hat", "haben", "ist", "sind") for w in words)
            assert ("als" in words) == past
