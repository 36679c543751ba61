"""`--dry_run`: the resources of a decode experiment, computed from shapes alone.

Nothing is downloaded but small configuration files, nothing is allocated: programs are traced with
`jax.eval_shape` at full size.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from specjax.accelerators.chips import GIB
from specjax.batching.slots import count_together
from specjax.contracts.fields import CORPUS, HEADS
from specjax.data import corpus
from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder, check_resources, count_ahead
from specjax.decoding.strategy import DRAWN, Strategy
from specjax.experiments.config.choosing import selection_trees
from specjax.experiments.config.fields import checkpoint_dtype, heads_file
from specjax.experiments.config.footprint import ModelPlan, abstract_prompt
from specjax.experiments.config.generation import NOTHING, PlannedSettings, plan_settings
from specjax.experiments.config.memory import plan_models
from specjax.experiments.config.placement import get_ways, whole_words
from specjax.experiments.config.schema import FILLED
from specjax.experiments.decode.strategies import common_width, describe_cuts, select_specs
from specjax.experiments.pairs import describe_pair
from specjax.hf import heads
from specjax.pair import Pair
from specjax.parallel.mesh import AXES, DATA, axis_sizes
from specjax.parallel.sharding import Layout
from specjax.runtime.errors import UserError
from specjax.training.ngram import shapes as table_shapes


@dataclasses.dataclass(frozen=True)
class Plan:
    """A validated decode config and its models without weights."""

    config: ConfigDict
    strategies: Mapping[str, Strategy]
    pair: Pair  # with shapes for parameters
    settings: PlannedSettings = NOTHING

    @classmethod
    def from_config(cls, config: ConfigDict, strategies: Mapping[str, Strategy]) -> Plan:
        """The plan of these strategies on the checkpoints of the config.

        Raises:
          UserError: when a model or a setting cannot be used.
        """
        pair, settings = describe_pair(config), plan_settings(config)
        return cls(config, strategies, pair.with_guidance(settings.settings), settings)

    @property
    def invariant(self) -> int:
        """Tokens that every target call feeds; 0: as many as it needs."""
        return common_width(self.config, self.strategies)


def show_plan(plan: Plan) -> dict[str, ModelPlan]:
    """Prints models, memory per device, strategies and settings; returns the model plans.

    Raises:
      UserError: when a strategy does not fit the models.
    """
    config, strategies = plan.config, plan.strategies
    mesh: dict[str, int] = dict(zip(AXES, axis_sizes(config.mesh.to_dict()), strict=True))
    capacity = config.max_new_tokens + max(s.drafter.spec.width for s in strategies.values()) + 2
    ahead = max(count_ahead(s.drafter, s.reader) for s in strategies.values())
    plans = plan_models(plan.pair, config, mesh, capacity, ahead)
    for strategy in strategies.values():
        decoder, args = abstract_decode(plan, strategy)
        jax.eval_shape(functools.partial(generate, decoder), *args)
    show(config, mesh, plans, strategies)
    for line in (*plan.settings.lines, *filter(None, [plan.settings.note])):
        print(line)
    models = {name: entry.model for name, entry in plan.pair.members.items()}
    for name in (name for name, model in models.items() if model.info.borrows_encoder):
        print(f"{name}: its encoder is counted as the target's; a run compares their weights")
    for name, model in models.items():
        if line := whole_words(name, model, get_ways(config, name), remedy=True):
            print(line)
    return plans


def abstract_decode(
    plan: Plan, strategy: Strategy, layout: Layout | None = None
) -> tuple[Decoder, tuple[Any, ...]]:
    """The decoder of a strategy and the shapes of all other arguments of `generate`.

    Raises:
      UserError: when the strategy does not fit the models.
    """
    config, pair = plan.config, plan.pair
    try:
        decoder = strategy.decoder(
            tuple(pair.models.items()),
            config.max_new_tokens,
            layout=layout,
            invariant=plan.invariant,
        )
    except ValueError as error:
        raise UserError(f"strategy: {error}") from None
    target = pair.target.model
    tables: dict[str, Any] = dict.fromkeys(
        decoder.drafter.spec.resources, table_shapes(pair.vocab_size)
    )
    tables |= selection_trees({"": strategy}, target)
    if HEADS in tables:
        tables[HEADS] = heads.shapes(heads_file(config), checkpoint_dtype(config))
    if CORPUS in tables:
        tables[CORPUS] = corpus.shapes(config.corpus_tokens)
    params = pair.params((*decoder.used, *tables), tables)
    check_resources(decoder, params)
    rows = (config.batch_size,)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), config.batch_size))
    limit = jax.ShapeDtypeStruct(rows, jnp.int32)
    options = plan.settings.apply_settings(strategy.options(), target)
    choice = decoder.drafter.choice
    options = options.replace(rows=dict.fromkeys(choice.rows if choice else (), limit))
    return decoder, (params, *abstract_prompt(config, target), keys, limit, options)


def show(
    config: ConfigDict,
    mesh: Mapping[str, int],
    plans: Mapping[str, ModelPlan],
    strategies: Mapping[str, Strategy],
) -> None:
    """Prints the plan."""
    count = math.prod(mesh.values())
    print(f"mesh: data {mesh['data']} x model {mesh['model']} = {count} device(s)")
    rows = f"batch {config.batch_size}"
    if config.get("batching") == FILLED:
        together = count_together(mesh[DATA], config.batch_size)
        rows = f"{config.batch_size} slots that take {together} prompt(s) at a time"
    print(
        f"{rows}, prompts up to {config.max_prompt_tokens} tokens, up to"
        f" {config.max_new_tokens} new ones, {config.dtype}"
    )
    print(f"{'model':14}{'checkpoint':34}{'parameters':>16}{'weights GiB':>13}{'cache GiB':>11}")
    for name, plan in plans.items():
        weights, cache = plan.parameter_bytes / GIB, plan.cache_bytes / GIB
        print(f"{name:13} {plan.checkpoint:33} {plan.parameters:16,}{weights:13.3f}{cache:11.3f}")
    total = sum(plan.parameter_bytes + plan.cache_bytes for plan in plans.values())
    print(f"per device: {total / GIB:.2f} GiB of weights and caches ({total:,} bytes)")
    print("strategies:")
    specs = select_specs(config)
    for name, strategy in strategies.items():
        print(f"  {name}: {describe_strategy(specs.get(name, {}))}; {sampling_words(strategy)}")


def describe_strategy(spec: Mapping[str, Any]) -> str:
    """Lists a strategy's fields as in its config, drafter first, without sampling fields."""
    given = {"drafter": "none", **spec}
    return ", ".join(f"{name}={value}" for name, value in given.items() if name not in DRAWN)


def sampling_words(strategy: Strategy) -> str:
    if strategy.greedy:
        return "greedy"
    temperature, top_k, top_p, *_ = strategy.settings
    words = f"temperature {temperature:g}", f"top-k {top_k or 'off'}", f"top-p {top_p:g}"
    return ", ".join([*words, *describe_cuts(strategy.settings)])
