"""TPU chips, as the system architecture pages of Google Cloud's TPU documentation give them."""

from __future__ import annotations

import dataclasses

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """What a chip can hold and do; a chip is one device of JAX."""

    memory: int  # bytes of HBM
    bandwidth: float  # bytes per second of HBM
    flops: float  # bfloat16 operations per second
    axes: int  # of its topologies
    megacore: bool = False  # its two cores are one device only when libtpu is told so

    def seconds(self, moved: float, operations: float) -> float:
        """The least time that moving so many bytes and doing so many operations takes."""
        return max(moved / self.bandwidth, operations / self.flops)


CHIPS = {
    "v4": Chip(32 * GIB, 1200e9, 275e12, axes=3, megacore=True),
    "v5e": Chip(16 * GIB, 819e9, 197e12, axes=2),
    "v5p": Chip(95 * GIB, 2765e9, 459e12, axes=3),
    "v6e": Chip(32 * GIB, 1640e9, 918e12, axes=2),
}
"""By the names that topologies begin with."""
