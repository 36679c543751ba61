"""Strategies: a drafter, a rule and sampling settings under a name, as a config spells them."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from specjax.decoding.calm import DECAYS, MEASURES, PAPER, SATURATION, TAU, THRESHOLD, Calm
from specjax.drafting import choosing, running, switching
from specjax.drafting.base import Drafter, Options
from specjax.drafting.blockwise import Blockwise
from specjax.drafting.copying import MaxGram, PromptLookup
from specjax.drafting.little import Little
from specjax.drafting.matrix import GREEDY, SAMPLED, cascade
from specjax.drafting.neural import ACCEPTANCE, BREAK_EVEN, FIXED, Neural
from specjax.drafting.ngram import NGram
from specjax.drafting.none import Nothing
from specjax.drafting.uniform import Uniform
from specjax.errors import UserError
from specjax.sampling import sampling
from specjax.verification.base import Rule
from specjax.verification.distances import DISTANCES
from specjax.verification.exact import SpeculativeSampling
from specjax.verification.lenient import Lenient
from specjax.verification.oracle import Oracle
from specjax.verification.rollback import Rollback

WINDOW = 10
"""Drafted tokens at which BiLD hands over (W of Kim et al., 2023)."""

OFFICIAL = "official"
COMPAT = ("paper", OFFICIAL)
"""Whose BiLD: the paper's, or the published code's without its bugs.

See docs/methods/bild.md, "The published code".
"""

WHOLE, DRAFTED = VERIFY = ("full", "drafted")
"""Width of the target's call: the drafter's, or the narrowest compiled one that holds what was
drafted."""

Settings = tuple[float, int, float]
"""Temperature, top-k and top-p."""


@dataclasses.dataclass(frozen=True)
class Strategy:
    """How to decode; hashable, `numbers` are the traced thresholds by name."""

    drafter: Drafter = Nothing()
    rule: Rule = SpeculativeSampling()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    numbers: tuple[tuple[str, float | tuple[float, ...]], ...] = ()  # one, or one for each arm
    widths: tuple[int, ...] = ()  # of `Decoder`
    calm: Calm | None = None  # of `Decoder`

    def __post_init__(self) -> None:
        _check(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p)

    @property
    def lossless(self) -> bool:
        """Whether the outputs keep the target's law."""
        return self.rule.lossless and not self.calm

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def autoregressive(self) -> bool:
        """Whether the target decodes alone, with all its layers."""
        return self.drafter.width == 0 and not self.calm

    @property
    def target_widths(self) -> tuple[int, ...]:
        """Drafted tokens that a target call may have room for."""
        return self.widths or (self.drafter.width,)

    @property
    def settings(self) -> Settings:
        """What a baseline must share."""
        return self.temperature, self.top_k, self.top_p

    def options(self) -> Options:
        """The traced side of the strategy."""
        values = running.DEFAULTS | dict(self.numbers)
        numbers = {name: jnp.float32(value) for name, value in values.items()}
        return Options(sampling(*self.settings), numbers)


def autoregressive(**settings: Any) -> Strategy:
    """The target alone, one token per call."""
    return Strategy(**settings)


def speculative(length: int = 4, model: str = "drafter", **settings: Any) -> Strategy:
    """A neural drafter of fixed draft length under the lossless rule."""
    _check(length=length, model=model)
    return Strategy(drafter=Neural(model, length), **settings)


def early_exit(exit: int, length: int = 4, **settings: Any) -> Strategy:
    """The target's first `exit` decoder layers draft under the lossless rule."""
    _check(exit=exit, length=length)
    return Strategy(drafter=Neural("target", length, exit=exit), **settings)


def calm(
    threshold: float,
    tau: float = 0.0,
    *,
    measure: str = SATURATION,
    decay: str = PAPER,
    **settings: Any,
) -> Strategy:
    """CALM (Schuster et al. 2022): each token leaves the target where a layer is sure enough.

    Raises:
      ValueError: when a setting is out of range.
    """
    _check(threshold=threshold, tau=tau, measure=measure, decay=decay)
    numbers = ((THRESHOLD, float(threshold)), (TAU, float(tau)))
    return Strategy(calm=Calm(measure, decay), numbers=numbers, **settings)


def bild(
    fallback: float,
    rollback: float,
    *,
    model: str = "",
    exit: int | None = None,
    length: int = WINDOW,
    distance: str = "cross_entropy",
    verify_eos: bool = False,
    compat: str = "paper",
    equal_argmax: bool = True,
    verify: str = WHOLE,
    **settings: Any,
) -> Strategy:
    """Big Little Decoder (Kim et al., 2023): `model` hands over below the fallback threshold.

    It is the model called "drafter", or with `exit` so many of the target's first decoder layers.
    The target drops drafts whose `distance` exceeds the rollback threshold. Fallback 0 never hands
    over before the window of `length` tokens is full, above 1 always; rollback infinity drops
    nothing.

    Raises:
      ValueError: when a setting is of no use.
    """
    _check(fallback=fallback, rollback=rollback, length=length, distance=distance, compat=compat)
    _check(verify_eos=verify_eos, equal_argmax=equal_argmax, verify=verify)
    _check(**({} if exit is None else {"exit": exit}), **({"model": model} if model else {}))
    official = compat == OFFICIAL
    rule = Rollback(distance, equal_argmax=equal_argmax, official=official)
    little = Little(
        model or ("drafter" if exit is None else "target"),
        length,
        confidence="fallback",
        exit=exit,
        keep_logits=rule.compares_laws,
        verify_eos=verify_eos,
        official=official,
    )
    numbers = (("fallback", float(fallback)), ("rollback", float(rollback)))
    made = Strategy(little, rule, numbers=numbers, widths=_widths(little, verify), **settings)
    if official and not made.greedy:
        raise ValueError(f"compat is {compat!r}; it must be 'paper' at a temperature above 0")
    return made


def oracle(engage: float, model: str = "drafter") -> Strategy:
    """`model` writes, the target whatever it would write with a probability below `engage`.

    Both see every prefix, greedily (Kim et al., 2023, Figure 2): no way to be fast, but the least
    engagement of the target that a quality needs.
    """
    _check(engage=engage, model=model)
    return Strategy(Little(model, 1, verify_eos=True), Oracle(), numbers=(("engage", engage),))


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a strategy in a config."""

    kind: Callable[[Any], Any]
    allowed: str
    check: Callable[[Any], bool]


def fitting_widths(drafter: Drafter) -> tuple[int, ...]:
    """`running.lengths`; before them 0 for drafters that may propose nothing at all."""
    always = isinstance(drafter, Neural) and drafter.confidence is None
    return (*(() if always else (0,)), *running.lengths(drafter.width))


def _widths(drafter: Drafter, verify: str) -> tuple[int, ...]:
    """`Strategy.widths` for a choice of `VERIFY`."""
    return fitting_widths(drafter) if verify == DRAFTED else ()


_KINDS = {float: numbers.Real, int: numbers.Integral}
"""What values count as a kind: numpy's, too."""

_POSITIVE = _Field(int, "an integer of at least 1", lambda x: x >= 1)
_UNIT = _Field(float, "a number in (0, 1]", lambda x: 0.0 < x <= 1.0)
_NAME = _Field(str, "a name", bool)
_TIME = _Field(float, "a number of at least 0", lambda x: 0.0 <= x < float("inf"))
_FLAG = _Field(bool, "True or False", lambda x: True)
_THRESHOLD = _Field(float, "a number of at least 0, or 'inf'", lambda x: x >= 0)
_TIMES = _Field(tuple, "a list of numbers of at least 0", lambda x: all(map(_is_time, x)))
_LENGTHS = _Field(tuple, "a list of integers of at least 1", lambda x: all(map(_is_length, x)))
_NAMES = _Field(tuple, "a list of names", lambda x: all(isinstance(name, str) for name in x))
_ROWS = _Field(tuple, "a list of rows", lambda x: all(isinstance(row, tuple) for row in x))


def _is_time(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and 0.0 <= x < float("inf")


def _is_length(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 1


def _choice(*known: str) -> _Field:
    return _Field(str, f"one of {', '.join(known)}", known.__contains__)


_FIELDS: dict[str, _Field] = {
    "drafter": _NAME,
    "rule": _NAME,
    "model": _NAME,
    "table": _Field(str, "a name other than 'heads'", lambda x: x not in ("", "heads")),
    "length": _POSITIVE,
    "shortest": _POSITIVE,
    "longest": _POSITIVE,
    "confidence": _Field(float, "a number in [0, 1]", lambda x: 0.0 <= x <= 1.0),
    "lenience": _UNIT,
    "fallback": _THRESHOLD,
    "rollback": _THRESHOLD,
    "distance": _Field(str, f"one of {', '.join(DISTANCES)}", DISTANCES.__contains__),
    "verify_eos": _FLAG,
    "equal_argmax": _FLAG,
    "compat": _Field(str, f"one of {', '.join(COMPAT)}", COMPAT.__contains__),
    "engage": _THRESHOLD,
    "temperature": _Field(
        float, "0 (greedy) or a positive number", lambda x: 0 <= x < float("inf")
    ),
    "top_k": _Field(int, "0 (off) or a positive integer", lambda x: x >= 0),
    "top_p": _UNIT,
    "adapt": _choice(FIXED, ACCEPTANCE, BREAK_EVEN),
    running.COST: _TIME,
    running.VERIFICATION: _TIME,
    running.OVERHEAD: _TIME,
    running.EXPECTED: _Field(float, "a number in (0, 1)", lambda x: 0.0 < x < 1.0),
    "verify": _choice(*VERIFY),
    "exit": _POSITIVE,
    THRESHOLD: _Field(float, "a number in [0, 1]", lambda x: 0.0 <= x <= 1.0),
    TAU: _TIME,
    "measure": _choice(*MEASURES),
    "decay": _choice(*DECAYS),
    "drafters": _NAMES,
    "matrix": _ROWS,
    "reviewers": _choice(SAMPLED, GREEDY),
    "arms": _NAMES,
    "policy": _NAME,
    "mode": _choice(*choosing.MODES),
    "choices": _NAME,
    "bandit": _choice(*switching.KINDS),
    "context": _Field(int, "an integer of at least 2", lambda x: x >= 2),
    "spread": _TIME,
    "ridge": _Field(float, "a positive number", lambda x: 0.0 < x < float("inf")),
    switching.COSTS: _TIMES,
    "lengths": _LENGTHS,
    switching.TRUST: _Field(float, "a positive number", lambda x: 0.0 < x < float("inf")),
    switching.DISCOUNT: _Field(float, "a number in [0, 1]", lambda x: 0.0 <= x <= 1.0),
    switching.EXPLORE: _TIME,
    switching.PRIOR: _TIME,
}

_SETTINGS = ("temperature", "top_k", "top_p")
_ALWAYS = ("drafter", "rule", "verify", *_SETTINGS)

_DRAFTERS: dict[str, tuple[Callable[..., Drafter], tuple[str, ...]]] = {
    "none": (Nothing, ()),
    "neural": (Neural, ("model", "length", "confidence", "adapt", *running.DEFAULTS)),
    "early_exit": (
        functools.partial(Neural, "target"),
        ("exit", "length", "confidence", "adapt", *running.DEFAULTS),
    ),
    "blockwise": (Blockwise, ("model", "length")),
    "unigram": (lambda **f: NGram(order=1, **f), ("length", "table")),
    "bigram": (NGram, ("length", "table")),
    "prompt_lookup": (PromptLookup, ("length", "shortest", "longest")),
    "max_gram": (MaxGram, ("length", "table", "longest")),
    "uniform": (Uniform, ("length",)),
    "cascade": (cascade, ("drafters", "matrix", "lenience", "reviewers")),
}

Method = tuple[Callable[..., Strategy], tuple[str, ...], tuple[str, ...]]
"""A strategy's builder, the fields that it needs, and those that it may have."""

_METHODS: dict[str, Method] = {
    "bild": (
        bild,
        ("fallback", "rollback"),
        (
            "model",
            "exit",
            "length",
            "distance",
            "verify_eos",
            "compat",
            "equal_argmax",
            "verify",
            *_SETTINGS,
        ),
    ),
    "oracle": (oracle, ("engage",), ("model",)),
    "calm": (calm, (THRESHOLD,), (TAU, "measure", "decay", *_SETTINGS)),
}
"""Drafters that come with their own rule."""

_RULES: dict[str, tuple[Callable[[], Rule], tuple[str, ...]]] = {
    "lossless": (SpeculativeSampling, ()),
    "lenient": (Lenient, ("lenience",)),
}

_DEFAULTS: dict[str, dict[str, Any]] = {
    "neural": {"model": "drafter"},
    "blockwise": {"model": "drafter"},
}

_REQUIRED = ("exit", "length", "drafters", "matrix")
"""Fields that drafters which have them cannot do without."""

_THRESHOLDS = ("confidence", "lenience")
"""Fields whose value is traced; the drafter or rule holds only the option's name."""

_TRACED = (*_THRESHOLDS, *running.DEFAULTS)


def from_config(
    name: str,
    spec: Mapping[str, Any],
    vocab_size: int,
    more: Mapping[str, Method] | None = None,
) -> Strategy:
    """The strategy that `config.strategies.<name>` spells; `more` are methods of other rooms.

    Raises:
      UserError: when a field is unknown, missing, out of range, or of no use to the drafter.
    """
    where = f"strategies.{name}"
    values = {field: _value(f"{where}.{field}", field, spec[field]) for field in spec}
    methods = _METHODS | dict(more or {})
    drafter = _chosen(where, "drafter", values.get("drafter", "none"), _DRAFTERS | methods)
    if drafter in methods:
        return _whole(where, drafter, values, methods[drafter])
    rule = _chosen(where, "rule", values.get("rule", "lossless"), _RULES)
    build, drafter_fields = _DRAFTERS[drafter]
    make_rule, rule_fields = _RULES[rule]
    allowed = (*_ALWAYS, *drafter_fields, *rule_fields)
    for field in values:
        if field not in allowed:
            raise UserError(
                f"{where}.{field} does not apply to drafter {drafter!r} with rule {rule!r}; "
                f"allowed are {', '.join(allowed)}"
            )
    for field in (*(each for each in _REQUIRED if each in drafter_fields), *rule_fields):
        if field not in values:
            raise UserError(f"{where}.{field} is missing; it must be {_FIELDS[field].allowed}")
    if values.get("adapt", FIXED) == FIXED:
        for field in running.DEFAULTS:
            if field in values:
                raise UserError(
                    f"{where}.{field} needs {where}.adapt to be {ACCEPTANCE!r} or {BREAK_EVEN!r}"
                )
    given = {f: values[f] for f in drafter_fields if f in values and f not in _TRACED}
    given |= {f: f for f in drafter_fields if f in values and f in _THRESHOLDS}
    if drafter == "uniform":
        given["vocab_size"] = vocab_size
    try:
        made = build(**_DEFAULTS.get(drafter, {}) | given)
        return Strategy(
            drafter=made,
            rule=make_rule(),
            numbers=tuple((f, values[f]) for f in _TRACED if f in values),
            widths=_widths(made, values.get("verify", WHOLE)),
            **{f: values[f] for f in ("temperature", "top_k", "top_p") if f in values},
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _whole(where: str, drafter: str, values: dict[str, Any], method: Method) -> Strategy:
    """The strategy of a method that comes with its own rule."""
    build, needed, optional = method
    given = {field: value for field, value in values.items() if field != "drafter"}
    for field in given:
        if field not in (*needed, *optional):
            allowed = ", ".join(("drafter", *needed, *optional))
            raise UserError(
                f"{where}.{field} does not apply to drafter {drafter!r}; allowed are {allowed}"
            )
    for field in needed:
        if field not in given:
            raise UserError(f"{where}.{field} is missing; it must be {_FIELDS[field].allowed}")
    try:
        return build(**given)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _check(**fields: Any) -> None:
    """Refuses arguments of the builders above by the rules of the fields of their names."""
    for field, value in fields.items():
        _value(field, field, value)


def _value(where: str, field: str, value: Any) -> Any:
    if field not in _FIELDS:
        raise UserError(f"{where} is not a field of a strategy; allowed are {', '.join(_FIELDS)}")
    known, value = _FIELDS[field], _hashable(value)
    if known is _THRESHOLD and value == "inf":  # JSON has no number for it
        return float("inf")
    fits = isinstance(value, _KINDS.get(known.kind, known.kind))
    fits &= isinstance(value, bool) == (known.kind is bool)
    if not (fits and known.check(value)):
        raise UserError(f"{where} is {value!r}; it must be {known.allowed}")
    return known.kind(value)


def _hashable(value: Any) -> Any:
    """The value with all its lists as tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value


def _chosen(where: str, field: str, value: str, table: Mapping[str, Any]) -> str:
    if value not in table:
        raise UserError(f"{where}.{field} is {value!r}; it must be one of {', '.join(table)}")
    return value
