"""The contracts and what every method shares.

A method is a drafter, a reader of the target and an acceptance rule. This room has their contracts
and what they share: distributions, rows that grow at their own pace, masked loops, catching up with
committed tokens, the schema of config fields and the registry of names.

Dimension letters, the same in the whole project: B batch rows, P prompt length, S encoder length, L
token-buffer length, T tokens fed in one call, K drafted tokens (nodes of a tree), V vocabulary, H
heads, D model width, C cache capacity, R rounds.
"""

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.context import Context, Options, last_token
from specjax.core.distribution import Categorical, Distribution, OneHot
from specjax.core.draft import Draft
from specjax.core.drafter import Drafter, Log, Outcome
from specjax.core.env import Env
from specjax.core.reader import Reader
from specjax.core.rule import NestableRule, Rule
from specjax.core.spec import Spec, TreeSpec
from specjax.core.verdict import Reading, Verdict

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
    "last_token",
]
