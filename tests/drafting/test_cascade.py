"""What a cascade is made of, how long its drafts get, and what is refused."""

from __future__ import annotations

import pytest

from specjax.contracts.spec import Call
from specjax.decoding.strategy import from_config
from specjax.drafting.cascade import Horizontal, ReviewedDrafter, Stage
from specjax.drafting.copying import MaxGram, PromptLookup
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.matrix import Cascade
from specjax.drafting.neural import Neural
from specjax.drafting.ngram import Bigram
from specjax.drafting.nothing import Nothing
from specjax.runtime.errors import UserError
from specjax.verification.lenient import Lenient
from specjax.verification.rollback import Rollback

PAPER = ((5, 14, 10), (0, 1, 10), (0, 0, 10))
SPEC = {
    "drafter": "cascade",
    "drafters": ["base", "small", "max_gram"],
    "matrix": [list(row) for row in PAPER],
}


def test_drafts_have_the_bounds_of_the_paper():
    # docs/methods/cascade.md, "Length of a draft": with the target's own token small returns at
    # most 11, base 21, target 39.
    made = Cascade(("base", "small", "max_gram"), PAPER).combined
    base, small, last = (stage.drafter for stage in made.stages)
    assert (small.spec.width, base.spec.width, made.spec.width + 1) == (11, 21, 39)
    assert last == MaxGram(10)
    assert [stage.until for stage in made.stages] == [5, 19, 29]


def test_a_model_alone_in_its_row_decodes_token_by_token():
    made = Cascade(("small",), ((3,),)).combined
    assert made == Horizontal((Stage(ReviewedDrafter("small", Nothing()), 3),))
    assert made.spec.width == 3


def test_a_model_that_only_short_drafts_need_has_a_call_in_the_schedule():
    # base hands on up to 4 tokens, after which small, who drafts until there are 2, is not needed.
    made = Cascade(("base", "small", "prompt_lookup"), ((1, 1, 0), (0, 0, 3), (0, 0, 0)))
    assert made.spec.calls == (Call("base", 6, 4), Call("small", 2, 1))


def test_a_config_spells_a_cascade():
    made = from_config("mine", {**SPEC, "lenience": 0.5})
    assert made.drafter == Cascade(("base", "small", "max_gram"), PAPER, lenience="lenience")
    assert made.drafter.combined.stages[0].drafter.rule == Lenient(relative=True)
    assert float(made.options().numbers["lenience"]) == 0.5
    assert made.lossless
    assert made.drafter.spec.models == ("base", "small")
    assert made.drafter.spec.resources == ("ngram",)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"drafters": []}, r"drafters is \(\); it must name different models"),
        ({"drafters": ["base", "base", "max_gram"]}, "drafters is .*; it must name different"),
        ({"drafters": ["max_gram", "base", "small"]}, "the last may be one of bigram"),
        ({"drafters": "base"}, "drafters is 'base'; it must be a list of names"),
        ({"matrix": [[5]]}, r"matrix is \(\(5,\),\); for 3 drafters it must be 3 rows"),
        ({"matrix": [[1, 1, 1], [1, 1, 1], [0, 0, 1]]}, "those left of the diagonal 0"),
        ({"matrix": [[0] * 3] * 3}, "its first row must have an entry above 0"),
        ({"matrix": [[1.5, 0, 0], [0, 1, 0], [0, 0, 1]]}, "3 integers from 0 to 1000"),
        ({"matrix": 5}, "matrix is 5; it must be a list of rows"),
        ({"lenience": 0.0}, "lenience is 0.0; it must be a number in"),
        ({"reviewers": "kind"}, "reviewers is 'kind'; it must be one of sampled, greedy"),
        ({"length": 3}, "length does not apply to drafter 'cascade'"),
    ],
)
def test_what_does_not_fit_is_refused(change, sentence):
    with pytest.raises(UserError, match=sentence):
        from_config("mine", {**SPEC, **change})


def test_a_cascade_needs_its_matrix():
    with pytest.raises(UserError, match="strategies.mine.matrix is missing; it must be a list of"):
        from_config("mine", {k: v for k, v in SPEC.items() if k != "matrix"})


def test_a_rule_that_cannot_say_its_law_reviews_nothing():
    with pytest.raises(ValueError, match="cannot review inside a cascade"):
        ReviewedDrafter("small", Nothing(), Rollback())


def test_a_model_does_not_review_itself():
    with pytest.raises(ValueError, match="'small' reviews its own drafts"):
        ReviewedDrafter("small", ReviewedDrafter("small", Nothing()))


def test_a_reviewed_tree_is_handed_on_as_its_longest_path():
    made = Cascade(("base", "prompt_lookup"), ((5, 0), (0, 3)), branches=4).combined
    (stage,) = made.stages
    assert stage.drafter.inner == PromptLookup(3, branches=4)
    assert stage.drafter.spec.width == 3 + 1 and made.spec.width == 4 + 4
    assert stage.drafter.spec.calls == (Call("base", 12 + 2, 12 + 1),)
    named = Cascade(("base", "bigram"), ((5, 0), (0, 2)), branches=2).combined
    assert named.stages[0].drafter.inner == Bigram(widths=(2, 1))
    assert named.spec.resources == ("ngram",)


TREE = {
    "drafter": "cascade", "drafters": ["base", "prompt_lookup"], "matrix": [[5, 0], [0, 3]],
    "branches": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "change, sentence",
    [
        (
            {"matrix": [[5, 1], [0, 3]]},
            "'prompt_lookup' drafts trees by branches, so in",
        ),
        (
            {
                "drafters": ["base", "small", "prompt_lookup"],
                "matrix": [[2, 0, 0], [0, 1, 1], [0] * 3],
            },
            "in another where it is not it must be the only one",
        ),
        ({"lenience": 0.5}, "lenience is given; it must be off where 'prompt_lookup' drafts trees"),
        ({"branches": 400}, "branches is 400; the tree of 'prompt_lookup' must have at most 1,000"),
        ({"drafters": ["base", "max_gram"]}, "'max_gram'; it must be one of prompt_lookup, bigram"),
        ({"branches": 0}, "branches is 0; it must be an integer of at least 1"),
    ],
)
def test_trees_that_no_model_reviews_exactly_and_alone_are_refused(change, sentence):
    with pytest.raises(UserError, match=sentence):
        from_config("mine", {**TREE, **change})


def test_other_reviews_of_trees_are_refused():
    with pytest.raises(ValueError, match="Lenient.* cannot review trees .*; it must be exact"):
        ReviewedDrafter("base", PromptLookup(2, branches=2), Lenient(relative=True))
    with pytest.raises(ValueError, match="feeds a model its nodes; a tree inside a cascade must"):
        ReviewedDrafter("base", Neural(widths=(2, 2), model="small"))
    with pytest.raises(ValueError, match="PromptLookup.* drafts trees, which extend no draft"):
        Stage(PromptLookup(2, branches=2), 2)


@pytest.mark.parametrize("place", [lambda d: Stage(d, 2), lambda d: ReviewedDrafter("small", d)])
def test_an_early_exit_does_not_draft_inside_a_cascade(place):
    with pytest.raises(ValueError, match="is an early exit, which cannot draft inside a cascade"):
        place(EarlyExit(2, exit=1))
