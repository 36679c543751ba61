"""Metrics against scores by hand and against direct calls of their packages."""

from __future__ import annotations

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from specjax.contracts.registry import METRICS
from specjax.metrics.metric import get_metric
from specjax.metrics.quality.answers import bare, find_choice, last_number
from specjax.metrics.quality.overlap import sentences
from specjax.runtime.errors import UserError

OUTPUTS = ["the cat sat on the mat today", "dogs run in the green park"]
REFERENCES = ["the cat sat on a mat today", "a dog runs in the green park"]


def test_bleu_is_that_of_sacrebleu():
    expected = sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert get_metric("bleu")(OUTPUTS, REFERENCES) == {"bleu": expected}
    assert 30 < expected < 60


def test_bleu_takes_any_number_of_references():
    first = (REFERENCES[0], OUTPUTS[0], "nothing in common")
    found = get_metric("bleu")(OUTPUTS, [first, REFERENCES[1]])
    streams = [[first[0], REFERENCES[1]], [first[1], None], [first[2], None]]
    assert found == {"bleu": sacrebleu.corpus_bleu(OUTPUTS, streams).score}
    assert found["bleu"] > get_metric("bleu")(OUTPUTS, REFERENCES)["bleu"]


def test_rouge_by_hand():
    # Stemmed: "the cat sleep" and "a cat sleep" share 2 of 3 words and 1 of 2 pairs.
    found = get_metric("rouge")(["The cat sleeps"], ["A cat sleeping"])
    assert found == pytest.approx(
        {"rouge1": 200 / 3, "rouge2": 50.0, "rougeL": 200 / 3, "rougeLsum": 200 / 3}
    )


def test_rouge_is_the_mean_of_googles_scores():
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    scores = [scorer.score(r, o) for o, r in zip(OUTPUTS, REFERENCES, strict=True)]
    expected = {name: 50 * sum(s[name].fmeasure for s in scores) for name in scores[0]}
    assert get_metric("rouge")(OUTPUTS, REFERENCES) == pytest.approx(expected)


def test_rouge_lsum_compares_sentences_whatever_ends_them():
    # As sentences, both words match; as one sequence, the other order lets only one match.
    one, two = "it rained", "Rained! It."
    for output, reference in ((one, two), (two, one), (one, "rained\nit")):
        found = get_metric("rouge")([output], [reference])
        assert (found["rougeL"], found["rougeLsum"]) == pytest.approx((50, 100))
    assert sentences("One.  Two? 3.5 is\n\nthree") == "One.\nTwo?\n3.5 is\nthree"


def test_rouge_takes_the_best_reference():
    both = get_metric("rouge")(OUTPUTS[:1], [("nothing", REFERENCES[0])])
    assert both == get_metric("rouge")(OUTPUTS[:1], REFERENCES[:1])


@pytest.mark.parametrize(
    ("output", "reference", "score"),
    [
        ("The Beatles!", "beatles", 100),
        ("\n Bern \nQ: What else?", ("Berne", "Bern"), 100),
        ("Bern, Switzerland", ("Berne", "Bern"), 0),
        ("", "Bern", 0),
    ],
)
def test_exact_match(output, reference, score):
    assert get_metric("exact_match")([output], [reference]) == {"exact_match": score}


def test_bare_words():
    assert bare("  An apple, a day; the END. ") == "apple day end"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It is 18.", 18), ("it costs $1,234.50.", 1234.5), ("5, then -$3", -3), ("$-3", -3),
        ("16-3", 3), ("9 * 2 = 18 eggs", 18), ("1,2,3", 3), ("12,3456", 3456), ("$.50", 0.5),
        ("70,000", 70000), ("1,000,000 and", 1e6), ("18.00", 18), ("none", None), ("", None),
    ],
)  # fmt: skip
def test_the_last_number(text, number):
    assert last_number(text) == number


def test_final_number_is_the_share_of_right_last_numbers():
    outputs = ["so 2 + 3 = 5.", "about $1,000", "7 apples, or 8", "no idea"]
    found = get_metric("final_number")(outputs, ["5", "1000.0", ("9", "8"), "3"])
    assert found == {"final_number": 75}
    assert get_metric("final_number")(["none"], ["none"]) == {"final_number": 0}


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is (B).", "B"), ("answer: C", "C"), ("Answer is\nD", "D"),
        ("So the answer is **A**, not (C).", "A"), ("Answer is (A). No, the answer is (D).", "D"),
        ("(A) is wrong, so (C)", "C"), ("B", "B"), (" (b) ", None), ("C.", "C"),
        ("D. because of x", "D"), ("A ball falls", None), ("Dogs", None), ("", None),
    ],
)  # fmt: skip
def test_the_letter_chosen(text, letter):
    assert find_choice(text) == letter


def test_choice_is_the_share_of_right_letters():
    assert get_metric("choice")(["answer is (B)", "(A)", "?"], ["B", "C", "D"]) == pytest.approx(
        {"choice": 100 / 3}
    )


@pytest.mark.parametrize(
    ("output", "reference", "wrong"),
    [
        ("the cat sat", "the cat sat", 0),
        ("the bat sat", "the cat sat", 1),  # substituted
        ("the sat", "the cat sat", 1),  # deleted
        ("the big cat sat", "the cat sat", 1),  # inserted
        ("cat the sat", "the cat sat", 2),
        ("", "the cat sat", 3),
        ("a b c d", "", 4),
    ],
)
def test_wrong_words_are_the_fewest_edits(output, reference, wrong):
    counts = get_metric("wer").statistics([output], [reference])
    assert counts.tolist() == [[wrong, len(reference.split())]]


def test_word_accuracy_is_of_all_words_together():
    found = get_metric("wer")(["the bat", "a b c d e f g h"], ["the cat", "a b c d e f g h"])
    assert found == pytest.approx({"word_accuracy": 90.0})  # not the mean of 50 and 100
    assert get_metric("wer")(["one two three"], ["one"]) == {"word_accuracy": -100.0}
    assert get_metric("wer")(["a b"], [("x y z", "a c")]) == {"word_accuracy": 50.0}


def test_character_accuracy_counts_spaces_between_words():
    assert get_metric("cer")(["thecat  sat"], ["the cat sat"]) == pytest.approx(
        {"character_accuracy": 100 * (1 - 1 / 11)}
    )


def test_words_are_compared_in_one_form_where_that_is_asked_for():
    output, reference = "It's twenty-one, [laughs] um, dogs!", "it is 21 dogs"
    assert get_metric("wer")([output], [reference])["word_accuracy"] < 0
    assert get_metric("wer_english")([output], [reference]) == {"word_accuracy": 100.0}
    found = get_metric("wer_basic")(["Hunde, (leise) JA."], ["hunde ja"])
    assert found == {"word_accuracy": 100.0}


def test_no_metric_gives_no_score():
    assert get_metric("none")(OUTPUTS, [None, None]) == {}


@pytest.mark.parametrize("metric", [name for name in METRICS if get_metric(name).scores])
def test_lists_of_different_lengths_are_refused(metric):
    with pytest.raises(ValueError):
        get_metric(metric)(OUTPUTS, REFERENCES[:1])


def test_signatures_are_those_of_the_packages():
    scorer = sacrebleu.BLEU()
    scorer.corpus_score(OUTPUTS, [REFERENCES])
    assert get_metric("bleu").signature == str(scorer.get_signature())
    assert get_metric("rouge").signature.startswith("rouge-score:")
    assert all(get_metric(name).signature == "" for name in METRICS.keys() - {"bleu", "rouge"})


def test_an_unknown_metric_is_refused():
    with pytest.raises(UserError, match="metric is 'meteor'; it must be one of bleu, cer, choice"):
        get_metric("meteor")


@pytest.mark.parametrize("name", METRICS)
def test_equal_texts_have_100_percent_and_others_less(name):
    metric = get_metric(name)
    text, other = metric.example
    equal, worse = metric([text, text], [text, text]), metric([text, other], [text, text])
    assert tuple(equal) == tuple(worse) == metric.scores
    assert equal == pytest.approx(dict.fromkeys(metric.scores, 100.0))
    assert all(0 <= worse[score] < 99 for score in metric.scores)
