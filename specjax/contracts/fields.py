"""Config fields of jobs, drafters, rules, objectives, ...: each dataclass is a config schema.

A field declares its type, bounds and help; config checks, `--help` and the tables of the docs use
these declarations. A *traced* field is a number that changes without recompilation: the dataclass
then holds the name of an entry of `Options.numbers`, which holds the number. A *group* is a field
with fields of its own, a *mapping* a group whose member names the config chooses.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

REQUIRED = dataclasses.MISSING
"""Default of a required field."""

Number = float | tuple[float, ...]

LARGEST = 2**31 - 1
"""Largest integer of 32 bits."""

MOST_DRAFTED = 1000
"""Most tokens of a draft: of longer drafts hardly any further token is accepted."""

KINDS = {float: numbers.Real, int: numbers.Integral}
"""Accepted types of numbers, numpy's included."""

HEADS, CORPUS = RESERVED = ("heads", "corpus")
"""Names of parameter trees other than n-gram counts: draft heads, reference texts."""

_GROUP = "a group of fields"

KEY = "config_field"
"""Key of the `ConfigField` in a dataclass field's metadata."""


@dataclasses.dataclass(frozen=True)
class ConfigField:
    """Type, default, bounds and help of a field."""

    kind: type  # dict: a group or a mapping
    words: str  # allowed values, in words
    fits: Callable[[Any], bool]
    help: str
    default: Any = REQUIRED  # of a group: overrides of its fields' defaults
    traced: bool = False
    optional: bool = False  # None is allowed from Python
    known: Collection[str] = ()  # allowed values of a choice
    of: type | Callable[[], Mapping[str, ConfigField]] | None = None  # the fields of a group
    without: Collection[str] = ()  # excluded fields of a group
    members: ConfigField | None = None  # of a mapping: the field of each value; None: any value
    open: bool = False  # whether any flag may add a member
    partial: bool = False  # whether a group's fields may be omitted

    @property
    def allowed(self) -> str:
        """Allowed values in words, for "x is ...; it must be <allowed>"."""
        if not self.known:
            return self.words
        return f"one of {', '.join(self.known)}" + ", or empty" * (self.default == "")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def inner(self) -> Mapping[str, ConfigField]:
        """The fields of a group; empty for any other kind."""
        if self.of is None:
            return {}
        every = get_config_fields(self.of) if isinstance(self.of, type) else self.of()
        return {name: field for name, field in every.items() if name not in self.without}

    @property
    def stand_in(self) -> Any:
        """The default, or an empty value of the type if the field is required."""
        return self.kind() if self.required else self.default

    def value(self, where: str, value: Any) -> Any:
        """Validates a value and converts it for the dataclass.

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
    """Returns whether a value is an integer; bools are not."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def format_value(value: Any) -> str:
    """Formats a value for a message; huge integers by their number of bits."""
    bits = int(value).bit_length() if is_integer(value) else 0
    return repr(value) if bits < 128 else f"an integer of {bits} bits"


def make_hashable(value: Any) -> Any:
    """Converts all lists in a value into tuples."""
    return tuple(map(make_hashable, value)) if isinstance(value, (list, tuple)) else value


def integer(
    default: Any = REQUIRED,
    *,
    least: int = 1,
    most: int | None = None,
    traced: str = "",
    help: str,
) -> Any:
    """Declares an integer of at least `least` and at most `most`; `traced` as in `number`."""
    allowed = f"an integer of at least {least}" if most is None else describe_bounds(least, most)
    fits = lambda x: least <= x <= (most or LARGEST)  # noqa: E731
    return _field(ConfigField(int, allowed, fits, help, default, bool(traced)), traced)


def describe_bounds(least: int, most: int) -> str:
    """Describes integers within bounds in words."""
    return f"an integer of at least {least} and at most {most:,}"


def draft_length(default: Any = REQUIRED, *, help: str) -> Any:
    """Declares the maximum number of drafted tokens."""
    return integer(default, most=MOST_DRAFTED, help=help)


def number(default: Any = REQUIRED, *, bounds: str, traced: str = "", help: str) -> Any:
    """Declares a number within an interval: "[0, 1]", "(0, inf)", "[0, inf]".

    `traced` is the name of its option, which must equal the field's name.
    """
    fits, allowed = parse_interval(bounds)
    return _field(ConfigField(float, allowed, fits, help, default, bool(traced)), traced)


def flag(default: bool = False, *, help: str) -> Any:
    """Declares a flag, True or False."""
    return _field(ConfigField(bool, "True or False", lambda x: True, help, default))


def choice(known: Collection[str], default: Any = REQUIRED, *, help: str) -> Any:
    """Declares a choice among words, or names of a registry, looked up when checked."""
    return _field(ConfigField(str, "", known.__contains__, help, default, known=known))


def text(default: str = "", *, allowed: str = "text", help: str) -> Any:
    """Declares a text."""
    return _field(ConfigField(str, allowed, lambda x: True, help, default))


def group(
    known: type | Callable[[], Mapping[str, ConfigField]],
    *,
    without: Collection[str] = (),
    partial: bool = False,
    help: str = "",
    **changes: Any,
) -> Any:
    """Declares a group with a dataclass's fields, some excluded or with changed defaults."""
    more = {"of": known, "without": without, "partial": partial}
    help = help or (known.__doc__ or "").partition("\n")[0]
    return _field(ConfigField(dict, _GROUP, lambda x: True, help, changes, **more))


def mapping(members: Any = None, *, open: bool = False, help: str) -> Any:
    """Declares a group with member names from the config, or from any flag if `open`.

    `members` is the field of each value; None: any value.
    """
    more = {"members": members and members.metadata[KEY], "open": open}
    return _field(ConfigField(dict, _GROUP, lambda x: True, help, {}, **more))


def remove_field() -> Any:
    """Removes a field of a base class."""
    return dataclasses.field(default=None)


def name(default: Any = REQUIRED, *, but: str = "", optional: bool = False, help: str) -> Any:
    """Declares the name of a model or parameter tree."""
    allowed = f"a name other than {but!r}" if but else "a name"
    fits = lambda x: x not in ("", but)  # noqa: E731
    return _field(ConfigField(str, allowed, fits, help, default, optional=optional))


def counts(*, optional: bool = False) -> Any:
    """Declares the name of a table of n-gram counts."""
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
    traced: str = "",
    help: str,
) -> Any:
    """Declares a list with a check of each entry; `some`: not empty; `traced` as in `number`."""
    all_fit = lambda x: (bool(x) or not some) and all(map(fits, x))  # noqa: E731
    return whole(allowed, all_fit, default, traced=traced, help=help)


def names(*, help: str) -> Any:
    """Declares a list of names, empty by default."""
    return listing("a list of names", lambda x: isinstance(x, str), (), help=help)


def whole(
    allowed: str,
    fits: Callable[[Any], bool],
    default: Any = REQUIRED,
    *,
    traced: str = "",
    help: str,
) -> Any:
    """Declares a list with a check of the whole list; `traced` as in `number`."""
    return _field(ConfigField(tuple, allowed, fits, help, default, bool(traced)), traced)


def tokens(*, help: str) -> Any:
    """Declares a list of at least one token id."""
    allowed = "a list of token ids, integers of at least 0"
    return listing(allowed, is_token, help=help, some=True)


def is_token(x: Any) -> bool:
    """Returns whether x is an integer of at least 0."""
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def is_number(x: Any) -> bool:
    """Returns whether x is a finite number of at least 0."""
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0.0 <= x < float("inf")


def is_positive(x: Any) -> bool:
    """Returns whether x is an integer of at least 1."""
    return isinstance(x, int) and not isinstance(x, bool) and x >= 1


def parse_interval(bounds: str) -> tuple[Callable[[float], bool], str]:
    """Parses an interval into a test and its description in words."""
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


def get_config_fields(cls: type) -> dict[str, ConfigField]:
    """Returns the config fields of a dataclass by name; none of any other class.

    Inherited fields that the class `lacks` are left out.
    """
    fields, lacks = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else (), "lacks"
    known = {field.name: field.metadata[KEY] for field in fields if KEY in field.metadata}
    return {name: field for name, field in known.items() if name not in getattr(cls, lacks, ())}


def merge_fields(classes: Iterable[type]) -> dict[str, ConfigField]:
    """Merges the config fields of alternative dataclasses.

    Raises:
      ValueError: if two of them have a field of one name with different defaults or types.
    """
    known: dict[str, ConfigField] = {}
    for cls in classes:
        for name, field in get_config_fields(cls).items():
            other = known.setdefault(name, field)
            if (other.kind, other.stand_in) != (field.kind, field.stand_in):
                raise ValueError(f"{cls.__name__} has another default or kind of field {name!r}")
    return known


def check(part: Any) -> None:
    """Checks an instance's fields against its schema.

    Raises:
      ValueError: one sentence that names the field, the value and what is allowed.
    """
    for name, field in get_config_fields(type(part)).items():
        value = getattr(part, name)
        off = value is None and (field.optional or field.default is None)
        if not (field.traced or off):
            field.value(name, value)


def build(cls: type, values: dict[str, Any]) -> tuple[Any, dict[str, Number]]:
    """Builds an instance from checked values; also returns the numbers of traced fields."""
    known = get_config_fields(cls)
    plain = {name: value for name, value in values.items() if not known[name].traced}
    traced = {name: value for name, value in values.items() if known[name].traced}
    return cls(**plain, **{name: name for name in traced}), traced


def collect_default_numbers(part: Any) -> dict[str, Number]:
    """Collects defaults of the traced fields of a dataclass and its nested dataclasses."""
    traced: dict[str, Number] = {}
    for slot in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        field, value = slot.metadata.get(KEY), getattr(part, slot.name)
        if field is None or not field.traced:
            for inner in value if isinstance(value, tuple) else (value,):
                traced |= collect_default_numbers(inner)
        elif value is not None and not field.required and field.default is not None:
            traced[value] = field.default
    return traced


def _field(field: ConfigField, traced: str = "") -> Any:
    """Returns the dataclass field; a traced one defaults to its option's name, or None."""
    metadata = {KEY: field}
    if field.traced and field.default is not None:
        return dataclasses.field(default=traced, metadata=metadata)
    if field.required or field.kind is dict:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=field.default, metadata=metadata)
