"""The static parts of a decode and its state between rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.catching_up import CHUNK
from specjax.contracts.context import Context, Options
from specjax.contracts.decoder_prefix import make_copy_source
from specjax.contracts.drafter import Drafter, Memory
from specjax.contracts.env import Env, Models
from specjax.contracts.reader import Reader
from specjax.contracts.rows import Caches
from specjax.contracts.rule import Rule
from specjax.contracts.spec import Call, list_parts
from specjax.decoding.logprobs import OFF
from specjax.decoding.trace import Trace
from specjax.models.base import LanguageModel, Params, check_same_prompts
from specjax.models.guided import GuidedModel
from specjax.models.info import Input
from specjax.models.vocabularies import unwrap
from specjax.parallel.mesh import DATA
from specjax.parallel.sharding import Layout
from specjax.runtime.errors import UserError
from specjax.verification.whole import WholeReader


class State(struct.PyTreeNode):
    """Carry of the decode loop."""

    context: Context
    caches: Caches
    memory: Memory  # the drafter's
    keys: jax.Array  # [B] one key per row; folded, never replaced
    trace: Trace
    reached: jax.Array | None = None  # [B] int32: state of each row in `Options.stops`, if any


class Generation(struct.PyTreeNode):
    """The result of a decode."""

    tokens: jax.Array  # [B, L] int32, valid up to `length`
    begin: jax.Array  # [B] int32: first generated position
    length: jax.Array  # [B] int32
    trace: Trace
    memory: Memory = ()  # the drafter's, after the last round


@dataclasses.dataclass(frozen=True)
class Decoder:
    """The static parts of a decode: drafter, reader, rule and models."""

    models: Models
    drafter: Drafter
    rule: Rule
    max_new_tokens: int
    reader: Reader = WholeReader()
    target: str = "target"
    layout: Layout | None = None  # None: everything on one device
    room: int = 0  # slots beyond the longest output; 0: as many as a round may write
    logprobs: str = OFF  # kind of the written tokens' log-probabilities (`decoding.logprobs`)

    def __post_init__(self) -> None:
        known, spec = dict(self.models), self.drafter.spec
        for name in (self.target, *spec.models):
            if name not in known:
                raise ValueError(f"model {name!r} is not among {', '.join(map(repr, known))}")
        for call in spec.calls:
            self._check_exit(call)
        self.reader.check(spec.width)
        for name in self.used:
            if (known[name].info.start_token is None) != (
                self.target_model.info.start_token is None
            ):
                raise ValueError(
                    f"model {name!r} is {_kind(known[name])}, the target"
                    f" {_kind(self.target_model)}; they must be alike"
                )
            if not known[name].info.reads_states:
                self._check_input(name, known[name].info.input)
                check_same_prompts(name, known[name], self.target_model)
        target = self.target_model
        if isinstance(unwrap(target), GuidedModel) and not self.reader.exact:
            raise ValueError(
                "the target is guided, which reads each text twice with all layers; CALM runs them"
                " one by one"
            )

    def _check_input(self, name: str, given: Input | None) -> None:
        """Refuses models with different inputs: all read tokens, or all the same numbers."""
        ours, theirs = (str(one or "tokens") for one in (given, self.target_model.info.input))
        if ours != theirs:
            raise ValueError(
                f"model {name!r} reads {ours}, the target {theirs}; they must be alike"
            )

    def _check_exit(self, call: Call) -> None:
        """Refuses invalid calls of the target: only its first layers or read-out may draft."""
        if call.read_out:
            return  # no cache is touched
        own = call.model == self.target
        if call.exit is None:
            if own:
                raise ValueError(
                    f"the drafter's model is {self.target!r}, whose cache the verification needs"
                    " unchanged; it must be another one, or an early exit"
                )
            return
        if not own:
            raise ValueError(
                f"exit is {call.exit} of model {call.model!r}; only {self.target!r} may draft with"
                " its first layers"
            )
        if not 1 <= call.exit < self.target_model.info.depth:
            depth = self.target_model.info.depth
            raise ValueError(
                f"exit is {call.exit}; it must be from 1 to {depth - 1}, below the {depth} decoder"
                f" layers of {self.target!r}"
            )

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the models that run, the target first."""
        return tuple(dict.fromkeys((self.target, *self.drafter.spec.models)))

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that runs are counted for: the models, and early exits separately."""
        return tuple(dict.fromkeys((*self.used, *list_parts(self.drafter.spec.calls))))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the parameter trees that a decode needs."""
        return self.used + self.drafter.spec.resources

    @property
    def target_model(self) -> LanguageModel:
        return dict(self.models)[self.target]

    @property
    def row_ways(self) -> int:
        """Parts that rows are split into: the size of the mesh's `data` axis."""
        return self.layout.mesh.shape[DATA] if self.layout else 1

    def env(self, params: dict[str, Params]) -> Env:
        """The models with their parameters."""
        return Env(params, self.models, self.target)

    @property
    def ahead(self) -> int:
        """How far its calls write ahead (`count_ahead`).

        It is the same in all decodes that share `room`, because their caches must have one shape:
        no call begins further back than that plus a catch-up call.
        """
        shared = 2 * (self.room + CHUNK) if self.room else 0
        return max(count_ahead(self.drafter, self.reader), shared)

    def buffer(self, prompt_width: int) -> int:
        """Slots of the token buffer and the caches.

        Beyond the longest output: slots that a last draft may write, and one for the pending token.
        """
        head = len(self.target_model.info.prefix) or prompt_width
        return head + self.max_new_tokens + (self.room or self.drafter.spec.touched_slots)


def count_ahead(drafter: Drafter, reader: Reader) -> int:
    """Most slots that may be written beyond the first slot of a later call.

    Counts a round's writes, a catch-up call after them, and how far back a call begins.
    """
    spec = drafter.spec
    fed = [call.tokens for call in spec.calls]
    fed += [width + 1 for width in reader.list_widths(spec.width)]
    return spec.touched_slots + CHUNK + max(fed)


def check_resources(decoder: Decoder, params: Mapping[str, Params]) -> None:
    """Refuses parameter trees that do not fit the drafter.

    Raises:
      UserError: saying what does not fit.
    """
    try:
        decoder.drafter.check(decoder.env(dict(params)))
    except ValueError as error:
        raise UserError(f"strategy: {error}") from None


def _kind(model: LanguageModel) -> str:
    return "decoder-only" if model.info.start_token is None else "encoder-decoder"


def previous_width(options: Options) -> int:
    """Slots of the text that precedes audio (`Options.previous`)."""
    return 0 if options.previous is None else options.previous[0].shape[1]


def first_context(
    decoder: Decoder,
    prompt: jax.Array,
    prompt_length: jax.Array,
    limit: jax.Array,
    options: Options,
) -> Context:
    """The rows before the first round: their decoder prefix, whose last token is pending.

    Of tokens that the target has yet to choose from (`contracts.decoder_prefix`) it has the first.
    """
    rows, width = prompt.shape[:2]
    prefix = decoder.target_model.info.first_prefix
    if prefix:
        encoder_tokens, encoder_length = make_copy_source(
            decoder.target_model, prompt, prompt_length
        )
        head = jnp.broadcast_to(jnp.array(prefix, jnp.int32), (rows, len(prefix)))
        length = jnp.full((rows,), len(prefix), jnp.int32)
    else:
        encoder_tokens, encoder_length = prompt[:, :0], jnp.zeros_like(prompt_length)
        head, length = prompt, prompt_length
    slots = decoder.buffer(width) + previous_width(options)
    return Context(
        encoder_tokens=encoder_tokens,
        encoder_length=encoder_length,
        tokens=jnp.pad(head, ((0, 0), (0, slots - head.shape[1]))),
        length=length,
        begin=length,
        limit=length + limit,
        most=jnp.zeros_like(length),
        active=limit > 0,
        options=options,
    )
