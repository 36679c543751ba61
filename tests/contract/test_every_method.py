"""What holds for every registered drafter, rule and reader, newcomers' ones too.

The parameters come from the registry: whoever registers a drafter has it tested here.
"""

from __future__ import annotations

import dataclasses
import functools

import last_token  # noqa: F401 - a newcomer's drafter registers itself
import numpy as np
import pytest
import repeated_bigram  # noqa: F401 - and a newcomer's proposer
import two_in_a_row  # noqa: F401 - and a newcomer's rule
from decodes import run, texts
from feature_drafters import MARKOV, without_encoder
from filled import check_same_rows, decode_in_slots, decode_together
from parallel_heads import heads_on_target, random_heads
from processors import UnderSettings, process
from scripted import (
    WIDTH,
    CachedPrefixModel,
    PrefixModel,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
    trace_scripts,
)
from slow_cases import some_slow

from specjax.contracts.registry import DRAFTERS, READERS, RULES
from specjax.data.corpus import Corpus
from specjax.decoding.strategy import Strategy, strategy
from specjax.drafting.draft_heads import DraftHeads
from specjax.models.assistant import Assistant
from specjax.models.eagle import Eagle
from specjax.models.on_target import FeatureDrafter
from specjax.runtime.errors import UserError
from specjax.selection.arms import ARM
from specjax.selection.choosing import ByChance
from specjax.selection.strategies import make_selected
from specjax.training.ngram import fit

V, EOS, LENGTH = 5, 1, 3
SOURCE = (3, 2, 4, 2)
MODEL = PrefixModel(V, eos=(EOS,))
MODELS = (("target", MODEL), ("drafter", MODEL))
EARLIER = Corpus(MODEL, 32)
EARLIER.add([[3, 2, 1], [2, 2, 4, 1], [3, 2, 4, 4, 1], [4, 3, 3, 1]])
PARAMS = {
    "target": prefix_params(V, seed=1),
    "drafter": prefix_params(V, seed=2, scale=0.7),
    "ngram": fit([[2, 3, 4, 1], [3, 3, 2, 1], [4, 2, 0, 1]], V, start_token=0),
    "heads": random_heads(2, WIDTH, seed=3),
    "corpus": EARLIER.table(),
}
P_VALUE = 1e-3
SHAPES = {  # other than those of the examples
    "neural tree": {"widths": (2, 2)},
    "neural nodes": {"nodes": 4, "widths": (2, 2)},
    "neural copy": {"nodes": 4, "widths": (2, 2), "copy_length": 3},
    "eagle tree": {"widths": (2, 2)},
    "eagle copy": {"nodes": 4, "widths": (2, 2), "copy_length": 3},
    "assistant tree": {"widths": (2, 2)},
    "hydra tree": {"widths": (2, 2)},
    "medusa chain": {"length": 2},
    "medusa nodes": {"nodes": 3, "widths": (2, 1)},
    "medusa copy": {"nodes": 3, "widths": (2, 1), "copy_length": 4},
    "dflash tree": {"widths": (2, 2)},
    "dflash nodes": {"nodes": 5, "widths": (3, 2)},
    "dflash best": {"nodes": 6, "length": 3},
    "dflash jetspec": {"nodes": 7, "length": 3, "jetspec_width": 2},
    "dflash copy": {"nodes": 4, "length": 2, "copy_length": 3},
    "p_eagle tree": {"widths": (2, 2)},
    "p_eagle best": {"nodes": 6, "length": 3},
    "dspark tree": {"widths": (2, 2)},
    "dspark nodes": {"nodes": 5, "widths": (3, 2)},
    "dspark copy": {"nodes": 4, "widths": (2, 2), "copy_length": 3},
    "hydra copy": {"nodes": 4, "widths": (2, 2), "copy_length": 3},
    "assistant copy": {"nodes": 4, "widths": (2, 2), "copy_length": 3},
    "p_eagle copy": {"nodes": 4, "length": 2, "copy_length": 3},
    "dspark sure": {"length": 3, "confidence": 0.5},
    "bigram tree": {"widths": (2, 2)},
    "unigram tree": {"parents": (-1, -1, 0)},
    "prompt_lookup tree": {"length": 3, "branches": 2, "longest": 8},
    "suffix tree": {"length": 3, "branches": 2, "corpus": True},
    "repeated_bigram tree": {"widths": (2, 2)},
    "repeated_bigram nodes": {"nodes": 3, "widths": (2, 2)},
    "cascade tree": {
        "drafters": ("drafter", "prompt_lookup"), "matrix": ((2, 0), (0, 2)), "branches": 2
    },
}  # fmt: skip
OWN_STATES = ("medusa chain on target", "medusa on target")  # instead of a trunk's
EVERY = [*DRAFTERS, *SHAPES, *OWN_STATES]
LOSSLESS = [name for name in EVERY if name != "bild"]  # bild has a rule of its own
QUICK_SHAPES = ("neural tree", "suffix tree", "dflash best")
DEAR = ("assistant", "dflash", "dspark", "p_eagle")  # decoded in shapes or by tests of their own
METHODS = [name for name in LOSSLESS if " " not in name and name not in DEAR]  # in its usual shape
CALIBRATED = dataclasses.replace(MARKOV, temperatures=(3.0, 0.4))
PROMPTS = [[3, 2, 4, 2], [2, 2], [4, 3, 2], [3], [4, 4, 2, 3], [2, 4], [3, 3], [2, 3, 4, 4]]


def make(drafter: str, **fields) -> Strategy:
    """The strategy of the drafter's example, or in another shape."""
    shape, _, model = drafter.partition(" on ")
    drafter = shape.partition(" ")[0]
    entry = DRAFTERS[drafter]
    own_fields = SHAPES.get(shape, entry.example)
    fields |= {"model": model} if model else {}
    own_rule = getattr(entry.cls, "rule_type", None)
    own = RULES[RULES.get_name(own_rule)].example if own_rule else {}
    return strategy(drafter=drafter, **own_fields, **own, **fields)


@functools.cache
def on_target(kind: type[FeatureDrafter], corrected: bool):
    """A feature drafter of the target; drawn when asked for, not where tests are collected."""
    changes = {"correction": CALIBRATED} if corrected else {}
    return without_encoder(V, WIDTH, (1,), (1, 2, 4), 0, kind=kind, **changes)


@functools.cache
def heads(sequential: bool):
    """Heads on the target's states, likewise."""
    return heads_on_target(2, WIDTH, sequential)


def parts(strategy: Strategy):
    """Models and parameters; the drafter is a small model, or a feature drafter where asked for."""
    if not strategy.drafter.spec.features:
        return MODELS, PARAMS
    if isinstance(strategy.drafter, DraftHeads):
        return MODELS, PARAMS | {"heads": heads(strategy.drafter.sequential)}
    kind = getattr(strategy.drafter, "drives", Eagle)
    corrected = getattr(strategy.drafter, "corrected", False)
    model, own = on_target(kind, corrected)
    target = CachedPrefixModel(V, eos=(EOS,)) if kind is Assistant else MODEL
    return (("target", target), ("drafter", model)), PARAMS | {"drafter": own}


def decode_method(strategy: Strategy, prompts, limit: int, seed: int = 0, settings=None):
    """A decode with the models that the strategy's drafter needs."""
    models, params = parts(strategy)
    return run(models, params, strategy, prompts, limit, seed, settings=settings)


CHAINS = [  # block judges chains
    name for name in LOSSLESS if name != "none" and not make(name).drafter.spec.tree
]


SAMPLED = ("none", "neural", "medusa", "prompt_lookup", "last_token", "repeated_bigram")
"""A chain, a tree of heads, copies, and what a newcomer draws; of the others slow tests count."""


@pytest.mark.parametrize("drafter", some_slow(LOSSLESS, *SAMPLED))
def test_sampling_keeps_the_targets_distribution(drafter, rows):
    expected = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, (1.0, 0, 1.0))
    out = decode_method(make(drafter, temperature=1.0), [SOURCE] * rows, LENGTH, seed=7)
    assert chi_square(count_outputs(texts(out)), expected) > P_VALUE


CUT = {"min_p": 0.35, "typical_p": 0.6, "epsilon_cutoff": 0.12, "eta_cutoff": 0.2}
RULES_KEEPING = [  # of chains and of trees
    ("neural", "block"), ("neural", "lossless"),
    ("neural tree", "traversal"), ("neural tree", "lossless"),
    ("dspark", "block"), ("dspark", "lossless"), ("dspark tree", "traversal"),
    ("dflash best", "traversal"), ("dflash best", "lossless"),
]  # fmt: skip


def under_cuts() -> list:
    """One cut under one rule, and all of them at once, which alone are fast."""
    together = {"temperature": 1.2, "top_k": 4, **dict.fromkeys(CUT, 0.9), "epsilon_cutoff": 0.05}
    together |= {"min_p": 0.05, "eta_cutoff": 0.05}
    baseline = [{"temperature": 1.0, name: bound} for name, bound in CUT.items()]
    return [
        pytest.param(*kept, drawn, marks=() if drawn is together and not n else pytest.mark.slow)
        for n, kept in enumerate(RULES_KEEPING)
        for drawn in (together, *baseline)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("drafter", "rule", "drawn"), under_cuts())
def test_sampling_keeps_the_targets_distribution_where_it_is_cut(drafter, rule, drawn, rows):
    sampled = make(drafter, rule=rule, **drawn)
    expected = sequence_distribution(
        MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, sampled.settings
    )
    found = count_outputs(texts(decode_method(sampled, [SOURCE] * rows, LENGTH, seed=7)))
    assert chi_square(found, expected) > P_VALUE
    plain = (drawn["temperature"], drawn.get("top_k", 0), 1.0)
    free = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, plain)
    assert len(expected) < len(free) and chi_square(found, free) < 1e-6


BY_TEXT = {  # what the text before a token decides
    "repetition_penalty": 1.6, "no_repeat_ngram_size": 2, "bad_words_ids": ((4,), (3, 2)),
    "min_new_tokens": 2, "encoder_repetition_penalty": 1.4,
    "sequence_bias": (((2,), 0.8), ((3, 3), -1.5), ((2, 3), 1.2), ((3, 2, 0), 2.0)),
}  # fmt: skip
BY_LENGTH = {  # and how long it is
    "forced_bos_token_id": 3, "forced_eos_token_id": (1, 2), "suppress_tokens": (4,),
    "begin_suppress_tokens": (2,), "min_length": 3, "encoder_no_repeat_ngram_size": 3,
    "exponential_decay_length_penalty": (1, 3.0),
}  # fmt: skip
LONGER = 4


def of_settings(settings) -> list:
    """Every lossless drafter, chains of drawn tokens under block verification.

    Trees of a model are looked at at once under the first, chains under the others.
    """
    fast = "neural tree" if settings is BY_TEXT else "neural"
    slow = pytest.mark.slow
    return [pytest.param(name, settings, marks=() if name == fast else slow) for name in LOSSLESS]


@pytest.mark.slow
@pytest.mark.parametrize(("drafter", "settings"), [*of_settings(BY_TEXT), *of_settings(BY_LENGTH)])
def test_sampling_keeps_the_targets_distribution_under_settings(drafter, settings, rows):
    sample_under(settings, make(drafter, temperature=1.0), rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "rule"), [("neural", "lossless"), ("neural tree", "traversal")]
)
def test_other_rules_keep_it_under_settings_too(drafter, rule, rows):
    sample_under(BY_TEXT, make(drafter, temperature=1.0, rule=rule), rows)


def sample_under(settings, sampled: Strategy, rows: int) -> None:
    under = UnderSettings(MODEL, settings, LONGER)
    expected = sequence_distribution(under, PARAMS["target"], SOURCE, (0,), LONGER, (1.0, 0, 1.0))
    out = decode_method(sampled, [SOURCE] * rows, LONGER, seed=7, settings=settings)
    assert chi_square(count_outputs(texts(out)), expected) > P_VALUE
    without = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LONGER, (1.0, 0, 1.0))
    assert chi_square(count_outputs(texts(out)), without) < 1e-6


BEHIND = PrefixModel(V, eos=(EOS, 0), start_token=None)
"""A decoder that goes on with its prompt: that is text before the first token."""

OF_PROMPTS = {
    "by text": {
        "repetition_penalty": 1.6, "no_repeat_ngram_size": 2, "bad_words_ids": ((3, 3),),
        "min_length": len(SOURCE) + 1,  # longer, some texts would have no token left
        "encoder_repetition_penalty": 0.7, "sequence_bias": (((2, 4), 1.0), ((4, 2, 0), 1.5)),
    },
    "by length": {
        "encoder_no_repeat_ngram_size": 2, "min_new_tokens": 2, "forced_eos_token_id": (0, 3),
        "begin_suppress_tokens": (2,), "exponential_decay_length_penalty": (1, 0.5),
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("settings", OF_PROMPTS)
@pytest.mark.parametrize("drafter", ["neural", "neural tree", "prompt_lookup", "eagle"])
def test_settings_see_a_prompt_as_text_and_every_end(drafter, settings, rows):
    settings, drawn = OF_PROMPTS[settings], make(drafter, temperature=1.0)
    second, own = BEHIND, PARAMS["drafter"]
    if drawn.drafter.spec.features:
        second, own = without_encoder(
            V, WIDTH, (1,), (1, 2, 4), None, BEHIND.eos, kind=drawn.drafter.drives
        )
    models = ("target", BEHIND), ("drafter", second)
    params = PARAMS | {"drafter": own}
    out = run(models, params, drawn, [SOURCE] * rows, LONGER, seed=7, settings=settings)
    found, distribution = count_outputs(texts(out)), (1.0, 0, 1.0)
    under = UnderSettings(BEHIND, settings, LONGER)
    expected = sequence_distribution(under, PARAMS["target"], SOURCE, SOURCE, LONGER, distribution)
    assert chi_square(found, expected) > P_VALUE
    ends = {text[-1] for text in found if len(text) < LONGER}
    assert ends == set(BEHIND.eos)
    without = sequence_distribution(BEHIND, PARAMS["target"], SOURCE, SOURCE, LONGER, distribution)
    assert chi_square(found, without) < 1e-6


MOST_LOSSY = {  # what lets the most tokens stand that the target would not write
    "oracle": {"engage": 0.0},
    "lenient": {"lenience": 1e-6},
    "typical": {"epsilon": 0.0, "temperature": 1.0},
    "speculative_cascade": {"margin": 1.0, "temperature": 1.0},
}
BILD = {"drafter": "bild", "fallback": 0.0, "rollback": float("inf"), "length": 3}
LOSSY = [
    BILD,
    *(
        {"drafter": drafter, "length": 3, "rule": rule, **fields}
        for rule, fields in MOST_LOSSY.items()
        for drafter in ("prompt_lookup", "neural")
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("fields", LOSSY)
def test_no_rule_lets_a_token_stand_that_settings_forbid(fields):
    """Nor does a draft that stands unread; prompt lookup knows no settings."""
    settings = BY_TEXT | BY_LENGTH | {"no_repeat_ngram_size": 3, "bad_words_ids": ((3, 2),)}
    settings |= {"exponential_decay_length_penalty": (9, 1.5)}  # texts are to be long
    rows = texts(decode_method(strategy(**fields), PROMPTS, 12, settings=settings))
    free = texts(decode_method(strategy(**fields), PROMPTS, 12))
    allowed = [follows_settings(*each, settings) for each in zip(PROMPTS, rows, strict=True)]
    assert all(allowed) and max(map(len, rows)) > 4
    assert not all(follows_settings(*each, settings) for each in zip(PROMPTS, free, strict=True))


def follows_settings(prompt: list[int], row: list[int], settings) -> bool:
    """Whether a text has no token that they forbid."""
    given = {"prompt": tuple(prompt), "begin": 1, "limit": 13, "eos": (EOS,)}
    texts_before = ((0, *row[:place]) for place in range(len(row)))
    distributions = (process(np.zeros(V), text, settings, **given) for text in texts_before)
    return all(
        distribution[token] > -np.inf
        for distribution, token in zip(distributions, row, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("drafter", CHAINS)
def test_block_verification_keeps_it_too(drafter, rows):
    expected = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, (1.0, 0, 1.0))
    whole = make(drafter, temperature=1.0, rule="block")
    out = decode_method(whole, [SOURCE] * rows, LENGTH, seed=7)
    assert chi_square(count_outputs(texts(out)), expected) > P_VALUE


APART = [  # traversal judges trees whose nodes were drawn apart
    name
    for name in LOSSLESS
    if make(name).drafter.spec.tree and not make(name).drafter.spec.tree.shared
]


@pytest.mark.slow
@pytest.mark.parametrize("drafter", APART)
def test_traversal_verification_keeps_it_too(drafter, rows):
    expected = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, (1.0, 0, 1.0))
    whole = make(drafter, temperature=1.0, rule="traversal")
    out = decode_method(whole, [SOURCE] * rows, LENGTH, seed=7)
    assert chi_square(count_outputs(texts(out)), expected) > P_VALUE


@pytest.mark.parametrize("drafter", some_slow(LOSSLESS, *QUICK_SHAPES, *METHODS))
def test_greedy_outputs_are_the_targets_own(drafter):
    baseline = decode_method(Strategy(), PROMPTS, 12)
    assert texts(decode_method(make(drafter), PROMPTS, 12)) == texts(baseline)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", LOSSLESS)
def test_greedy_outputs_under_settings_are_the_targets_own(drafter):
    for settings in (BY_TEXT, BY_LENGTH):
        under = UnderSettings(MODEL, settings, 12)
        expected = [under.greedy(PARAMS["target"], prompt) for prompt in PROMPTS]
        assert texts(decode_method(make(drafter), PROMPTS, 12, settings=settings)) == expected


@pytest.mark.parametrize("drafter", some_slow(EVERY, "neural", "dspark nodes", "suffix", "bild"))
def test_a_row_keeps_its_tokens_whoever_shares_its_batch(drafter):
    sampled = make(drafter, temperature=1.0)
    mine = texts(decode_method(sampled, PROMPTS, 12))
    others = [PROMPTS[0], *([4] * len(prompt) for prompt in PROMPTS[1:-1]), PROMPTS[-1]]
    again = texts(decode_method(sampled, others, 12))
    assert [again[0], again[-1]] == [mine[0], mine[-1]]
    assert again != mine


@pytest.mark.parametrize("rule", list(RULES))
def test_every_rule_decodes_and_says_whether_it_is_lossless(rule):
    fields = {"drafter": "neural", "length": 3, "rule": rule, **RULES[rule].example}
    try:
        spelled = strategy(**fields)
    except UserError as error:  # it is one for sampling
        assert "temperature above 0" in str(error)
        spelled = strategy(**fields, temperature=1.0)
    out = texts(decode_method(spelled, PROMPTS, 12))
    assert all(1 <= len(row) <= 12 for row in out)
    if spelled.lossless:
        assert out == texts(decode_method(Strategy(), PROMPTS, 12))


@pytest.mark.parametrize("registry", [DRAFTERS, RULES, READERS], ids=lambda r: r.kind)
def test_every_entry_says_what_it_is(registry):
    for entry in registry.values():
        assert 10 < len(entry.summary) < 110 and entry.summary.endswith("."), entry.name


COUNTS, LAYER = "repeated_bigram", "eagle"


def arms(temperature: float) -> Strategy:
    """A newcomer's proposer and one on the target's states, one of them for each text."""
    own = {name: make(name, temperature=temperature) for name in (COUNTS, LAYER)}
    return make_selected(own, ByChance())


@pytest.mark.slow
def test_a_choice_of_proposers_keeps_the_targets_distribution(rows):
    expected = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, (1.0, 0, 1.0))
    out = decode_method(arms(1.0), [SOURCE] * rows, LENGTH, seed=7)
    assert chi_square(count_outputs(texts(out)), expected) > P_VALUE
    assert set(np.unique(out.trace.column(ARM))) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[:1], PROMPTS[2:3]], ids=len)
def test_a_choice_of_proposers_writes_the_targets_own_text(prompts):
    """A single text has its arm's own loop."""
    baseline = decode_method(Strategy(), prompts, 12)
    assert texts(decode_method(arms(0.0), prompts, 12)) == texts(baseline)


@pytest.mark.parametrize("temperature", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_newcomers_proposer_is_reviewed_in_a_cascade(temperature, rows):
    matrix = ((2, 0), (0, 2))
    spec = {"drafters": ("drafter", COUNTS), "matrix": matrix, "temperature": temperature}
    cascade = strategy(drafter="cascade", **spec)
    if not temperature:
        baseline = decode_method(Strategy(), PROMPTS, 12)
        assert texts(decode_method(cascade, PROMPTS, 12)) == texts(baseline)
        return
    expected = sequence_distribution(MODEL, PARAMS["target"], SOURCE, (0,), LENGTH, (1.0, 0, 1.0))
    out = decode_method(cascade, [SOURCE] * rows, LENGTH, seed=7)
    assert chi_square(count_outputs(texts(out)), expected) > P_VALUE


def test_a_newcomers_files_are_small():
    for module in (last_token, repeated_bigram, two_in_a_row):
        with open(module.__file__, encoding="utf-8") as lines:
            assert len(lines.readlines()) <= 35


def test_a_newcomers_drafter_proposes_its_token():
    out = decode_method(make("last_token"), PROMPTS, 12)
    drafted = np.asarray(out.trace.proposed)[:, 0]
    assert np.all(drafted == 0)  # the decoder start token, three times
    assert make("last_token").drafter.spec.writers == ("last_token",)


FILLED = [PROMPTS[n % len(PROMPTS)] for n in range(17)]
LIMITS = [1 + 5 * n % 9 for n in range(17)]


FILLED_FAST = ("neural",)
FILLED_GREEDY = (*FILLED_FAST, "suffix", "neural tree", "dspark", "bild", "medusa")


def filled_cases() -> list:
    """Every drafter sampled, of which a few are fast, and a few greedy too, slowly."""
    slow = pytest.mark.slow
    sampled = [pytest.param(d, 1.0, marks=() if d in FILLED_FAST else slow) for d in EVERY]
    return sampled + [pytest.param(drafter, 0.0, marks=slow) for drafter in FILLED_GREEDY]


@pytest.mark.parametrize(("drafter", "temperature"), filled_cases())
def test_rows_of_a_batch_that_is_refilled_are_those_of_one_batch(drafter, temperature):
    strategy = make(drafter, temperature=temperature)
    models, params = trace_scripts(*parts(strategy))
    decoder = strategy.decoder(models, max(LIMITS))
    params = {name: params[name] for name in decoder.inputs}
    given = decoder, params, FILLED, LIMITS, strategy.options(), 4
    check_same_rows(decode_together(*given), decode_in_slots(*given, slots=3, together=2))
