"""Cascades: drafters made of drafters, for any depth.

Chen et al., "Cascade Speculative Drafting for Even Faster LLM Inference" (2024), Algorithm 1
(docs/methods/cascade.md). `ReviewedDrafter` is its recursion: a model reviews what its inner
drafter proposes and returns the result as a draft. `Horizontal` is its inner loop: one drafter
after another extends the draft. Both draft on a tentative prefix and rewind the caches of the
models below them. `matrix.py` builds cascades from the two.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.catching_up import catch_up, count_catch_up_runs, feed_drafted
from specjax.contracts.context import Context, Options, fold_keys
from specjax.contracts.distribution import Categorical, Distribution, OneHot, compute_probability
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import (
    CALLS,
    Drafter,
    Log,
    Memory,
    Outcome,
    count_calls,
    list_distinct,
)
from specjax.contracts.env import Env
from specjax.contracts.logits_processor import bind_processors
from specjax.contracts.rows import (
    Caches,
    append,
    count_until_eos,
    ends_with_eos,
    rewind,
    slice_window,
)
from specjax.contracts.rule import NestableRule, Reading, Verdict, count_tested
from specjax.contracts.spec import Call, Spec, list_parts
from specjax.models.base import PromptReading
from specjax.sampling import Sampling
from specjax.verification.lenient import SCORE
from specjax.verification.speculative_sampling import SpeculativeSampling

LAG = 2
"""Fewest tokens that a reviewer is fed before a draft: after its whole draft was accepted it has
seen neither its own last token nor the one that followed."""

INNER, REVIEW = 0, 1
"""Phases that fold their own numbers into a reviewer's keys."""


@dataclasses.dataclass(frozen=True)
class ReviewedDrafter(Drafter):
    """The drafts of `inner`, reviewed by the model called `model`.

    A draft is the accepted tokens and the model's own next token, drawn from the distribution that
    `rule` induces; at temperature 0 the model's argmax. Around `Nothing` it is one autoregressive
    step. `lag` tokens are fed before the inner draft; other unseen tokens take separate calls. The
    memory is that of `inner`, which observes its reviewer. A tree is reviewed in one call, as by
    the target, and returned as the accepted chain.
    """

    model: str
    inner: Drafter
    rule: NestableRule = SpeculativeSampling()
    lag: int = LAG

    def __post_init__(self) -> None:
        if not isinstance(self.rule, NestableRule):
            raise ValueError(f"{self.rule} cannot review inside a cascade")
        if self.model in self.inner.spec.models:
            raise ValueError(f"{self.model!r} reviews its own drafts; a cascade names each once")
        _check_whole(self.inner)
        if self.inner.spec.tree:
            self._check_tree()

    def _check_tree(self) -> None:
        """Refuses lenient reviews of trees, whose output distribution is unknown."""
        if not (self.rule.trees and self.rule.lossless):
            raise ValueError(f"{self.rule} cannot review trees inside a cascade; it must be exact")
        if self.inner.spec.tree and self.inner.spec.tree.fed:
            raise ValueError(
                f"{self.inner} feeds a model its nodes; a tree inside a cascade must be drafted"
                " without a model"
            )

    @property
    def spec(self) -> Spec:
        inner = self.inner.spec
        return Spec(
            width=inner.longest + 1,
            reach=max(inner.reach, inner.width + self.lag),
            calls=(*inner.calls, Call(self.model, inner.width + self.lag, inner.width + 1)),
            models=(self.model, *inner.models),
            resources=inner.resources,
            writers=(*inner.writers, self.model),
            always=True,
            columns=inner.columns,
        )

    @property
    def scored(self) -> bool:
        """Whether a reviewer above needs scores."""
        return not self.rule.lossless

    def begin(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[Memory, Caches]:
        return self.inner.begin(env, caches, context, prompt, keys)

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        model, own = env[self.model], caches[self.model]
        inside = context.replace(most=_useful_tokens(self.inner, context.most))
        draft, after, memory, log = self.inner.propose(
            env, caches, memory, inside, fold_keys(keys, INNER)
        )
        draft = draft.cut(inside.most, model.info.eos)
        runs = count_catch_up_runs(own, context, self.lag) + 1
        cache = catch_up(model, own, context, self.lag)
        logits, cache = feed_drafted(model, cache, context, draft.tokens, self.lag, draft.parents)
        logits = bind_processors(context, logits.shape[-1]).process_draft(logits, draft)
        reading, options = Reading(logits), context.options
        verdict = self.rule.judge(draft, reading, options, fold_keys(keys, REVIEW))
        if verdict.path is not None:
            nodes = cache.replace(length=cache.length - draft.width)
            cache = model.model.keep(nodes, verdict.path, verdict.accepted)
        length = jnp.minimum(verdict.count, count_until_eos(verdict.tokens, model.info.eos))
        length = jnp.where(context.active, length, 0)
        memory = self.inner.observe(
            memory,
            Outcome(
                draft,
                reading,
                verdict,
                length,
                jnp.minimum(verdict.accepted, length),
                count_tested(verdict.accepted, draft.length),
                context,
            ),
        )
        reviewed = self._make_passed_draft(draft, reading, verdict, length, options)
        after = rewind(
            {**after, self.model: cache}, caches, context.length + length, context.active
        )
        log = log | count_calls({self.model: jnp.where(context.active, runs, 0)})
        return reviewed, after, memory, log

    def _make_passed_draft(
        self,
        draft: Draft,
        reading: Reading,
        verdict: Verdict,
        length: jax.Array,
        options: Options,
    ) -> Draft:
        """The accepted tokens and the model's own token as a chain of `length` [B] tokens."""
        width = self.spec.width
        tokens, writer = verdict.tokens[:, :width], draft.drafted_by
        # With greedy decoding every token was certain, whatever the rule accepted.
        distribution: Distribution = OneHot(tokens)
        if not options.sampling.greedy:
            distribution = self.rule.distribution(draft, reading, options)
        if verdict.path is not None:
            path = verdict.path[:, : width - 1]
            writer = jnp.take_along_axis(writer, path, axis=1)
            if not options.sampling.greedy:
                distribution = _along(distribution, path, reading.logits.shape[-1])
        is_accepted = jnp.arange(width) < verdict.accepted[:, None]
        writer = jnp.pad(writer, ((0, 0), (0, 1)))
        return Draft.chain(
            tokens,
            length,
            distribution,
            drafted_by=jnp.where(is_accepted, writer, len(self.inner.spec.writers)),
            aux={SCORE: compute_probability(reading.logits, tokens)} if self.scored else None,
        )


def _along(distribution: Distribution, path: jax.Array, vocabulary: int) -> Categorical:
    """Values [B, D + 1, V] after the pending token and after the nodes of a path [B, D]."""
    places = jnp.pad(path + 1, ((0, 0), (1, 0)))
    probs = distribution.categorical(vocabulary).probs
    return Categorical(jnp.take_along_axis(probs, places[..., None], axis=1))


@dataclasses.dataclass(frozen=True)
class Stage:
    """A drafter that extends a draft to at least `until` tokens; its last call may exceed it."""

    drafter: Drafter
    until: int

    def __post_init__(self) -> None:
        _check_whole(self.drafter)
        if self.drafter.spec.tree:
            raise ValueError(f"{self.drafter} drafts trees, which extend no draft")


class _Progress(struct.PyTreeNode):
    """Carry of the drafting loops: a tentative prefix and its drafted part of width W."""

    tokens: jax.Array  # [B, L]
    length: jax.Array  # [B]
    going: jax.Array  # [B] the stage extends the row
    ended: jax.Array  # [B] by an EOS
    probs: jax.Array | None  # [B, W, V]
    score: jax.Array | None  # [B, W]
    drafted_by: jax.Array  # [B, W]
    runs: dict[str, jax.Array]
    caches: Caches
    memories: tuple[Memory, ...]  # of the stages


@dataclasses.dataclass(frozen=True)
class Horizontal(Drafter):
    """One drafter after another, the best first: early tokens matter most.

    A stage is called while the draft is shorter than its `until`, which counts the tokens of all
    stages so far, and got longer by the last call. `greedy`: inner reviewers take the argmax and
    last drafters the most probable token at any target temperature, so drafts are one-hot.
    """

    stages: tuple[Stage, ...]
    greedy: bool = False

    @property
    def spec(self) -> Spec:
        specs = [stage.drafter.spec for stage in self.stages]
        reaches = (
            stage.until - 1 + spec.reach for stage, spec in zip(self.stages, specs, strict=True)
        )
        return Spec(
            width=self._width(),
            reach=max(reaches),
            calls=self._calls(),
            models=list_distinct(spec.models for spec in specs),
            resources=list_distinct(spec.resources for spec in specs),
            writers=list_distinct(spec.writers for spec in specs),
        )

    def _width(self) -> int:
        """The bound of docs/methods/cascade.md, which full calls reach but never pass.

        A reviewer may stop one token short of its stage's end. One full draft of any other
        drafter ends its stage.
        """
        most = 0
        for stage in self.stages:
            spec = stage.drafter.spec
            start = stage.until - 1 if spec.models else min(most, stage.until - 1)
            most = max(most, start + spec.width)
        return most

    def _calls(self) -> tuple[Call, ...]:
        """Calls of a draft of full calls; one call for models that only shorter drafts need."""
        calls, length = [], 0
        for stage in self.stages:
            spec = stage.drafter.spec
            count = -(-max(stage.until - length, 0) // spec.width)
            if not {call.model for call in spec.calls} <= {call.model for call in calls}:
                count = max(count, 1)
            calls += spec.calls * count
            length += spec.width * count
        return tuple(calls)

    @property
    def scored(self) -> bool:
        """Whether any stage returns scores."""
        return any(getattr(stage.drafter, "scored", False) for stage in self.stages)

    def begin(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[Memory, Caches]:
        memories = []
        for stage in self.stages:
            memory, caches = stage.drafter.begin(env, caches, context, prompt, keys)
            memories.append(memory)
        return tuple(memories), caches

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        if self.greedy:
            context = context.replace(
                options=context.options.replace(sampling=Sampling(greedy=True))
            )
        spec = self.spec
        eos = list_distinct(env[name].info.eos for name in spec.models) or env.target.info.eos
        progress = self._empty(env, caches, memory, context)
        for index, stage in enumerate(self.stages):

            def call(p: _Progress, index: int = index, stage: Stage = stage) -> _Progress:
                left = jnp.where(p.going, context.most - (p.length - context.length), 0)
                inside = context.replace(
                    tokens=p.tokens,
                    length=p.length,
                    active=p.going,
                    most=_useful_tokens(stage.drafter, left),
                )
                draft, after, own, log = stage.drafter.propose(
                    env, p.caches, p.memories[index], inside, fold_keys(keys, p.length)
                )
                memories = (*p.memories[:index], own, *p.memories[index + 1 :])
                p = p.replace(memories=memories)
                return self._append_draft(p, stage, draft.cut(left, eos), after, log, context, eos)

            progress = progress.replace(going=_open(progress, context, stage))
            progress = jax.lax.while_loop(lambda p: jnp.any(p.going), call, progress)
        tokens = slice_window(progress.tokens, context.length, spec.width)
        draft = Draft.chain(
            tokens,
            progress.length - context.length,
            None if progress.probs is None else Categorical(progress.probs),
            drafted_by=progress.drafted_by,
            aux=None if progress.score is None else {SCORE: progress.score},
        )
        return draft, {**caches, **progress.caches}, progress.memories, count_calls(progress.runs)

    def _empty(self, env: Env, caches: Caches, memory: Memory, context: Context) -> _Progress:
        spec, rows = self.spec, context.length.shape[0]
        drafted = rows, spec.width
        probs = None
        if spec.models and not context.options.sampling.greedy:
            probs = jnp.zeros((*drafted, env.target.info.vocab_size), jnp.float32)
        return _Progress(
            tokens=context.tokens,
            length=context.length,
            going=context.active,
            ended=jnp.zeros((rows,), bool),
            probs=probs,
            score=jnp.zeros(drafted, jnp.float32) if self.scored else None,
            drafted_by=jnp.zeros(drafted, jnp.int32),
            runs={part: jnp.zeros((rows,), jnp.int32) for part in list_parts(spec.calls)},
            caches={name: caches[name] for name in spec.models},
            memories=memory,
        )

    def _append_draft(
        self,
        p: _Progress,
        stage: Stage,
        draft: Draft,
        after: Caches,
        log: Log,
        context: Context,
        eos: tuple[int, ...],
    ) -> _Progress:
        """Appends the draft of one call; rows without new tokens leave the stage."""
        count, place = draft.length, p.length - context.length
        length, writers = p.length + count, self.spec.writers
        writer = jnp.array([writers.index(name) for name in stage.drafter.spec.writers])
        extended = p.replace(
            tokens=append(p.tokens, p.length, draft.tokens, count),
            length=length,
            ended=p.ended | ends_with_eos(draft.tokens, count, eos),
            drafted_by=append(p.drafted_by, place, writer[draft.drafted_by], count),
            runs={part: runs + log.get(CALLS + part, 0) for part, runs in p.runs.items()},
            caches=rewind(after, p.caches, length, p.going),
        )
        if p.probs is not None:
            probs = draft.distribution.categorical(p.probs.shape[-1]).probs
            extended = extended.replace(probs=append(p.probs, place, probs, count))
        if p.score is not None:
            never = jnp.full(draft.tokens.shape, jnp.inf)
            score = (draft.aux or {}).get(SCORE, never)
            extended = extended.replace(score=append(p.score, place, score, count))
        return extended.replace(going=p.going & (count > 0) & _open(extended, context, stage))


def _open(p: _Progress, context: Context, stage: Stage) -> jax.Array:
    """Rows [B] that a stage may still extend."""
    drafted = p.length - context.length
    return context.active & ~p.ended & (drafted < jnp.minimum(context.most, stage.until))


def _useful_tokens(drafter: Drafter, most: jax.Array) -> jax.Array:
    """Tokens [B] that an inner drafter may draft."""
    return jnp.minimum(most, drafter.spec.longest)


def _check_whole(drafter: Drafter) -> None:
    """Refuses early exits: they draft on the target's cache, which has no tentative tokens."""
    if any(call.exit is not None for call in drafter.spec.calls):
        raise ValueError(f"{drafter} is an early exit, which cannot draft inside a cascade")
