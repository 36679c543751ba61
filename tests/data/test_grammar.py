"""The embedded corpus: splits, determinism, and German inflection by hand-written forms."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from specjax.data import grammar, lexicon
from specjax.data.grammar import Clause, Pair, Predicate, pairs
from specjax.data.phrases import make_noun_phrase

PEOPLE = (*lexicon.FAMILY.nouns, *lexicon.ADULTS.nouns, *lexicon.CHILDREN.nouns)
NOUNS = {
    noun.english: noun
    for noun in (*PEOPLE, *(noun for frame in lexicon.FRAMES for noun in frame.objects.nouns))
}
VERBS = {
    verb.english: verb
    for verb in (
        *(verb for frame in lexicon.FRAMES for verb in frame.verbs),
        *lexicon.MEETERS, *lexicon.GIVERS, *lexicon.DOERS, *lexicon.MOVERS, *lexicon.THINKERS,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus() -> list[Pair]:
    return pairs("train", 20_000)


def test_a_limit_that_leaves_hardly_a_sentence_is_refused():
    with pytest.raises(ValueError, match="most_words is 9; it must be at least 10"):
        pairs("train", 1, most_words=9)


def test_a_shorter_list_is_a_prefix_of_a_longer_one(corpus):
    assert pairs("train", 50) == corpus[:50]


def test_another_seed_gives_other_pairs(corpus):
    assert pairs("train", 50, seed=1) != corpus[:50]


def test_pairs_do_not_depend_on_the_hash_seed():
    code = "from specjax.data.grammar import pairs; print(ascii(pairs('test', 20)))"
    for_seed = os.environ | {"PYTHONHASHSEED": "1"}  # this process has another one
    run = subprocess.run([sys.executable, "-c", code], env=for_seed, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{ascii(pairs('test', 20))}\n"


@pytest.mark.slow
def test_splits_share_no_sentence_whatever_the_seeds(corpus):
    # The same seed draws the same sentences: without the hash, these would overlap.
    drawn = [{p.source for p in corpus}]
    for split in ("validation", "test"):
        drawn.append({p.source for seed in (0, 1) for p in pairs(split, 300, seed)})
    assert len(set.union(*drawn)) == sum(map(len, drawn))


def test_german_is_a_function_of_english():
    # Of short clauses many are drawn twice; after a plural, English shows its tense least.
    rng, subject, known, repeated = (
        random.Random(0),
        make_noun_phrase(NOUNS["girl"], plural=True),
        {},
        0,
    )
    for _ in range(20_000):
        tense = rng.choice(("present", "past", *lexicon.MODALS))
        made = grammar.clause(rng, subject, tense, time=0.2)
        repeated += made.english() in known
        assert known.setdefault(made.english(), made.german()) == made.german()
    assert repeated > 1000


def test_no_sentence_is_repeated(corpus):
    assert len({pair.source for pair in corpus}) == len(corpus)


def test_german_sentences_have_6_to_30_words_and_about_17_on_average(corpus):
    lengths = [len(pair.target.split()) for pair in corpus]
    assert min(lengths) >= 6 and max(lengths) <= 30
    assert 15 < sum(lengths) / len(lengths) < 19


def test_a_limit_of_words_takes_the_short_ones_of_the_same_sentences(corpus):
    short = pairs("train", 50, most_words=16)
    assert max(len(pair.target.split()) for pair in short) <= 16
    assert short == [pair for pair in corpus if pair in short] != corpus[:50]


def test_the_german_vocabulary_is_small(corpus):
    words = {word.strip(".,") for pair in corpus for word in pair.target.split()}
    assert 300 < len(words) < 600


@pytest.mark.parametrize(
    ("split", "count", "message"),
    [
        ("dev", 1, "split is 'dev'; it must be one of test, validation, train"),
        ("train", -1, "count is -1; it must be from 0 to 1,000,000"),
    ],
)
def test_bad_arguments_are_named_with_what_is_allowed(split, count, message):
    with pytest.raises(ValueError) as error:
        pairs(split, count)
    assert str(error.value) == message


CASES = ("nom", "acc", "dat", "gen")
PHRASES = {
    ("the", "coat"): "der rote Mantel/den roten Mantel/dem roten Mantel/des roten Mantels",
    ("the", "bag"): "die rote Tasche/die rote Tasche/der roten Tasche/der roten Tasche",
    ("the", "shirt"): "das rote Hemd/das rote Hemd/dem roten Hemd/des roten Hemdes",
    ("this", "coat"): "dieser rote Mantel/diesen roten Mantel/diesem roten Mantel/"
    "dieses roten Mantels",
    ("this", "shirt"): "dieses rote Hemd/dieses rote Hemd/diesem roten Hemd/dieses roten Hemdes",
    ("a", "coat"): "ein roter Mantel/einen roten Mantel/einem roten Mantel/eines roten Mantels",
    ("a", "bag"): "eine rote Tasche/eine rote Tasche/einer roten Tasche/einer roten Tasche",
    ("a", "shirt"): "ein rotes Hemd/ein rotes Hemd/einem roten Hemd/eines roten Hemdes",
    ("our", "coat"): "unser roter Mantel/unseren roten Mantel/unserem roten Mantel/"
    "unseres roten Mantels",
    ("her", "bag"): "ihre rote Tasche/ihre rote Tasche/ihrer roten Tasche/ihrer roten Tasche",
    ("his", "shirt"): "sein rotes Hemd/sein rotes Hemd/seinem roten Hemd/seines roten Hemdes",
    (None, "tea"): "roter Tee/roten Tee/rotem Tee/roten Tees",
    (None, "milk"): "rote Milch/rote Milch/roter Milch/roter Milch",
    (None, "bread"): "rotes Brot/rotes Brot/rotem Brot/roten Brotes",
}
PLURALS = {
    ("the", "coat"): "die roten Mäntel/die roten Mäntel/den roten Mänteln/der roten Mäntel",
    ("these", "car"): "diese roten Autos/diese roten Autos/diesen roten Autos/dieser roten Autos",
    (
        "my",
        "shirt",
    ): "meine roten Hemden/meine roten Hemden/meinen roten Hemden/meiner roten Hemden",
    (None, "book"): "rote Bücher/rote Bücher/roten Büchern/roter Bücher",
}


@pytest.mark.parametrize(("determiner", "noun"), PHRASES)
def test_singular_articles_and_adjectives_agree(determiner, noun):
    phrase = make_noun_phrase(NOUNS[noun], determiner, "red")
    assert "/".join(phrase.german[case] for case in CASES) == PHRASES[determiner, noun]


@pytest.mark.parametrize(("determiner", "noun"), PLURALS)
def test_plural_articles_and_adjectives_agree(determiner, noun):
    phrase = make_noun_phrase(NOUNS[noun], determiner, "red", plural=True)
    assert "/".join(phrase.german[case] for case in CASES) == PLURALS[determiner, noun]


@pytest.mark.parametrize(
    ("determiner", "english", "german"),
    [
        (None, "three new books", "drei neuen Büchern"),
        ("the", "the three new books", "den drei neuen Büchern"),
        ("my", "my three new books", "meinen drei neuen Büchern"),
    ],
)
def test_a_number_does_not_change_the_endings(determiner, english, german):
    phrase = make_noun_phrase(NOUNS["book"], determiner, "new", plural=True, number="three")
    assert (phrase.english, phrase.german["dat"]) == (english, german)


def test_weak_nouns_change_in_all_cases_but_the_nominative():
    boy = make_noun_phrase(NOUNS["boy"], "a")
    assert [boy.german[case] for case in CASES] == [
        "ein Junge", "einen Jungen", "einem Jungen", "eines Jungen"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("noun", "adjective", "english"),
    [
        ("uncle", None, "an uncle"),
        ("uncle", "young", "a young uncle"),
        ("bag", "old", "an old bag"),
    ],
)
def test_the_english_article_fits_the_next_sound(noun, adjective, english):
    assert make_noun_phrase(NOUNS[noun], "a", adjective).english == english


def test_no_english_past_looks_like_the_present():
    assert not [verb for verb in VERBS.values() if verb.english_past == verb.english]


def teacher(verb: str, tense: str, time=("on Monday", "am Montag"), place="") -> Clause:
    """The teacher does something with the doctor."""
    whom = make_noun_phrase(NOUNS["doctor"], "the")
    early = whom.german[VERBS[verb].case]
    what = Predicate(VERBS[verb], whom.english, early, place)
    return Clause(make_noun_phrase(NOUNS["teacher"], "the"), what, tense, time)


def test_a_separable_prefix_goes_to_the_end_of_a_main_clause():
    call = teacher("call", "present", place="im Garten")
    assert call.german() == "die Lehrerin ruft den Arzt am Montag im Garten an"


def test_a_time_in_front_moves_the_verb_before_the_subject():
    call = teacher("call", "present")
    assert call.german("time") == "am Montag ruft die Lehrerin den Arzt an"
    assert call.english(time_first=True) == "on Monday the teacher calls the doctor"


@pytest.mark.parametrize(
    ("tense", "german"),
    [
        ("present", "die Lehrerin den Arzt anruft"),
        ("past", "die Lehrerin den Arzt angerufen hat"),
        ("can", "die Lehrerin den Arzt anrufen kann"),
        ("will", "die Lehrerin den Arzt anrufen wird"),
    ],
)
def test_all_verbs_come_last_in_a_subordinate_clause(tense, german):
    assert teacher("call", tense, ("", "")).german("last") == german


def test_a_main_clause_after_a_subordinate_one_begins_with_its_verb():
    assert teacher("help", "past").german("first") == (
        "hat die Lehrerin dem Arzt am Montag geholfen"
    )


@pytest.mark.parametrize(
    ("verb", "tense", "english", "german"),
    [
        ("come back", "past", "came back", ("sind", "zurückgekommen", "zurückgekommen sind")),
        ("open", "present", "open", ("machen", "auf", "aufmachen")),
        ("work", "present", "work", ("arbeiten", "", "arbeiten")),
        ("tidy up", "must", "must tidy up", ("müssen", "aufräumen", "aufräumen müssen")),
        ("buy", "want", "want to buy", ("wollen", "kaufen", "kaufen wollen")),
    ],
)
def test_verbs_in_the_third_person_plural(verb, tense, english, german):
    assert VERBS[verb].english_form(tense, plural=True) == english
    assert VERBS[verb].german_forms(tense, plural=True) == german


def test_a_date_is_an_ordinal_with_the_german_month():
    assert grammar.date(3, "May") == ("on May 3", "am 3. Mai")


def test_possession_is_a_genitive(corpus):
    assert any("my sister's " in p.source and " meiner Schwester" in p.target for p in corpus)
    assert not [p for p in corpus if ("'s " in p.source) and "das die " in p.target]


def test_when_is_als_and_if_is_wenn(corpus):
    for pair in corpus:
        english, german = pair.source.lower().split(), pair.target.lower().split()
        assert ("when" in english) == ("als" in german)
        assert ("if" in english) == ("wenn" in german)


def test_every_german_subordinate_clause_is_set_off_by_a_comma(corpus):
    for pair in corpus:
        words = pair.target.split()
        for before, word in zip(words, words[1:], strict=False):
            if word in ("weil", "dass", "wenn", "obwohl", "als", "bevor"):
                assert before.endswith(","), pair.target
