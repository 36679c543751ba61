"""Interfaces of drafters, readers and acceptance rules, and what all methods share.

A method combines a drafter, a reader of the target and an acceptance rule. Shared are
distributions, rows of different lengths, conditional steps, catching up with committed tokens, the
schema of config fields and the registry of names.

Dimension letters, the same in the whole project: B batch rows, P prompt length, S encoder length, L
token-buffer length, T tokens fed in one call, K drafted tokens (nodes of a tree), V vocabulary, H
heads, D model width, C cache capacity, R rounds.
"""

from specjax.contracts import fields
from specjax.contracts.context import Context, Options, get_pending_tokens
from specjax.contracts.distribution import Categorical, Distribution, OneHot
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Drafter, Log, Outcome
from specjax.contracts.env import Env
from specjax.contracts.reader import Reader
from specjax.contracts.rule import NestableRule, Reading, Rule, Verdict
from specjax.contracts.spec import Call, Spec, TreeSpec

__all__ = [
    "Call",
    "Context",
    "Categorical",
    "Distribution",
    "Draft",
    "Drafter",
    "Env",
    "Log",
    "NestableRule",
    "OneHot",
    "Options",
    "Outcome",
    "Reader",
    "Reading",
    "Rule",
    "Spec",
    "TreeSpec",
    "Verdict",
    "fields",
    "get_pending_tokens",
]
