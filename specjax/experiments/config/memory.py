"""Checks that a config fits into memory, before anything is loaded.

Counts only arrays that certainly exist at the same time. This is a lower bound, so no config is
refused that would have run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import jax
from ml_collections import ConfigDict

from specjax.accelerators.chips import GIB
from specjax.decoding.beams.state import BeamDecoder
from specjax.decoding.state import count_ahead
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.footprint import ModelPlan, plan_model
from specjax.experiments.config.placement import copies_target, get_ways, get_weights
from specjax.loading import LoadedModel
from specjax.models.attention import count_scores
from specjax.pair import Pair
from specjax.parallel.mesh import AXES, axis_sizes
from specjax.runtime.errors import UserError

_CGROUP = Path("/sys/fs/cgroup/memory.max")

FLOAT = 4
"""Bytes of a logit or of a score."""


def check_decode_memory(config: ConfigDict, pair: Pair, strategies: Mapping[str, Strategy]) -> None:
    """Refuses a decode whose weights, caches and logits do not fit on a device.

    Raises:
      UserError: with the required and the available bytes.
    """
    mesh: dict[str, int] = dict(zip(AXES, axis_sizes(config.mesh.to_dict()), strict=True))
    drafted = max(strategy.drafter.spec.width for strategy in strategies.values())
    fields = ("batch_size", "max_new_tokens", "bucket")
    given = ", ".join(f"config.{field} {config[field]:,}" for field in fields)
    given += f" and drafts of {drafted:,} tokens"
    rows = config.batch_size // mesh["data"]
    models = [entry.model for entry in pair.members.values()]
    bucket = max(config.bucket, 1)
    scores = [count_scores(bucket, model.info.start_token is None) for model in models]
    needed = {
        "logits": rows * (drafted + 1) * pair.vocab_size * FLOAT,
        "attention": rows * max(scores) * FLOAT,
    }
    check_bytes(needed, given)  # shapes that are far too large cannot be planned
    # A prompt takes at least one bucket; prompt lengths are not known yet.
    shortest = ConfigDict({**config.to_dict(), "max_prompt_tokens": bucket})
    capacity = config.max_new_tokens + drafted + 2
    ahead = max(count_ahead(strategy.drafter, strategy.reader) for strategy in strategies.values())
    plans = plan_models(pair, shortest, mesh, capacity, ahead).values()
    needed["weights"] = sum(plan.parameter_bytes for plan in plans)
    needed["caches"] = sum(plan.cache_bytes for plan in plans)
    check_bytes(needed, given)


def check_beam_memory(
    config: ConfigDict, models: Mapping[str, LoadedModel], decoders: Mapping[str, BeamDecoder]
) -> None:
    """Refuses beam searches whose weights, caches, masks and logits do not fit on a device.

    Raises:
      UserError: with the required and the available bytes.
    """
    rows = config.batch_size
    given = f"config.batch_size {rows:,}, config.max_new_tokens {config.max_new_tokens:,} and"
    for name, decoder in decoders.items():
        nodes, width = len(decoder.depth), decoder.target_model.info.vocab_size
        sizes = f"{given} strategies.{name} of {nodes:,} nodes a call"
        needed = {
            "logits": rows * nodes * width * FLOAT,
            "masks": rows * nodes * decoder.slots,
        }
        check_bytes(needed, sizes)  # shapes that are far too large cannot be planned
        shortest = ConfigDict({**config.to_dict(), "max_prompt_tokens": config.bucket})
        one: dict[str, int] = dict.fromkeys(AXES, 1)
        plans = {}
        for each, entry in models.items():
            plans[each] = plan_model(entry, shortest, one, decoder.slots, 1, None)
        needed["weights"] = sum(plan.parameter_bytes for plan in plans.values())
        needed["caches"] = sum(plans[each].cache_bytes for each in decoder.used)
        check_bytes(needed, sizes)


def plan_models(
    pair: Pair, config: ConfigDict, mesh: Mapping[str, int], capacity: int, ahead: int | None
) -> dict[str, ModelPlan]:
    """Memory of each model of a decode on a device, by name."""
    made = {}
    for name, entry in pair.members.items():
        weights, shares = get_weights(config, name), copies_target(config, name)
        placed = mesh, capacity, get_ways(config, name), ahead
        made[name] = plan_model(entry, config, *placed, weights, shares)
    return made


def check_bytes(needed: Mapping[str, int], given: str) -> None:
    """Refuses more bytes than a device has; `given` names the fields that set them.

    Raises:
      UserError: with both figures.
    """
    total, there = sum(needed.values()), device_bytes()
    if total > there:
        parts = ", ".join(f"{size / GIB:,.1f} of {name}" for name, size in needed.items())
        raise UserError(
            f"{given} do not fit: they need at least {total / GIB:,.1f} GiB on a device ({parts}),"
            f" which has {there / GIB:,.1f}"
        )


def device_bytes() -> int:
    """Memory of the first device; for a CPU of the machine or of its control group."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _CGROUP.read_text().strip() if _CGROUP.is_file() else ""
    return min(machine, int(limit)) if limit.isdigit() else machine
