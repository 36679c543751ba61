"""Reads `generation_config.json`: special tokens, supported settings, and other fields.

Hugging Face reads these fields from `generation_config.json` where there is one, otherwise from
`config.json`; nothing falls back from one file to the other. Fields that would change the tokens
and that no strategy here applies are refused, or ignored on request. Sampling and the number of
tokens are always set by the strategy and the caller.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from specjax.hf.families.schema import GENERATION_FILE, format_value, ignore, is_int

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "assistant_ensemble_weight": (),
    "cache_config": (),
    "cache_implementation": ("dynamic", "hybrid", "sliding_window", "static"),
    "constraints": (),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "force_words_ids": (),
    "is_assistant": (False,),
    "max_time": (),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0,),
    "remove_invalid_values": (False,),
    "token_healing": (False,),
    "top_h": (),
    "use_mtp": (False,),
    "watermarking_config": (),
}
"""Fields that change the tokens, and the values, besides null, at which they do not."""

SETTINGS = frozenset(
    """
    bad_words_ids begin_suppress_tokens encoder_no_repeat_ngram_size encoder_repetition_penalty
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id guidance_scale
    min_length min_new_tokens no_repeat_ngram_size renormalize_logits repetition_penalty
    return_timestamps sequence_bias stop_strings suppress_tokens
    """.split()  # noqa: SIM905
)
"""Fields that are supported settings (`specjax/logits`)."""

TOKENS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")

FORCE_BOS = "force_bos_token_to_be_generated"
"""An old word for a `forced_bos_token_id` that is the `bos_token_id`."""

BEAMS = "num_beams"
"""The field that only a beam search uses (`specjax.beams`); other decodes print a note."""

HARMLESS = frozenset(
    """
    _commit_hash _from_model_config assistant_confidence_threshold assistant_early_exit
    assistant_lookbehind compile_config continuous_batching_config disable_compile do_sample
    early_stopping epsilon_cutoff eta_cutoff length_penalty low_memory max_cache_len max_length
    max_matching_ngram_size max_new_tokens min_p num_assistant_tokens num_assistant_tokens_schedule
    output_attentions output_hidden_states output_logits output_scores prefill_chunk_size
    prompt_lookup_num_tokens return_dict_in_generate speculation_type target_lookbehind temperature
    top_k top_p transformers_version typical_p use_cache
    """.split()  # noqa: SIM905
)
"""Fields that leave the tokens as they are, or that every call here sets itself."""

ABOUT_THE_FILE = ("_commit_hash", "_from_model_config", "transformers_version")
"""Fields that describe the origin of a file."""

MOST_BOS = 2**31
"""A token that is never fed here: a small vocabulary may keep the id of the published one."""

GENERATION = frozenset({*NEUTRAL, *SETTINGS, *TOKENS, FORCE_BOS, BEAMS, *HARMLESS})
"""Fields of `generation_config.json`, which older `config.json` have too."""


@dataclasses.dataclass(frozen=True)
class Special:
    """Special tokens; `pad` only fills masked positions, and is always a token."""

    eos: tuple[int, ...]
    pad: int
    bos: int | None
    start: int | None  # of a decoder with an encoder


class GenerationFileError(ValueError):
    """A field of `generation_config.json` is invalid."""


@contextlib.contextmanager
def reading_generation(generation: Mapping[str, Any] | None) -> Iterator[None]:
    """Blames `generation_config.json`, where there is one, for the errors of the block."""
    try:
        yield
    except ValueError as error:
        if generation is None:
            raise
        raise GenerationFileError(str(error)) from None


def special_tokens(
    hf: Mapping[str, Any], generation: Mapping[str, Any] | None, vocab_size: int
) -> Special:
    """The special tokens that Hugging Face decodes with; `generation` is None without its file.

    Raises:
      ValueError: naming a field that holds no token of the vocabulary.
    """
    fields = hf if generation is None else generation
    with reading_generation(generation):
        bos = _token(fields, "bos_token_id", MOST_BOS)
        start = _token(fields, "decoder_start_token_id", vocab_size)
        eos = _ends(fields, vocab_size)
        pad = _padding(fields, vocab_size)
    if pad is None:
        pad = _padding(hf, vocab_size)
    pad = (*eos, 0)[0] if pad is None else pad
    return Special(eos, pad, bos, bos if start is None else start)


def _token(fields: Mapping[str, Any], name: str, bound: int) -> int | None:
    value = fields.get(name)
    if value is not None and not (is_int(value) and 0 <= value < bound):
        raise ValueError(f"{name} is {format_value(value)}; it must be {_below(bound)}, or null")
    return value


def _padding(fields: Mapping[str, Any], vocab_size: int) -> int | None:
    """The padding token; many checkpoints have none, or -1."""
    return None if fields.get("pad_token_id") == -1 else _token(fields, "pad_token_id", vocab_size)


def _ends(fields: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    value = fields.get("eos_token_id")
    ends = [] if value is None else value if isinstance(value, list) else [value]
    if not all(is_int(end) and 0 <= end < vocab_size for end in ends):
        raise ValueError(
            f"eos_token_id is {format_value(value)}; it must be {_below(vocab_size)}, a list of "
            "them, or"
            " null"
        )
    return tuple(dict.fromkeys(ends))


def _below(bound: int) -> str:
    return f"a token id from 0 to {bound - 1}"


def generation_fields(
    hf: Mapping[str, Any], generation: Mapping[str, Any] | None
) -> dict[str, Any]:
    """All fields of generation as in the files, without null values."""
    fields = {name: hf[name] for name in hf if name in GENERATION}
    fields = fields if generation is None else generation
    # transformers reads the old word of settings that are, or were, a model's configuration.
    if fields.get(FORCE_BOS) and (generation is None or generation.get("_from_model_config")):
        fields = {**fields, "forced_bos_token_id": fields.get("bos_token_id")}
    fields = {name: value for name, value in fields.items() if name != FORCE_BOS}
    return {k: v for k, v in sorted(fields.items()) if v is not None and k not in ABOUT_THE_FILE}


def settings_in(generation: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are settings."""
    return {name: value for name, value in generation.items() if name in SETTINGS}


def beams_in(generation: Mapping[str, Any]) -> int:
    """The number of beams in the fields; 1 without any.

    Raises:
      ValueError: when that is no number of beams.
    """
    value = generation.get(BEAMS)
    if value is None or (type(value) is float and value == 1):
        return 1
    if not (is_int(value) and value >= 1):
        raise ValueError(
            f"{BEAMS} is {format_value(value)}; it must be an integer of at least 1, or null"
        )
    return value


def beams_words(name: str, beams: int) -> str:
    """The note of a decode of model `name` that searches no beams."""
    return f"model {name!r} has {BEAMS} {beams}; this decodes without beams"


@functools.cache
def note_beams(name: str, beams: int) -> None:
    """Prints, once per model, that it decodes without the beams of its generation file."""
    if beams > 1:
        print(beams_words(name, beams))


def change_generation(
    hf: Mapping[str, Any],
    generation: Mapping[str, Any] | None,
    changes: Mapping[str, Any],
    own: Collection[str] = (),
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Both files with a user's `changes` where the fields of generation are read.

    A family's `own` are fields that other models' files do not have.

    Raises:
      ValueError: naming a change of a field that no file has.
    """
    for name in changes:
        if name not in GENERATION and name not in own:
            raise ValueError(
                f"generation has {name!r}; it must have fields of generation_config.json"
            )
    return ({**hf, **changes}, None) if generation is None else (hf, {**generation, **changes})


def refuse_processors(
    hf: Mapping[str, Any],
    generation: Mapping[str, Any] | None,
    own: Collection[str] = (),
    neutral: Mapping[str, tuple[Any, ...]] = NEUTRAL,
) -> None:
    """Refuses fields that make Hugging Face decode other tokens than a strategy here would.

    A family reads its `own` fields itself; its `neutral` fields must have a value that changes
    nothing. Beams are left to the caller. Fields of `generation_config.json` that transformers does
    not declare are ignored.

    Raises:
      ValueError: naming the field, its value and how to ignore it.
    """
    fields = hf if generation is None else generation
    beams_in(fields)
    unlisted = set() if generation is None else set(generation) - {*GENERATION, *own, *neutral}
    declared = get_generation_defaults() if unlisted else {}
    for name, value in sorted(fields.items()):
        if name in unlisted and name not in declared:
            ignore(name, GENERATION_FILE)
        elif (name in unlisted and value is not None) or not _is_neutral(name, value, neutral):
            raise ValueError(
                f"{name} is {format_value(value)}, which no strategy applies;"
                f" generation={{{name!r}: None}} (of specjax.load, or config.generation) decodes"
                " without it, ignore_generation_config=True without the whole file"
            )


@functools.cache
def get_generation_defaults() -> Mapping[str, Any]:
    """The fields that transformers' `GenerationConfig` declares, and their defaults."""
    from transformers import GenerationConfig  # slow to import

    return vars(GenerationConfig())


def _is_neutral(name: str, value: Any, neutral: Mapping[str, tuple[Any, ...]]) -> bool:
    if name not in neutral or value is None:
        return True
    return any(type(value) in (type(one), float) and value == one for one in neutral[name])


def ends_to_hf(config: Any, **firsts: int | None) -> dict[str, Any]:
    """A shape's special tokens by Hugging Face's names; texts begin with those of `firsts`."""
    eos = config.eos
    last = eos[0] if len(eos) == 1 else list(eos) or None
    return {**firsts, "eos_token_id": last, "pad_token_id": config.pad}


def read_decoder_tokens(
    decoder: dict[str, Any], generation: dict[str, Any] | None, name: str = "decoder"
) -> dict[str, Any]:
    """The special tokens that a decoder's own configuration gives the whole model.

    Hugging Face takes missing generation settings from it; `name` is what the model calls it.

    Raises:
      ValueError: naming a setting of the decoder that would be applied too.
    """
    if generation is None:
        refuse_decoder_settings(decoder, name)
    return {token: decoder[token] for token in TOKENS if token in decoder}


def refuse_decoder_settings(decoder: dict[str, Any], name: str) -> None:
    """Refuses settings of a decoder that Hugging Face would apply without a generation file.

    `name` is what the configuration calls it.

    Raises:
      ValueError: naming the setting.
    """
    try:
        refuse_processors(decoder, None)
        beams = beams_in(decoder)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    given = settings_in(generation_fields(decoder, None)) | {BEAMS: beams}
    for field, value in given.items():
        if value not in ((1,) if field in ("repetition_penalty", BEAMS) else (0, [])):
            raise ValueError(
                f"{name}: {field} is {format_value(value)}; it must be in generation_config.json,"
                " which is not there"
            )
