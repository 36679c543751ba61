"""TPU chips, from the system architecture pages of Google Cloud's TPU documentation.

For GPUs only the bandwidth, from NVIDIA's data sheets.
"""

from __future__ import annotations

import dataclasses

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """Memory, bandwidth and arithmetic of a chip, which is one device of JAX."""

    memory: int  # bytes of HBM
    bandwidth: float  # bytes per second of HBM
    flops: float  # bfloat16 operations per second
    axes: int  # of its topologies
    pod: int  # chips that are connected at most
    megacore: bool = False  # libtpu must be configured to use both cores as one device

    def seconds(self, moved: float, operations: float) -> float:
        """The least time for moving `size` bytes and doing `operations`."""
        return max(moved / self.bandwidth, operations / self.flops)


CHIPS = {
    "v4": Chip(32 * GIB, 1200e9, 275e12, axes=3, pod=4096, megacore=True),
    "v5e": Chip(16 * GIB, 819e9, 197e12, axes=2, pod=256),
    "v5p": Chip(95 * GIB, 2765e9, 459e12, axes=3, pod=8960),
    "v6e": Chip(32 * GIB, 1640e9, 918e12, axes=2, pod=256),
}
"""Chips by the prefix of a topology's name."""

TPU_KINDS = {
    "TPU v4": "v4",
    "TPU v5 lite": "v5e",
    "TPU v5e": "v5e",
    "TPU v5": "v5p",
    "TPU v5p": "v5p",
    "TPU v6 lite": "v6e",
    "TPU v6e": "v6e",
}
"""Chips by JAX's `device_kind`."""

GPU_BANDWIDTHS = {
    "NVIDIA H200": 4800e9,
    "NVIDIA GH200 480GB": 4000e9,
    "NVIDIA H100 80GB HBM3": 3350e9,
    "NVIDIA H100 NVL": 3938e9,
    "NVIDIA H100 PCIe": 2039e9,
    "NVIDIA A100-SXM4-80GB": 2039e9,
    "NVIDIA A100 80GB PCIe": 1935e9,
    "NVIDIA A100-SXM4-40GB": 1555e9,
    "NVIDIA A100-PCIE-40GB": 1555e9,
    "NVIDIA L40S": 864e9,
    "NVIDIA L4": 300e9,
    "Tesla V100-SXM2-16GB": 900e9,
    "Tesla V100-SXM2-32GB": 900e9,
    "Tesla T4": 320e9,
}
"""Bytes per second of device memory by `device_kind`; a part of a card (MIG) has another name."""


def get_bandwidth(device_kind: str) -> float | None:
    """Memory bandwidth (bytes per second) of a JAX device; None if unknown."""
    if device_kind in TPU_KINDS:
        return CHIPS[TPU_KINDS[device_kind]].bandwidth
    return GPU_BANDWIDTHS.get(device_kind)
