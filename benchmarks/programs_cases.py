"""What `runtime/programs.py` lowers: strategies on the models of `programs_models.py`.

Every registered drafter, rule and reader is here by its example, newcomers' too; further fields are
those of `same_tokens_jobs.py`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict
from same_tokens_jobs import CHOOSING, PLAIN

import specjax
from specjax.contracts.registry import DRAFTERS, READERS, RULES
from specjax.decoding.beams.strategy import DRAFTERS as BEAM_DRAFTERS
from specjax.decoding.beams.strategy import BeamStrategy
from specjax.decoding.strategy import Strategy
from specjax.experiments.decode.strategies import load_strategies
from specjax.selection import policy as policies
from specjax.selection.choosing import ByPolicy
from specjax.selection.strategies import make_selected, make_switched

MORE = (
    "break_even", "truncated", "lenient", "exit_confident", "bild_official", "bild_exit",
    "reviewed", "reviewed_leniently",
)  # fmt: skip
"""Strategies of `same_tokens_jobs.py` that no example is like."""

FITTED = {
    "confident fitted": {**PLAIN["confident"], "reader": "fitted"},
    "acceptance fitted": {
        "drafter": "neural", "length": 5, "adapt": "acceptance", "cost": 0.1, "reader": "fitted",
    },
    "bild fitted": {**PLAIN["bild"], "length": 6, "reader": "fitted", "verify_eos": True},
}  # fmt: skip

SAMPLED = {"temperature": 1.0}
TREE = {"drafter": "neural", "widths": (2, 2)}
TREES = {
    "neural tree": TREE,
    "eagle tree": {"drafter": "eagle", "widths": (2, 2)},
    "hydra tree": {"drafter": "hydra", "widths": (2, 2)},
    "bigram tree": {"drafter": "bigram", "widths": (2, 2)},
    "lookup tree": {"drafter": "prompt_lookup", "length": 3, "branches": 2, "longest": 8},
    "suffix tree": {"drafter": "suffix", "length": 3, "branches": 2, "corpus": True},
    "dflash tree": {"drafter": "dflash", "widths": (2, 2)},
    "medusa chain": {"drafter": "medusa", "length": 2},
}  # fmt: skip
"""Drafters in other shapes than those of their examples."""

SETTINGS = {"repetition_penalty": 1.6, "no_repeat_ngram_size": 2, "forced_eos_token_id": 1}
BEAM_SETTINGS = {"no_repeat_ngram_size": 2, "min_length": 3}

Made = Strategy | BeamStrategy


@dataclasses.dataclass(frozen=True)
class Case:
    """A strategy on models of a kind, whose name it begins with."""

    name: str
    made: Callable[[], Made]  # only those that are asked for
    rows: int = 2
    on_target: bool = False  # heads read the target's states though the drafter could have a trunk
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dtype: Any = jnp.float32
    invariant: int = 0

    @property
    def kind(self) -> str:
        """That of its models."""
        return self.name.partition("/")[0]


def cases() -> Iterator[Case]:
    """All cases, in an order that does not change."""
    yield from _examples()
    yield from _rules()
    yield from _more()
    yield from _choices()
    yield from _families()
    yield from _beams()


def _case(name: str, spec: Mapping[str, Any], **others: Any) -> Case:
    return Case(name, functools.partial(specjax.strategy, **spec), **others)


def example(drafter: str) -> dict[str, Any]:
    """The fields of a drafter's example, with those of the rule that it needs."""
    if drafter in TREES:
        return TREES[drafter]
    entry = DRAFTERS[drafter]
    own = getattr(entry.cls, "rule_type", None)
    rule = RULES[RULES.get_name(own)].example if own else {}
    return {"drafter": drafter, **entry.example, **rule}


def _examples() -> Iterator[Case]:
    """All drafters on T5, of readers those that are no drafter's own, heads on a target too.

    Assistants read caches of decoder-only targets.
    """
    for drafter in (*DRAFTERS, *TREES):
        kind = "llama" if drafter == "assistant" else "t5"
        yield _case(f"{kind}/{drafter}", example(drafter))
    for drafter in ("medusa", "medusa chain"):
        spec = {**example(drafter), "model": "target"}
        yield _case(f"t5/{drafter} on target", spec, on_target=True)
    for reader in READERS:
        if reader != "whole":
            drafter = {} if reader == "calm" else example("prompt_lookup")
            spec = {**drafter, "reader": reader, **READERS[reader].example}
            yield _case(f"t5/reader {reader}", spec)


def _rules() -> Iterator[Case]:
    """All rules on a Llama whose tokens are drawn, of one row; rules of one drafter are with it."""
    needed = {getattr(entry.cls, "rule_type", None) for entry in DRAFTERS.values()}
    for rule, entry in RULES.items():
        if entry.cls in needed:
            continue
        drawn = {} if rule == "oracle" else SAMPLED
        spec = {"rule": rule, **entry.example, **drawn}
        yield _case(f"llama/rule {rule}", {**example("neural"), **spec}, rows=1)
        if entry.cls.trees:
            yield _case(f"llama/rule {rule} of trees", {**TREE, **spec}, rows=1)


def _more() -> Iterator[Case]:
    """Other fields, and drafters whose draws have a law of their own."""
    for name, spec in {**{name: PLAIN[name] for name in MORE}, **FITTED}.items():
        yield _case(f"llama/{name}", spec)
    for drafter in ("none", "bigram", "cascade", "lookup tree", "eagle", "eagle tree", "dflash"):
        yield _case(f"llama/{drafter} sampled", {**example(drafter), **SAMPLED}, rows=1)
    for drafter in ("neural", "neural tree"):
        spec = {**example(drafter), **SAMPLED}
        yield _case(f"t5/{drafter} sampled", spec)
        yield _case(f"t5/{drafter} under settings", spec, settings=SETTINGS)
    online = {**example("neural"), **SAMPLED, "online_rate": 0.1}
    yield _case("t5/neural online", online)


def _choices() -> Iterator[Case]:
    """Arms for a text or a round: by chance, by a bandit, by a policy."""
    specs = {**PLAIN, **CHOOSING, "online": {**CHOOSING["chance"], "mode": "online"}}
    for name in (*CHOOSING, "online"):
        arms = specs[name]["arms"]
        chosen = {arm: specs[arm] for arm in (*arms, name)}
        yield Case(f"t5/arms {name}", functools.partial(_load_strategy, chosen, name))
    for switch in (False, True):
        made = functools.partial(_by_policy, switch)
        yield Case("t5/arms " + ("switched" if switch else "selected") + " by policy", made)


def _load_strategy(specs: Mapping[str, Any], name: str) -> Strategy:
    """A strategy among others that a config spells."""
    return load_strategies(ConfigDict({"strategies": specs}))[name]


def _by_policy(switch: bool) -> Strategy:
    """One that a policy chooses: an arm of each text, or of each round."""
    arms = {name: specjax.strategy(**PLAIN[name]) for name in ("alone", "speculative", "exit")}
    if switch:
        return make_switched(arms, (0.0, 0.1, 0.2), logits=policies.logits)
    return make_selected(arms, ByPolicy(policies.logits))


def _families() -> Iterator[Case]:
    """Models with windows and models that listen; half precision, and calls of equal width."""
    for kind in ("gemma", "whisper"):
        for drafter in ("none", "neural", "neural tree", "early_exit"):
            yield _case(f"{kind}/{drafter}", example(drafter))
    for kind in ("t5", "llama"):
        spec = {**example("neural"), **SAMPLED}
        yield _case(f"{kind}/neural in bfloat16", spec, dtype=jnp.bfloat16)
    yield _case("llama/prompt_lookup invariant", example("prompt_lookup"), invariant=8)


def _beams() -> Iterator[Case]:
    """Beam searches, plain and with each drafter."""
    for drafter in BEAM_DRAFTERS:
        made = functools.partial(specjax.beam_search, beams=3, drafter=drafter)
        yield Case(f"t5/beams {drafter}", made)
    for drafter in ("none", "neural"):
        made = functools.partial(specjax.beam_search, beams=2, drafter=drafter)
        yield Case(f"llama/beams {drafter}", made, rows=1)
    yield Case("t5/beams under settings", specjax.beam_search, settings=BEAM_SETTINGS)
