"""The fields of jobs, drafters, rules, objectives, ...: each dataclass is the schema of its config.

A field declares its kind, bounds and help; from these come the checks of configs, `--help` and the
tables of the docs. A *traced* field is a number that may be swept without recompiling: the
dataclass then holds the name of an entry of `Options.numbers`, the number itself is passed along.
A *group* is a field with fields of its own, a *mapping* one whose members the config names.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

REQUIRED = dataclasses.MISSING
"""Default of a field that must be given."""

Number = float | tuple[float, ...]

LARGEST = 2**31 - 1
"""No integer is larger: what 32 bits hold."""

MOST_DRAFTED = 1000
"""Tokens of a draft at most: all are verified, and of so many hardly any are kept."""

KINDS = {float: numbers.Real, int: numbers.Integral}
"""What values count as a kind: numpy's, too."""

HEADS, CORPUS = RESERVED = ("heads", "corpus")
"""Names of parameter trees that are no counts: parallel heads, earlier texts."""

_GROUP = "a group of fields"

KEY = "config_field"
"""Where the metadata of a dataclass's field keeps its `ConfigField`."""


@dataclasses.dataclass(frozen=True)
class ConfigField:
    """What a config may say of a field."""

    kind: type  # dict: a group or a mapping
    words: str  # what is allowed
    fits: Callable[[Any], bool]
    help: str
    default: Any = REQUIRED  # of a group: what differs from the defaults of its fields
    traced: bool = False
    optional: bool = False  # from Python it may be None
    known: Collection[str] = ()  # of a choice
    of: type | Callable[[], Mapping[str, ConfigField]] | None = None  # the fields of a group
    without: Collection[str] = ()  # those of them that it has not
    members: ConfigField | None = None  # of a mapping: what each value is; None: anything
    open: bool = False  # whether any flag may add a name to it
    partial: bool = False  # whether fields of a group may be left out

    @property
    def allowed(self) -> str:
        """For the sentence "x is ...; it must be <allowed>"."""
        if not self.known:
            return self.words
        return f"one of {', '.join(self.known)}" + ", or empty" * (self.default == "")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def inner(self) -> Mapping[str, ConfigField]:
        """The fields of a group; none of anything else."""
        if self.of is None:
            return {}
        every = config_fields(self.of) if isinstance(self.of, type) else self.of()
        return {name: field for name, field in every.items() if name not in self.without}

    @property
    def stand_in(self) -> Any:
        """The default, or a placeholder of the kind."""
        return self.kind() if self.required else self.default

    def value(self, where: str, value: Any) -> Any:
        """The value as the dataclass wants it.

        Raises:
          ValueError: one sentence that names the field, the value and what is allowed.
        """
        value = make_hashable(value)
        if value == "inf" and self.kind is float:  # JSON has no number for it
            value = float("inf")
        fits = isinstance(value, KINDS.get(self.kind, self.kind))
        fits &= isinstance(value, bool) == (self.kind is bool)
        if not (fits and self.fits(value)):
            allowed = self.allowed
            if is_integer(value) and "at most" not in allowed and int(value) > LARGEST:
                allowed = f"an integer of at most {LARGEST:,}"
            raise ValueError(f"{where} is {format_value(value)}; it must be {allowed}")
        return self.kind(value)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer, which True and False are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def format_value(value: Any) -> str:
    """A value in a sentence; Python does not print integers of thousands of digits."""
    bits = int(value).bit_length() if is_integer(value) else 0
    return repr(value) if bits < 128 else f"an integer of {bits} bits"


def make_hashable(value: Any) -> Any:
    """The value with all its lists as tuples."""
    return tuple(map(make_hashable, value)) if isinstance(value, (list, tuple)) else value


def integer(
    default: Any = REQUIRED,
    *,
    least: int = 1,
    most: int | None = None,
    traced: str = "",
    help: str,
) -> Any:
    """An integer of at least `least`, and at most `most`; `traced` as of a `number`."""
    allowed = f"an integer of at least {least}" if most is None else describe_bounds(least, most)
    fits = lambda x: least <= x <= (most or LARGEST)  # noqa: E731
    return _field(ConfigField(int, allowed, fits, help, default, bool(traced)), traced)


def describe_bounds(least: int, most: int) -> str:
    """The words for integers within bounds."""
    return f"an integer of at least {least} and at most {most:,}"


def draft_length(default: Any = REQUIRED, *, help: str) -> Any:
    """How many tokens a draft has at most."""
    return integer(default, most=MOST_DRAFTED, help=help)


def number(default: Any = REQUIRED, *, bounds: str, traced: str = "", help: str) -> Any:
    """A number within `bounds`, written as an interval: "[0, 1]", "(0, inf)", "[0, inf]".

    `traced` is the name of its option, which must be the field's own.
    """
    fits, allowed = interval(bounds)
    return _field(ConfigField(float, allowed, fits, help, default, bool(traced)), traced)


def flag(default: bool = False, *, help: str) -> Any:
    """True or False."""
    return _field(ConfigField(bool, "True or False", lambda x: True, help, default))


def choice(known: Collection[str], default: Any = REQUIRED, *, help: str) -> Any:
    """One of some words; of a registry, which is read when a value is checked, one of its names."""
    return _field(ConfigField(str, "", known.__contains__, help, default, known=known))


def text(default: str = "", *, allowed: str = "text", help: str) -> Any:
    """Any text."""
    return _field(ConfigField(str, allowed, lambda x: True, help, default))


def group(
    known: type | Callable[[], Mapping[str, ConfigField]],
    *,
    without: Collection[str] = (),
    partial: bool = False,
    help: str = "",
    **changes: Any,
) -> Any:
    """A group with the fields of a dataclass but for some, `changes` to their defaults."""
    more = {"of": known, "without": without, "partial": partial}
    help = help or (known.__doc__ or "").partition("\n")[0]
    return _field(ConfigField(dict, _GROUP, lambda x: True, help, changes, **more))


def mapping(members: Any = None, *, open: bool = False, help: str) -> Any:
    """A group whose names the config gives, if it is `open` any flag.

    `members` is the field that each value is; None: anything.
    """
    more = {"members": members and members.metadata[KEY], "open": open}
    return _field(ConfigField(dict, _GROUP, lambda x: True, help, {}, **more))


def remove_field() -> Any:
    """Takes away a field of a base class."""
    return dataclasses.field(default=None)


def name(default: Any = REQUIRED, *, but: str = "", optional: bool = False, help: str) -> Any:
    """A name, of a model or a parameter tree."""
    allowed = f"a name other than {but!r}" if but else "a name"
    fits = lambda x: x not in ("", but)  # noqa: E731
    return _field(ConfigField(str, allowed, fits, help, default, optional=optional))


def counts(*, optional: bool = False) -> Any:
    """The name of a table of counts."""
    but, text = tuple(map(repr, RESERVED)), "name of the fitted counts"
    allowed = f"a name other than {' and '.join(but)}"
    fits = lambda x: x not in ("", *RESERVED)  # noqa: E731
    return _field(ConfigField(str, allowed, fits, text, "ngram", optional=optional))


def listing(
    allowed: str,
    fits: Callable[[Any], bool],
    default: Any = REQUIRED,
    *,
    some: bool = False,
    help: str,
) -> Any:
    """A list whose entries all fit; `some`: with at least one."""
    all_fit = lambda x: (bool(x) or not some) and all(map(fits, x))  # noqa: E731
    return whole(allowed, all_fit, default, help=help)


def names(*, help: str) -> Any:
    """A list of names, empty by default."""
    return listing("a list of names", lambda x: isinstance(x, str), (), help=help)


def whole(allowed: str, fits: Callable[[Any], bool], default: Any = REQUIRED, *, help: str) -> Any:
    """A list that fits as a whole."""
    return _field(ConfigField(tuple, allowed, fits, help, default))


def tokens(*, help: str) -> Any:
    """A list of token ids, at least one."""
    allowed = "a list of token ids, integers of at least 0"
    return listing(allowed, is_token, help=help, some=True)


def is_token(x: Any) -> bool:
    """Whether it is an integer of at least 0."""
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def is_number(x: Any) -> bool:
    """Whether it is a finite number of at least 0."""
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0.0 <= x < float("inf")


def is_positive(x: Any) -> bool:
    """Whether it is an integer of at least 1."""
    return isinstance(x, int) and not isinstance(x, bool) and x >= 1


def interval(bounds: str) -> tuple[Callable[[float], bool], str]:
    """The test and the words of an interval."""
    low, high = (float(end) for end in bounds[1:-1].split(","))
    open_low, open_high = bounds[0] == "(", bounds[-1] == ")"

    def fits(x: float) -> bool:
        above = x > low if open_low else x >= low
        return above and (x < high if open_high else x <= high)

    if high < float("inf"):
        return fits, f"a number in {bounds}"
    if low == -high:
        return fits, "a finite number"
    words = "a positive number" if open_low else f"a number of at least {low:g}"
    return fits, words if open_high else f"{words}, or 'inf'"


def config_fields(cls: type) -> dict[str, ConfigField]:
    """The fields of a class that a config may give, by name; one that is no dataclass has none.

    Not those that the class `lacks`, though what it inherits from has them.
    """
    fields, lacks = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else (), "lacks"
    known = {field.name: field.metadata[KEY] for field in fields if KEY in field.metadata}
    return {name: field for name, field in known.items() if name not in getattr(cls, lacks, ())}


def merge_fields(classes: Iterable[type]) -> dict[str, ConfigField]:
    """The fields of several dataclasses in one config, of which one class will be chosen.

    Raises:
      ValueError: when two of them have a field of one name that differs in default or kind.
    """
    known: dict[str, ConfigField] = {}
    for cls in classes:
        for name, field in config_fields(cls).items():
            other = known.setdefault(name, field)
            if (other.kind, other.stand_in) != (field.kind, field.stand_in):
                raise ValueError(f"{cls.__name__} has another default or kind of field {name!r}")
    return known


def check(part: Any) -> None:
    """Refuses an instance whose fields are not what its schema allows.

    Raises:
      ValueError: one sentence that names the field, the value and what is allowed.
    """
    for name, field in config_fields(type(part)).items():
        value = getattr(part, name)
        off = value is None and (field.optional or field.default is None)
        if not (field.traced or off):
            field.value(name, value)


def build(cls: type, values: dict[str, Any]) -> tuple[Any, dict[str, Number]]:
    """An instance from checked values by field, and the numbers of its traced fields."""
    known = config_fields(cls)
    plain = {name: value for name, value in values.items() if not known[name].traced}
    traced = {name: value for name, value in values.items() if known[name].traced}
    return cls(**plain, **{name: name for name in traced}), traced


def default_numbers(part: Any) -> dict[str, Number]:
    """What the traced fields of a dataclass, and of those inside of it, are by default."""
    traced: dict[str, Number] = {}
    for slot in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        field, value = slot.metadata.get(KEY), getattr(part, slot.name)
        if field is None or not field.traced:
            for inner in value if isinstance(value, tuple) else (value,):
                traced |= default_numbers(inner)
        elif value is not None and not field.required and field.default is not None:
            traced[value] = field.default
    return traced


def _field(field: ConfigField, traced: str = "") -> Any:
    """The dataclass field; one that is traced holds its option's name unless it is off (None)."""
    metadata = {KEY: field}
    if field.traced and field.default is not None:
        return dataclasses.field(default=traced, metadata=metadata)
    if field.required or field.kind is dict:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=field.default, metadata=metadata)
