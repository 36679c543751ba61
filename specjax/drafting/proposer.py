"""The proposer contract: next-token distributions that are drawn as a chain or a tree.

A proposer is written once. `length` draws a chain from it (`chain`), `widths` or `parents` a tree
of a fixed shape and `nodes` one of the most probable nodes (`growing`); a parallel proposer, which
knows the distributions of all depths at once, is drawn by `block`. Letters: B batch rows, K drafted
tokens, m nodes that are fed together, D depth of a path, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax

from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Log, Memory, Outcome
from specjax.contracts.env import Bound, Env
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Call, Spec, TreeSpec
from specjax.drafting import block, by_load, chain, growing
from specjax.drafting.adaptive_length import ADAPT, FIXED, LOAD, empty_running, list_lengths
from specjax.drafting.chain_fields import REFUSED_BY_TREES, ChainFields
from specjax.drafting.grafting import COPY, graft_copy
from specjax.drafting.nodes import Nodes, ProposerMemory
from specjax.drafting.online import empty_learned
from specjax.drafting.shape import (
    GROWN,
    Shape,
    check_children,
    check_copy_length,
    check_jetspec_width,
    check_shape,
    copy_length_field,
    jetspec_width_field,
    length_field,
    make_shape,
    nodes_field,
    parents_field,
    widths_field,
)
from specjax.models.base import PromptReading
from specjax.verification.fitted import FittedReader
from specjax.verification.whole import TreeReader, WholeReader

LAG = 2
"""Tokens that a round feeds first: after a fully accepted draft a model has seen neither its last
token nor the one that followed."""

TREE_FIELDS = ("widths", "parents", "nodes", "copy_length")
PARALLEL_FIELDS = ("jetspec_width",)


@dataclasses.dataclass(frozen=True)
class Proposer(ChainFields):
    """A drafter by next-token distributions; subclasses provide them, fields set the shape.

    Tokens are drawn from, and tested against, the sum of logits and learned bias after the
    settings; the bias is learned from distributions without settings.
    """

    length: int | None = length_field()
    _: dataclasses.KW_ONLY
    widths: tuple[int, ...] = widths_field()
    parents: tuple[int, ...] = parents_field()
    nodes: int = nodes_field()
    copy_length: int = copy_length_field()
    jetspec_width: int = jetspec_width_field()

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

    can_pause: ClassVar[bool] = True
    """Whether it may leave out rounds: what it missed is in its cache's text, or in no cache."""

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

    def close(
        self, env: Env, caches: Caches, state: Any, context: Context, drafted: chain.Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        """The caches after drafting, data for readers of a chain, and further calls [B] by part."""
        return caches, {}, {}

    def update(self, memory: Memory, outcome: Outcome) -> Memory:
        """Its own memory after a round."""
        return memory

    # Derived methods.

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
        if self.adapt == LOAD and not self.can_pause:
            name, allowed = DRAFTERS.get_name(type(self)), ", ".join(ADAPT[:-1])
            raise ValueError(
                f"adapt is {LOAD!r}; it must be one of {allowed} for {name!r}, which needs every"
                " round"
            )
        check_copy_length(self.copy_length, self.nodes)
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
        for name, value in REFUSED_BY_TREES.items():
            if getattr(self, name) != value:
                raise ValueError(f"{name} is given; it must not be, for drafts that are trees")

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
        """Most tokens on a path that it drafts itself."""
        return self.shape.levels if self.shape else self.length or 0

    @property
    def levels(self) -> int:
        """Most drafted tokens on a path, copied ones included."""
        return max(self.depth, self.copy_length)

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
            return TreeSpec(self.levels) if self.nodes else None
        return TreeSpec(
            self.levels,
            parents=() if self.nodes else self.shape.parents,
            shared=self.parallel and not self.nodes,
            fed=self.models if self.keeps_nodes and not self.single_call else (),
        )

    @property
    def spec(self) -> Spec:
        width = self.nodes + self.copy_length or (self.shape.size if self.shape else self.depth)
        fed = 0
        if self.shape and self.models and not self.single_call:
            fed = len(self.shape.inner)
        return Spec(
            width=width,
            reach=max(width, fed),
            calls=self.calls,
            models=self.models,
            resources=self.resources,
            writers=(self.part, COPY) if self.copy_length else (self.part,),
            always=not self.can_stop and self.adapt != LOAD,
            features=self.features,
            tree=self.tree_spec,
        )

    @property
    def reader(self) -> Reader | None:
        if self.is_tree:
            return TreeReader()
        if self.adapt == LOAD:
            return FittedReader(list_lengths(self.depth), self.chain_reader or WholeReader())
        return self.chain_reader

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
            idle = by_load.IDLE if self.adapt == LOAD else 1.0
            counts = counts.after(outcome.accepted, outcome.tested, idle)
        if learned is not None:
            learned = learned.after(outcome, self.online_divergence)
        return ProposerMemory(self.update(memory.own, outcome), counts, learned)

    def propose(
        self, env: Env, caches: Caches, memory: ProposerMemory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, ProposerMemory, Log]:
        if self.adapt == LOAD:
            return by_load.draft(self, self._draft, env, caches, memory, context, keys)
        return self._draft(env, caches, memory, context, keys)

    def _draft(
        self, env: Env, caches: Caches, memory: ProposerMemory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, ProposerMemory, Log]:
        made, caches, memory, log = self._draft_itself(env, caches, memory, context, keys)
        if self.copy_length:
            made = graft_copy(made, context, self.copy_length)
        return made, caches, memory, log

    def _draft_itself(
        self, env: Env, caches: Caches, memory: ProposerMemory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, ProposerMemory, Log]:
        """Its draft without copies."""
        if self.parallel:
            return block.draft(self, env, caches, memory, context, keys)
        if self.shape:
            return growing.draft(self, self.shape, env, caches, memory, context, keys)
        return chain.draft(self, env, caches, memory, context, keys)
