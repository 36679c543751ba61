"""The proposer contract: next-token distributions that are drawn as a chain or a tree.

A proposer is written once. `length` draws a chain from it (`chain`), `widths` or `parents` a tree
of a fixed shape and `nodes` one of the most probable nodes (`growing`); a parallel proposer, which
knows the distributions of all depths at once, is drawn by `block`. Letters: B batch rows, K drafted
tokens, m nodes that are fed together, D depth of a path, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Drafter, Log, Memory, Outcome
from specjax.contracts.env import Bound, Env
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Call, Spec, TreeSpec
from specjax.drafting import block, chain, growing
from specjax.drafting.adaptive_length import (
    ADAPT,
    COST,
    EXPECTED,
    FIXED,
    OVERHEAD,
    VERIFICATION,
    check_adaptive,
    cost_field,
    empty_running,
)
from specjax.drafting.nodes import Nodes, ProposerMemory
from specjax.drafting.online import (
    DIVERGENCE,
    check_online,
    divergence_field,
    empty_learned,
    rate_field,
)
from specjax.drafting.shape import (
    GROWN,
    Shape,
    check_children,
    check_jetspec_width,
    check_shape,
    jetspec_width_field,
    length_field,
    make_shape,
    nodes_field,
    parents_field,
    widths_field,
)
from specjax.models.base import PromptReading
from specjax.sampling import compute_confidence, compute_entropy
from specjax.verification.whole import TreeReader

LAG = 2
"""Tokens that a round feeds first: after a fully accepted draft a model has seen neither its last
token nor the one that followed."""

TREE_FIELDS = ("widths", "parents", "nodes")
PARALLEL_FIELDS = ("jetspec_width",)

_REFUSED_BY_TREES: dict[str, Any] = {
    "confidence": None,
    "entropy": None,
    "adapt": FIXED,
    "online_rate": None,
}
"""Fields of chains, and their values when unset."""

CHAIN_FIELDS = (*_REFUSED_BY_TREES, COST, VERIFICATION, OVERHEAD, EXPECTED, DIVERGENCE)
"""Those and the fields that need one of them: a tree has none."""


@dataclasses.dataclass(frozen=True)
class Proposer(Drafter):
    """A drafter by next-token distributions; subclasses provide them, fields set the shape.

    `adapt` shortens a chain by the expectation of `adaptive_length`, from the acceptance in the
    row's memory. `online_rate` names the option by which the memory's bias on the logits follows
    the target (`online`). Tokens are drawn from, and tested against, the sum after the settings;
    the bias is learned from distributions without settings.
    """

    length: int | None = length_field()
    _: dataclasses.KW_ONLY
    widths: tuple[int, ...] = widths_field()
    parents: tuple[int, ...] = parents_field()
    nodes: int = nodes_field()
    jetspec_width: int = jetspec_width_field()
    confidence: str | None = fields.number(
        None,
        bounds="[0, 1]",
        traced="confidence",
        help="largest plain probability below which nothing more is drafted",
    )
    entropy: str | None = fields.number(
        None,
        bounds="[0, inf)",
        traced="entropy",
        help="nats of the plain distribution above which nothing more is drafted",
    )
    adapt: str = fields.choice(ADAPT, FIXED, help="how long a draft gets")
    cost: str = cost_field(COST)
    verification: str = cost_field(VERIFICATION)
    overhead: str = cost_field(OVERHEAD)
    acceptance: str = cost_field(EXPECTED)
    online_rate: str | None = rate_field()
    online_divergence: str = divergence_field()

    parallel: ClassVar[bool] = False
    """Whether `open` returns the distributions of all depths at once, without feeding."""

    corrected: ClassVar[bool] = False
    """Whether `open` makes the only call, of whose outputs `feed` gives the distributions."""

    needs_static_depth: ClassVar[bool] = False
    """Whether `feed` needs a static depth of the fed nodes."""

    lacks: ClassVar[tuple[str, ...]] = PARALLEL_FIELDS
    """Unsupported fields: also `TREE_FIELDS` for a drafter of chains only; none if `parallel`."""

    keeps_nodes: ClassVar[bool] = True
    """Whether its cache keeps accepted nodes of a tree; otherwise they are fed again."""

    # Interface of subclasses.

    @property
    def models(self) -> tuple[str, ...]:
        """The model whose cache it uses, if any."""
        return ()

    @property
    def resources(self) -> tuple[str, ...]:
        """Parameter trees that it reads other than models'."""
        return ()

    @property
    def features(self) -> tuple[int, ...]:
        """Target layers whose states it observes after every round."""
        return ()

    @property
    def lag(self) -> int:
        """Tokens that its first call of a round feeds."""
        return LAG

    def call(self, tokens: int, logits: int) -> Call | None:
        """The call that feeds `tokens` and reads `distributions`; None without a model."""
        return Call(self.models[0], tokens, logits) if self.models else None

    def drafted_ids(self, env: Env) -> int:
        """Number of ids that it may draft."""
        return self._bound(env).info.vocab_size

    def start(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading
    ) -> tuple[Memory, Caches]:
        """Its initial memory and cache."""
        return (), caches

    def open(
        self, env: Env, caches: Caches, memory: Memory, context: Context
    ) -> tuple[jax.Array, Any]:
        """Logits after the text, [B, V], or [B, K, V] of a parallel one, and its state."""
        raise NotImplementedError

    @property
    def last_calls(self) -> tuple[Call, ...]:
        """The calls of `close` for a chain."""
        return ()

    @property
    def chain_reader(self) -> Reader | None:
        """The reader of its chains; None: the whole target."""
        return None

    def feed(self, env: Env, state: Any, nodes: Nodes) -> tuple[jax.Array, Any]:
        """Logits [B, m, V] after the nodes, and its state."""
        raise NotImplementedError

    def estimate_acceptance(self, logits: jax.Array, state: Any) -> jax.Array:
        """How sure it is [B] of a token of a chain before it is drawn, from logits [B, V]."""
        return compute_confidence(logits)

    def close(
        self, env: Env, caches: Caches, state: Any, context: Context, drafted: chain.Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        """The caches after drafting, data for readers of a chain, and further calls [B] by part."""
        return caches, {}, {}

    def update(self, memory: Memory, outcome: Outcome) -> Memory:
        """Its own memory after a round."""
        return memory

    # Derived methods.

    @property
    def can_stop(self) -> bool:
        """Whether a chain may end before its length, even before its first token: `is_sure`."""
        return self.confidence is not None or self.entropy is not None

    def is_sure(
        self, logits: jax.Array, numbers: Mapping[str, jax.Array], state: Any = None
    ) -> jax.Array:
        """Whether [...] a chain that `can_stop` goes on with a token of the logits [..., V].

        Asked before the token is drawn, which keeps speculative sampling lossless. `state` is that
        of a proposer which is fed.
        """
        checks = []
        if self.confidence is not None:
            checks.append(self.estimate_acceptance(logits, state) >= numbers[self.confidence])
        if self.entropy is not None:
            checks.append(compute_entropy(logits) <= numbers[self.entropy])
        return functools.reduce(jnp.logical_and, checks)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in TREE_FIELDS:
            if getattr(self, name) and name in self.lacks:
                raise ValueError(f"{name} is {getattr(self, name)}; {self.part} drafts chains only")
        for name in PARALLEL_FIELDS:
            if getattr(self, name) and name in self.lacks:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; it must be 0, as {self.part} does not give"
                    " all distributions at once"
                )
        check_jetspec_width(self.jetspec_width, self.length, self.nodes)
        if self.nodes and not (self.length or self.widths or self.parents):
            object.__setattr__(self, "widths", GROWN)
        check_shape(self.length, self.widths, self.parents)
        if self.shape:
            self._check_tree(self.shape)
        elif self.nodes and not self.parallel:
            choices = f"length is {self.length} and nodes is {self.nodes}"
            raise ValueError(f"{choices}; one of them must be given")
        elif self.nodes:
            self._check_no_chain()

    def _check_tree(self, shape: Shape) -> None:
        if self.nodes > shape.size:
            raise ValueError(
                f"nodes is {self.nodes}; it must be at most {shape.size}, as the tree has"
            )
        self._check_no_chain()

    def _check_no_chain(self) -> None:
        for name, value in _REFUSED_BY_TREES.items():
            if getattr(self, name) != value:
                raise ValueError(f"{name} is given; it must not be, for drafts that are trees")

    @classmethod
    def check_values(cls, values: Mapping[str, Any]) -> None:
        check_adaptive(values)
        check_online(values)

    def _bound(self, env: Env) -> Bound:
        """Its model, or the target where it has none."""
        return env[self.models[0]] if self.models else env.target

    def ends(self, env: Env) -> tuple[int, ...]:
        """The tokens that end a chain."""
        return self._bound(env).info.eos

    @property
    def shape(self) -> Shape | None:
        """The shape of the tree; None: a chain."""
        return make_shape(self.widths, self.parents) if self.widths or self.parents else None

    @property
    def is_tree(self) -> bool:
        """Whether its drafts are trees: of a shape, or of the most probable nodes of all."""
        return self.shape is not None or self.nodes > 0

    @property
    def given(self) -> str:
        """The field that sets the shape."""
        return next(name for name in ("length", "widths", "parents") if getattr(self, name))

    @property
    def depth_words(self) -> str:
        """Describes the field that sets the depth, for error messages."""
        levels = f", of {self.depth} levels" if self.shape else ""
        return f"{self.given} is {getattr(self, self.given)}{levels}"

    @property
    def depth(self) -> int:
        """Most drafted tokens on a path."""
        return self.shape.levels if self.shape else self.length or 0

    @property
    def fed(self) -> tuple[int, ...]:
        """Number of distributions needed level by level, beginning with the text's."""
        if not self.shape:
            return (1,) * self.depth
        return 1, *(len(self.shape.list_fed_nodes(depth)) for depth in range(self.shape.levels - 1))

    @property
    def single_call(self) -> bool:
        """Whether a draft of any shape takes one call."""
        return self.parallel or self.corrected

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of a draft of full width."""
        if self.single_call:
            calls = (self.call(self.lag, self.depth),)
        else:
            later = (self.call(count, count) for count in self.fed[1:])
            calls = (self.call(self.lag, 1), *later, *self.last_calls)
        return tuple(call for call in calls if call)

    @property
    def part(self) -> str:
        """The part that its calls run (`Call.part`), or its name without calls."""
        names = (name for name, entry in DRAFTERS.items() if entry.cls is type(self))
        return self.calls[0].part if self.calls else next(names, type(self).__name__)

    @property
    def tree_spec(self) -> TreeSpec | None:
        """The static spec of its trees."""
        if not self.shape:
            return TreeSpec(self.depth) if self.nodes else None
        return TreeSpec(
            self.shape.levels,
            parents=() if self.nodes else self.shape.parents,
            shared=self.parallel and not self.nodes,
            fed=self.models if self.keeps_nodes and not self.single_call else (),
        )

    @property
    def spec(self) -> Spec:
        width = self.nodes or (self.shape.size if self.shape else self.depth)
        fed = 0
        if self.shape and self.models and not self.single_call:
            fed = len(self.shape.inner)
        return Spec(
            width=width,
            reach=max(width, fed),
            calls=self.calls,
            models=self.models,
            resources=self.resources,
            writers=(self.part,),
            always=not self.can_stop,
            features=self.features,
            tree=self.tree_spec,
        )

    @property
    def reader(self) -> Reader | None:
        return TreeReader() if self.is_tree else self.chain_reader

    def check(self, env: Env) -> None:
        ids = self.drafted_ids(env)
        check_children(self.shape.most if self.shape else 0, self.given, ids)
        check_children(self.jetspec_width, "jetspec_width", ids)

    def begin(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[ProposerMemory, Caches]:
        own, caches = self.start(env, caches, context, prompt)
        rows = context.length.shape[0]
        counts = None if self.adapt == FIXED else empty_running(rows)
        learned = None
        if self.online_rate is not None:
            learned = empty_learned(rows, self.depth, self._bound(env).info.vocab_size)
        return ProposerMemory(own, counts, learned), caches

    def observe(self, memory: ProposerMemory, outcome: Outcome) -> ProposerMemory:
        counts, learned = memory.acceptance_counts, memory.learned
        if counts is not None:
            counts = counts.after(outcome.accepted, outcome.tested)
        if learned is not None:
            learned = learned.after(outcome, self.online_divergence)
        return ProposerMemory(self.update(memory.own, outcome), counts, learned)

    def propose(
        self, env: Env, caches: Caches, memory: ProposerMemory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, ProposerMemory, Log]:
        if self.parallel:
            return block.draft(self, env, caches, memory, context, keys)
        if self.shape:
            return growing.draft(self, self.shape, env, caches, memory, context, keys)
        return chain.draft(self, env, caches, memory, context, keys)
