"""`--dry_run` of a decode on a TPU topology: every strategy compiled, audited and predicted."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from specjax.accelerators.chips import GIB
from specjax.accelerators.predict import Round, Share, build_round, free_tokens, speedup
from specjax.accelerators.program import Audit, WeightReads, audit_program, measure_memory
from specjax.accelerators.topology import Topology, describe_topology
from specjax.contracts.rows import ROUNDS
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.fields import checkpoint_dtype
from specjax.experiments.config.footprint import ModelPlan, expert_itemsize
from specjax.experiments.config.placement import get_part, get_ways
from specjax.experiments.config.schema import FILLED
from specjax.experiments.config.topology import memory_refusal, show_topology
from specjax.experiments.decode.acceptance import acceptances
from specjax.experiments.decode.planning import Plan
from specjax.experiments.decode.programs import lowered_decode, lowered_filling
from specjax.experiments.decode.results import find_baseline
from specjax.measuring.walltime import can_be_priced
from specjax.parallel.mesh import axis_sizes
from specjax.reporting.table import align_columns, cell
from specjax.theory.speculative import expected_tokens

Column = tuple[str, tuple[str, ...], float, str]
"""Heading, path in a strategy's entry of plan.json, unit (0: not a number), format."""

COLUMNS: tuple[Column, ...] = (
    ("args GiB", ("memory", "arguments"), GIB, ".2f"),
    ("temp GiB", ("memory", "temporaries"), GIB, ".2f"),
    ("fits", ("fits",), 0, "s"),
    ("compile s", ("compile_seconds",), 1, ".0f"),
    ("copied before MB", ("copied", "before"), 1e6, ".1f"),
    ("in a round", ("copied", "round"), 1e6, ".1f"),
    ("collectives", ("collectives",), 0, "s"),
    ("read MB", ("round", "bytes"), 1e6, ",.0f"),
    ("ms", ("round", "ms"), 1, ".2f"),
    ("free tokens", ("round", "free_tokens"), 1, ",.0f"),
    ("accepted", ("acceptance",), 1, ".2f"),
    ("tokens", ("tokens_per_round",), 1, ".2f"),
    ("speedup", ("speedup",), 1, ".2f"),
)

ALIASED: Column = ("aliased GiB", ("memory", "aliased"), GIB, ".2f")
"""What a program writes in place of its arguments, as those of slots do."""


def plan_on_topology(plan: Plan, plans: Mapping[str, ModelPlan]) -> dict[str, Any]:
    """Compiles all strategies for `config.topology`; prints a table; returns plan.json's content.

    Raises:
      UserError: when topology, mesh or acceptance cannot be used.
    """
    config, strategies = plan.config, plan.strategies
    rates = acceptances(config.acceptance, strategies)
    topology = describe_topology(config.topology)
    mesh = topology.mesh(config.mesh.to_dict(), get_part(config))
    show_topology(topology)
    entries: dict[str, dict[str, Any]] = {}
    for name in strategies:
        print(f"compiling {name}", flush=True)
        entries[name] = compile_strategy(plan, name, mesh, plans, topology)
    for name, entry in entries.items():
        entry |= prediction(name, entries, strategies, rates)
    print(table(entries))
    return {
        "topology": topology.name,
        "devices": len(topology.devices),
        "chip": dataclasses.asdict(topology.chip),
        "config": config.to_dict(),
        "settings": dict(plan.settings.settings),
        "strategies": entries,
    }


def compile_strategy(
    plan: Plan, name: str, mesh: Mesh, plans: Mapping[str, ModelPlan], topology: Topology
) -> dict[str, Any]:
    """The compiler's report of a strategy's decode.

    Of slots that are refilled it is that of their rounds, with their other `programs` in it.
    """
    if plan.config.batching != FILLED:
        decoder, lowered = lowered_decode(plan, name, mesh)
        return decode_entry(plan, decoder, lowered, plans, topology)
    try:
        decoder, programs = lowered_filling(plan, name, mesh)
    except jax.errors.JaxRuntimeError as error:
        return memory_refusal(error)
    entry = decode_entry(plan, decoder, programs.pop(ROUNDS), plans, topology)
    others = {
        part: program_entry(decoder, lowered, plans, topology, rounds=False)[0]
        for part, lowered in programs.items()
    }
    return entry | {"programs": others}


def decode_entry(
    plan: Plan,
    decoder: Decoder,
    lowered: jax.stages.Lowered,
    plans: Mapping[str, ModelPlan],
    topology: Topology,
) -> dict[str, Any]:
    """The report of a program with rounds: that of any program, and a round's reads."""
    entry, audit = program_entry(decoder, lowered, plans, topology, rounds=True)
    if audit is None:
        return entry
    return entry | {
        "loops_in_a_round": audit.loops,
        "weights": {tree: dataclasses.asdict(reads) for tree, reads in audit.weights.items()},
        "round": round_entry(plan, decoder, audit, plans, topology),
    }


def program_entry(
    decoder: Decoder,
    lowered: jax.stages.Lowered,
    plans: Mapping[str, ModelPlan],
    topology: Topology,
    *,
    rounds: bool,
) -> tuple[dict[str, Any], Audit | None]:
    """The report of a program, memory, copies and collectives, and its audit if it fits."""
    start = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        return memory_refusal(error), None
    seconds = time.perf_counter() - start
    memory = measure_memory(compiled)
    audit = audit_program(compiled.as_text() or "", rounds=rounds)
    other_bytes = sum(p.parameter_bytes for n, p in plans.items() if n not in decoder.used)
    return {
        "memory": dataclasses.asdict(memory) | {"other_models": other_bytes},
        "fits": memory.total + other_bytes <= topology.chip.memory,
        "compile_seconds": seconds,
        "copied": {
            "before": audit.count_copied_bytes(False),
            "round": audit.count_copied_bytes(True) if rounds else None,
        },
        "collectives": audit.collectives,
        "float32_products": audit.wide_products,
    }, audit


def round_entry(
    plan: Plan,
    decoder: Decoder,
    audit: Audit,
    plans: Mapping[str, ModelPlan],
    topology: Topology,
) -> dict[str, float] | None:
    """Bytes, operations, least time and free tokens of a round.

    Free tokens do not make a call longer. None if a round cannot be predicted.
    """
    if not can_be_priced(decoder):
        return None
    config = plan.config
    data, _ = axis_sizes(config.mesh.to_dict())
    dtype, nothing = checkpoint_dtype(config), WeightReads(0, 0)
    shares = {
        name: Share(
            dict(decoder.models)[name],
            audit.weights.get(name, nothing),
            plans[name].cache_bytes,
            get_ways(config, name),
            config.batch_size // data,
            expert_itemsize(plan.pair.members[name].params, dtype),
        )
        for name in decoder.used
    }
    spec = decoder.drafter.spec
    calls = (*spec.calls, decoder.reader.make_call(decoder.target, spec.width))
    cached = config.max_new_tokens
    if decoder.target_model.info.start_token is None:
        cached += config.max_prompt_tokens
    work = build_round(calls, shares, cached, config.max_prompt_tokens)
    more = sum(reads.count_bytes(1) for name, reads in audit.weights.items() if name not in shares)
    work = Round(work.bytes + more, work.operations)
    target, source = decoder.target, config.max_prompt_tokens
    return {
        "bytes": work.bytes,
        "operations": work.operations,
        "ms": work.seconds(topology.chip) * 1e3,
        "free_tokens": free_tokens(shares[target], target, topology.chip, cached, source),
    }


def prediction(
    name: str,
    entries: Mapping[str, Mapping[str, Any]],
    strategies: Mapping[str, Strategy],
    rates: Mapping[str, float],
) -> dict[str, Any]:
    """Predicted tokens of a round and speedup over the baseline, if acceptance is known."""
    baseline = find_baseline(strategies[name], dict(strategies))
    took, base = (entries[strategy].get("round") for strategy in (name, baseline))
    entry = {"acceptance": None, "tokens_per_round": None, "speedup": None, "baseline": baseline}
    spec = strategies[name].drafter.spec
    if name not in rates or not took or not base or spec.tree:
        return entry
    width = spec.width
    return entry | {
        "acceptance": rates[name],
        "tokens_per_round": float(expected_tokens(rates[name], width)),
        "speedup": speedup(rates[name], width, took["ms"], base["ms"]),
    }


def table(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """One line per strategy, and one for each of its other programs; figures of one device."""
    lines, columns = [], list(COLUMNS)
    for name, entry in entries.items():
        others = entry.get("programs", {})
        lines += [(name, entry), *((f"{name}: {part}", one) for part, one in others.items())]
    if len(lines) > len(entries):
        columns.insert(2, ALIASED)
    rows = [
        [name, *(_format_entry(entry, path, unit, form) for _, path, unit, form in columns)]
        for name, entry in lines
    ]
    return align_columns(["strategy", *(title for title, *_ in columns)], rows)


def _format_entry(entry: Mapping[str, Any], path: tuple[str, ...], unit: float, form: str) -> str:
    value: Any = entry
    for part in path:
        value = (value or {}).get(part)
    if isinstance(value, bool):
        value = "yes" if value else "no"
    elif isinstance(value, Mapping):
        value = ", ".join(f"{count} {kind}" for kind, count in value.items()) or "none"
    return cell(value / unit if unit and value is not None else value, form)
