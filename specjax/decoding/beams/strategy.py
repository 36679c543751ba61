"""Beam search strategies: config fields, their checks, and derived numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from specjax.contracts import fields, registry
from specjax.contracts.env import Models
from specjax.decoding.beams.drafters import BeamProposer, Bigram, Copies
from specjax.decoding.beams.state import BeamDecoder, BeamDrafter
from specjax.decoding.beams.step import Scoring
from specjax.decoding.strategy import check_values
from specjax.drafting.neural import Neural
from specjax.drafting.proposer import Proposer
from specjax.runtime.errors import UserError

NONE, NEURAL, BIGRAM, PROMPT_LOOKUP, MAX_GRAM = DRAFTERS = (
    "none", "neural", "bigram", "prompt_lookup", "max_gram",
)  # fmt: skip
"""Drafters of this package; registered proposers are also allowed (`proposers`)."""

MOST_BEAMS = 128
"""All beams are fed in one call."""

LONGEST = 48
"""Longest match: float32 can add thousands of the resulting counts."""

FALSE, TRUE, NEVER = STOPPING = "False", "True", "never"
"""The values of early_stopping that transformers knows, as words."""

_OF_DRAFTERS = {
    NONE: (),
    NEURAL: ("length", "width", "model"),
    BIGRAM: ("length", "width", "table"),
    PROMPT_LOOKUP: ("length", "width", "longest"),
    MAX_GRAM: ("length", "width", "table", "longest"),
}
"""Fields that only some drafters have."""


def proposers() -> tuple[str, ...]:
    """Registered proposers whose distributions depend only on the fed tokens."""
    found = []
    for name, entry in registry.DRAFTERS.items():
        fields_ = fields.get_config_fields(entry.cls).values()
        if issubclass(entry.cls, Proposer) and not any(field.required for field in fields_):
            made = entry.cls(length=1)
            if not (made.parallel or made.needs_static_depth or made.features):
                found.append(name)
    return tuple(found)


def check_drafter(where: str, drafter: str) -> None:
    """Refuses drafters of a single text, or without distributions to rank hypotheses.

    Raises:
      ValueError: naming those that do not.
    """
    known = tuple(dict.fromkeys((*DRAFTERS, *proposers())))
    if drafter not in known:
        raise ValueError(f"{where} is {drafter!r}; it must be one of {', '.join(known)}")


@dataclasses.dataclass(frozen=True)
class BeamStrategy:
    """A beam search; its results are those of transformers' `generate(num_beams=beams)`."""

    drafter: str = fields.name(NONE, help="none: plain beam search")
    beams: int = fields.integer(4, most=MOST_BEAMS, help="live hypotheses of each text")
    length_penalty: float = fields.number(
        1.0, bounds="[-10, 10]", help="log-probabilities are divided by length to this power"
    )
    early_stopping: str = fields.choice(
        STOPPING,
        FALSE,
        help="end when as many as beams are finished; False: when the best live one would"
        " lose if it ended now; never: when it would lose at any length",
    )
    sequences: int = fields.integer(1, most=MOST_BEAMS, help="texts returned for each prompt")
    length: int = fields.integer(2, most=64, help="drafted steps")
    width: int = fields.integer(
        0, least=0, most=MOST_BEAMS, help="hypotheses of a drafted step; 0: as many as beams"
    )
    model: str = fields.name("drafter", but="target", help="the model that drafts")
    table: str = fields.counts()
    longest: int = fields.integer(32, most=LONGEST, help="most tokens of a match to copy after")

    def __post_init__(self) -> None:
        fields.check(self)
        check_drafter("drafter", self.drafter)
        if self.sequences > self.beams:
            raise ValueError(
                f"sequences is {self.sequences}; it must be at most beams, {self.beams}"
            )
        if 0 < self.width < self.beams:
            raise ValueError(
                f"width is {self.width}; it must be 0 or at least beams, {self.beams}, as no step"
                " of fewer hypotheses could be accepted"
            )

    @property
    def speculative(self) -> bool:
        """Whether steps are drafted."""
        return self.drafter != NONE

    @property
    def counted(self) -> bool:
        """Whether the drafter reads fitted counts."""
        return self.drafter in (BIGRAM, MAX_GRAM)

    def decoder(self, models: Models, max_new_tokens: int) -> BeamDecoder:
        """The static side of a search with these models.

        Raises:
          ValueError: when they do not fit.
        """
        drafted = {}
        if self.speculative:
            drafted = {
                "length": self.length,
                "width": self.width or self.beams,
                "drafter": self._drafter(),
            }
        return BeamDecoder(models, self.beams, max_new_tokens, **drafted)

    def _drafter(self) -> BeamDrafter:
        if self.drafter == NEURAL:
            return BeamProposer(Neural(1, self.model))
        if self.drafter == BIGRAM:
            return Bigram(self.table)
        if self.drafter not in DRAFTERS:
            return BeamProposer(registry.DRAFTERS[self.drafter].cls(length=1))
        return Copies(self.longest, self.table if self.drafter == MAX_GRAM else "")

    def scoring(self, max_new_tokens: int) -> Scoring:
        """The traced side."""
        return scoring(max_new_tokens, self.length_penalty, self.early_stopping)


def scoring(most: int, length_penalty: float, early_stopping: str) -> Scoring:
    """The score tables of a search for at most `length` tokens."""
    length = np.maximum(np.arange(most + 1), 1)
    longest = early_stopping == NEVER and length_penalty > 0.0
    bound = np.full_like(length, most) if longest else length
    divisor, bound = (
        jnp.asarray([int(x) ** float(length_penalty) for x in lengths], jnp.float32)
        for lengths in (length, bound)
    )
    return Scoring(divisor, bound, jnp.asarray(early_stopping == TRUE))


def beam_search(**given: Any) -> BeamStrategy:
    """A beam search from its fields: `beam_search(beams=4, length_penalty=0.6)`.

    With `drafter="neural"` a model drafts `length` steps of `width` hypotheses, with "bigram",
    "prompt_lookup" or "max_gram" counts and copies do; the texts and scores stay those of plain
    beam search. `early_stopping` may be False, True or "never".

    Raises:
      UserError: when a field is unknown, out of range, or does not apply to the drafter.
    """
    return from_config("", given)


def from_config(name: str, given: dict[str, Any]) -> BeamStrategy:
    """The beam search of a config's strategy `name`; without a name, of a call's arguments.

    Raises:
      UserError: when a field is unknown, out of range, or does not apply to the drafter.
    """
    where = f"strategies.{name}." if name else ""
    given = dict(given)
    if isinstance(given.get("early_stopping"), bool):
        given["early_stopping"] = str(given["early_stopping"])
    known = fields.get_config_fields(BeamStrategy)
    drafter = given.get("drafter", NONE)
    who = f"a beam search with drafter {drafter!r}"
    try:
        known["drafter"].value(f"{where}drafter", drafter)
        check_drafter(f"{where}drafter", drafter)
        own = _OF_DRAFTERS.get(drafter, ("length", "width"))
        barred = set().union(*_OF_DRAFTERS.values()) - set(own)
        known = {name: field for name, field in known.items() if name not in barred}
        values = check_values(where, given, known, who, ())
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from None
    try:
        return BeamStrategy(**values)
    except ValueError as error:
        raise UserError(f"{where.rstrip('.')}: {error}" if where else str(error)) from None
