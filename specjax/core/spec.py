"""What is static about a drafter."""

from __future__ import annotations

import dataclasses

from specjax.core.calls import Call


@dataclasses.dataclass(frozen=True)
class Spec:
    """What is static about a drafter."""

    width: int  # most tokens it proposes
    reach: int = 0  # how far beyond the committed tokens it touches caches or buffers
    calls: tuple[Call, ...] = ()  # of a draft of full width, in their order
    models: tuple[str, ...] = ()  # whose caches it uses
    resources: tuple[str, ...] = ()  # parameter trees it reads that are no model's
    writers: tuple[str, ...] = ()  # who writes its tokens; `Draft.drafted_by` points into this
    rows: tuple[str, ...] = ()  # numbers per row that the caller must give (`Options.rows`)
    always: bool = False  # every draft has a token
    features: tuple[int, ...] = ()  # target layers whose states it wants to observe
    trees: bool = False  # its drafts have parents
    shared: bool = False  # nodes of a tree that hang on different ones share draws
    parents: tuple[int, ...] = ()  # of their nodes, where all drafts have the same
    levels: int = 0  # most nodes on a path, where drafts are trees
    fed: tuple[str, ...] = ()  # models, beside the target, that are fed nodes (`Draft.slots`)
    columns: tuple[str, ...] = ()  # numbers that it logs, beside `STOP` and the runs of its calls

    @property
    def longest(self) -> int:
        """Most drafted tokens that may stand."""
        return self.levels or self.width

    @property
    def touched(self) -> int:
        """Most slots, the pending token's first, that a round writes to."""
        return max(self.width, self.reach) + 1
