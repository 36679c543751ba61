"""Registries of classes by config name: one file, one class, one registration.

Drafters, rules, objectives, tasks, ... each have a registry. Its entries are the classes of a
package's modules, which are imported at the first look-up.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T", bound=type)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered class."""

    name: str
    cls: type
    example: Mapping[str, Any]  # field values of a useful instance

    @property
    def summary(self) -> str:
        """The first line of its docstring, or an empty text."""
        return (self.cls.__doc__ or "").strip().partition("\n")[0]


_OWN = __name__.partition(".")[0]
"""The package whose modules registries import themselves."""


def _locate(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


class Registry(Mapping[str, Entry]):
    """Entries by name; `kind` names one entry, `package` holds the classes.

    `shown` lists class attributes that help and the tables of the docs include.
    """

    def __init__(self, kind: str, package: str, *, shown: tuple[str, ...] = ()) -> None:
        self.kind, self.package, self.shown = kind, package, shown
        self._entries: dict[str, Entry] = {}
        self._complete = False

    def register(self, name: str, *, example: Mapping[str, Any] | None = None) -> Callable[[T], T]:
        """Registers a class as `name`; a redefinition of the same class replaces it.

        Raises:
          ValueError: if another class has the name.
        """

        def add_entry(cls: T) -> T:
            if not cls.__module__.startswith(f"{_OWN}."):
                self._all()  # a clash with a built-in name fails here, not later
            known = self._entries.get(name)
            if known is not None and _locate(known.cls) != _locate(cls):
                raise ValueError(f"{self.kind} {name!r} is registered already, as {known.cls}")
            self._entries[name] = Entry(name, cls, example or {})
            return cls

        return add_entry

    def __getitem__(self, name: str) -> Entry:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def get_name(self, cls: type) -> str:
        """Returns the name of a class."""
        return next(entry.name for entry in self._all().values() if entry.cls is cls)

    def _all(self) -> dict[str, Entry]:
        if not self._complete:
            self._complete = True  # set first: a module may look up its neighbors
            try:
                package = importlib.import_module(self.package)
                for module in pkgutil.iter_modules(package.__path__):
                    importlib.import_module(f"{self.package}.{module.name}")
            except BaseException:
                self._complete = False  # the next look-up must fail too, not miss entries
                raise
        return self._entries


DRAFTERS = Registry("drafter", "specjax.drafting")
READERS = Registry("reader", "specjax.verification")
RULES = Registry("rule", "specjax.verification")
PROCESSORS = Registry("setting", "specjax.logits")
OBJECTIVES = Registry("objective", "specjax.training.objectives", shown=("needs_teacher",))
TASKS = Registry("task", "specjax.data.tasks", shown=("metric", "reads", "source"))
METRICS = Registry("metric", "specjax.metrics.quality", shown=("scores",))
FAMILIES = Registry("model_type", "specjax.hf.families")
