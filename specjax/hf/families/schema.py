"""Schemas of a family's `config.json`, checked before anything else is read.

Defaults and other names of fields are those of the family's configuration class in transformers. A
field that this class declares, or that its model reads anyway, is supported, or refused unless it
has its default. A field that is not declared is not read by transformers' model either: it is
ignored, and named in a note (`hf.families.schema`).
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import math
import reprlib
import textwrap
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeGuard, TypeVar

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"

LONGEST_NAME = 80
"""Characters of a field's name in a note."""

Ignored = dict[str, list[str]]
"""Names of ignored fields by the file that has them."""

_IGNORED: contextvars.ContextVar[Ignored | None] = contextvars.ContextVar("ignored", default=None)
_PARTS: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("parts", default=())


@contextlib.contextmanager
def collect_ignored() -> Iterator[Ignored]:
    """Collects the names of the fields that are ignored inside of the block."""
    ignored: Ignored = {}
    token = _IGNORED.set(ignored)
    try:
        yield ignored
    finally:
        _IGNORED.reset(token)


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Names the object inside of `config.json` whose fields are read in the block."""
    token = _PARTS.set((*_PARTS.get(), name))
    try:
        yield
    finally:
        _PARTS.reset(token)


def ignore(name: str, file: str = CONFIG_FILE) -> None:
    """Adds a field to those that the surrounding block collects."""
    ignored = _IGNORED.get()
    if ignored is not None:
        names = ignored.setdefault(file, [])
        path = ".".join((*_PARTS.get(), name)) if file == CONFIG_FILE else name
        word = textwrap.shorten(path, LONGEST_NAME)
        if word not in names:
            names.append(word)


@contextlib.contextmanager
def note_ignored(subject: str) -> Iterator[None]:
    """Prints one line that names the fields of `subject` that the block ignored, if any."""
    with collect_ignored() as ignored:
        yield
    if ignored:
        files = (f"ignored in {file}: {', '.join(names)}" for file, names in ignored.items())
        print(f"{subject}: {'; '.join(files)}")


MOST = 2**31 - 1
MOST_LAYERS = 4096

COMMON = frozenset(
    """
    _attn_implementation _commit_hash _name_or_path architectures attn_implementation auto_map
    chunk_size_feed_forward dtype experts_implementation gradient_checkpointing id2label label2id
    model_type name_or_path num_labels output_attentions output_hidden_states problem_type
    return_dict sep_token_id tokenizer_class torch_dtype transformers_version use_cache
    """.split()  # noqa: SIM905
)
"""Fields that transformers' base classes read, and that change no token in any family."""


NEEDED = object()
"""The default of a required field: a model's sizes."""


@dataclasses.dataclass(frozen=True)
class ConfigDeclaration:
    """Declarations of a configuration class of transformers."""

    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nullable: Collection[str] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)  # other name -> name


NOTHING = ConfigDeclaration()
"""Of the class of an exporter, all whose other fields are ignored."""


@functools.cache
def read_declared(model_type: str) -> ConfigDeclaration:
    """The declarations of a model type's configuration class."""
    from transformers import CONFIG_MAPPING  # slow to import

    fields = dataclasses.fields(CONFIG_MAPPING[model_type])
    nullable = {one.name for one in fields if type(None) in typing.get_args(one.type)}
    defaults = {one.name: _default(one) for one in fields}
    return ConfigDeclaration(defaults, nullable, CONFIG_MAPPING[model_type].attribute_map)


def _default(field: dataclasses.Field) -> Any:
    """A field's default, and for a field without one what equals no value."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@dataclasses.dataclass(frozen=True)
class Field:
    """A field that is read, with the default that counts where no class declares another.

    Null is allowed where it is the default, unless the class declares that it is not.
    """

    default: Any
    allowed: str  # ends the sentence "it must be ..."
    fits: Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class Schema:
    """The fields of a family: those read, and those that change nothing.

    Harmless are only fields that transformers declares or reads. What the class of a model type,
    its `source`, declares besides must be at its default, and all else is ignored. Without a source
    nothing else may be there.
    """

    fields: Mapping[str, Field]
    harmless: Collection[str] = COMMON
    source: str | ConfigDeclaration | None = None
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)  # more aliases
    own: Collection[str] = ()  # fields whose defaults here win over those that are declared

    @property
    def declaration(self) -> ConfigDeclaration:
        """What transformers' class declares."""
        named = self.source
        return read_declared(named) if isinstance(named, str) else named or NOTHING

    @property
    def aliases(self) -> Mapping[str, str]:
        """Other names of fields; of two that are the same the one that is read is the name."""
        found = dict(self.others)
        for alias, name in self.declaration.aliases.items():
            if name in self.fields:
                found[alias] = name
            elif alias in self.fields:
                found[name] = alias
        return found

    def derive(
        self, model_type: str = "", harmless: Collection[str] = (), /, **fields: Field
    ) -> Schema:
        """The schema of a relative with other fields, of the class of its model type.

        Without one it is that of this schema, and the defaults of the other fields win over it.
        """
        return dataclasses.replace(
            self,
            own=() if model_type else {*self.own, *fields},
            fields={**self.fields, **fields},
            harmless={*self.harmless, *harmless},
            source=model_type or self.source,
        )

    def without(self, *names: str) -> Schema:
        """The schema of a relative that does not read these fields."""
        fields = {name: field for name, field in self.fields.items() if name not in names}
        return dataclasses.replace(self, fields=fields, harmless={*self.harmless} - {*names})


def size(default: Any = NEEDED, least: int = 1, most: int = MOST) -> Field:
    """A count."""

    def fits(value: Any) -> bool:
        return is_int(value) and least <= value <= most

    return Field(default, f"an integer from {least} to {most}", fits)


def number(default: float | None) -> Field:
    """A finite number above zero: an epsilon, a base, a factor."""
    return Field(default, "a positive number", is_positive)


def rate(default: float) -> Field:
    """A share, such as a dropout rate."""
    return Field(
        default, "a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1
    )


def flag(default: bool | None) -> Field:
    """True or false."""
    return Field(default, "true or false", lambda value: isinstance(value, bool))


def choice(default: Any, options: Collection[Any]) -> Field:
    """One of a few names."""

    def fits(value: Any) -> bool:
        return isinstance(value, str) and value in options

    return Field(default, f"one of {', '.join(options)}", fits)


def only(default: Any, why: str = "others change what is computed") -> Field:
    """A field of which one value is supported, and null where that is it."""
    word = {None: "null", True: "true", False: "false"}.get(default, repr(default))
    return Field(default, f"{word}: {why}", lambda value: value is default)


def raw(default: Any = None) -> Field:
    """A field that the family itself checks."""
    return Field(default, "", lambda value: True)


SHARED: dict[str, Field] = {
    "quantization_config": only(
        None, "quantized weights are not read, only float32, float16 or bfloat16"
    ),
    "is_causal": only(True),
    # No class declares these four, and transformers' caches, masks and loading read them.
    "attention_chunk_size": only(None),
    "kv_sharing_modes": only(None),
    "per_layer_config": only(None),
    "transformers_weights": only(None, "weights are in model.safetensors or its shards"),
}
"""Fields of every family."""

ALL_FULL: dict[str, Field] = {"layer_types": only(None), "sliding_window": only(None)}
"""Fields of families without windows, which transformers' caches read of every family."""

CAUSAL: dict[str, Field] = SHARED | {"is_encoder_decoder": only(False)}
"""Fields of every decoder-only family."""


def read(schema: Schema, hf: Mapping[str, Any], elsewhere: Collection[str] = ()) -> dict[str, Any]:
    """The schema's fields of a configuration, checked, with defaults for those it leaves out.

    Fields named `elsewhere` are others' to check.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    aliases, declared = schema.aliases, schema.declaration
    known = {*schema.fields, *aliases, *schema.harmless, *elsewhere}
    for name, value in hf.items():
        if name in known:
            continue
        if schema.source is not None and name not in declared.defaults:
            ignore(name)
        elif name not in declared.defaults or value != declared.defaults[name]:
            raise ValueError(
                f"{name} is {format_value(value)}; specjax does not know what this field changes, "
                "and"
                " reads no model whose configuration has it"
            )
    written = {name: _find_written_name(aliases, hf, name) for name in schema.fields}
    return {
        name: _read_field(hf, written[name], field, name, schema)
        for name, field in schema.fields.items()
    }


def _find_written_name(aliases: Mapping[str, str], hf: Mapping[str, Any], name: str) -> str:
    """The name under which a configuration has a field; it must not contradict itself."""
    names = [name, *(other for other, meant in aliases.items() if meant == name)]
    given = [other for other in names if other in hf]
    for other in given[1:]:
        if hf[other] != hf[given[0]]:
            raise ValueError(
                f"{other} is {format_value(hf[other])} and {given[0]} is "
                f"{format_value(hf[given[0]])}; both name"
                " the same field and must agree"
            )
    return given[0] if given else name


def _read_field(
    hf: Mapping[str, Any], written: str, field: Field, name: str, schema: Schema
) -> Any:
    declared = schema.declaration
    if written not in hf:
        if field.default is NEEDED:
            raise ValueError(f"the field {name!r} is missing")
        own = name in schema.own
        return field.default if own else declared.defaults.get(name, field.default)
    value = hf[written]
    optional = name not in declared.defaults or name in declared.nullable
    if value is None and field.default is None and optional:
        return None
    if not field.fits(value):
        raise ValueError(f"{written} is {format_value(value)}; it must be {field.allowed}")
    return value


Part = TypeVar("Part")


def read_object(hf: Mapping[str, Any], name: str, read: Callable[[dict[str, Any]], Part]) -> Part:
    """What `read` makes of the object `name` in a configuration.

    Raises:
      ValueError: naming the object, the field, its value and what is allowed.
    """
    written = hf.get(name)
    if not isinstance(written, dict):
        raise ValueError(f"{name} is {format_value(written)}; it must be an object with its fields")
    try:
        with part(name):
            return read(written)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def head_width(
    fields: Mapping[str, Any], width: str = "hidden_size", heads: str = "num_attention_heads"
) -> int:
    """The width of the heads that fill a model's, of its fields of these names.

    Raises:
      ValueError: when they cannot.
    """
    if fields[width] % fields[heads]:
        raise ValueError(
            f"{width} is {fields[width]}; it must be divisible by {heads}, {fields[heads]}"
        )
    return fields[width] // fields[heads]


def filled_heads(fields: Mapping[str, Any]) -> int:
    """The width of heads that fill a model's, where `head_dim` may say no other.

    Raises:
      ValueError: when it does, or they cannot.
    """
    d_head = head_width(fields)
    if fields["head_dim"] not in (None, d_head):
        raise ValueError(
            f"head_dim is {fields['head_dim']}; it must be {d_head}, hidden_size over"
            " num_attention_heads"
        )
    return d_head


def format_value(value: Any) -> str:
    """A value as the sentence of an error shows it: short, in one line."""
    return " ".join(reprlib.repr(value).split())


def is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that fits into a float."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return abs(value) <= MOST if isinstance(value, int) else math.isfinite(value)


def is_positive(value: Any) -> bool:
    return is_number(value) and value > 0
