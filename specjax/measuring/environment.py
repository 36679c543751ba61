"""Describes the machine and versions of a measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

import jax

PACKAGES = ("specjax", "jax", "jaxlib", "flax", "optax", "transformers", "numpy")


def environment() -> dict[str, Any]:
    """Device, processors and versions, for `results.json`."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.device_count(),
        "processes": jax.process_count(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
