"""Groups of config fields that several jobs share; a job inherits the groups it needs."""

from __future__ import annotations

import dataclasses
from typing import Any

from specjax.checks import DTYPES, TOKENS, Sizes
from specjax.contracts.fields import (
    ConfigField,
    choice,
    flag,
    group,
    integer,
    is_number,
    mapping,
    merge_fields,
    number,
    text,
)
from specjax.contracts.registry import METRICS, OBJECTIVES, TASKS
from specjax.data.sources import KINDS

block = dataclasses.dataclass(frozen=True, kw_only=True)
"""A dataclass of fields; nothing makes instances of it."""


def dtype_field(help: str) -> Any:
    """The dtype of a job's arithmetic."""
    return choice(tuple(DTYPES), "float32", help=help)


def examples_field(default: int, help: str) -> Any:
    """How many examples are read."""
    return integer(default, least=0, help=help)


def topology_field() -> Any:
    """The field of jobs whose programs can be compiled for TPUs."""
    return text(help="TPU chips that --dry_run compiles for, as v4:2x2x1")


def strategies_field(help: str) -> Any:
    """The field of strategies by name; `decoding.strategy` checks their fields."""
    return mapping(mapping(help=""), help=help)


_WIDTHS = "prompts are padded to multiples of it; each width compiles once"


def bucket_field(default: int, help: str = _WIDTHS) -> Any:
    """A multiple that widths are padded to."""
    return integer(default, most=TOKENS, help=help)


def different_numbers(most: float) -> Any:
    """Whether values are different numbers from 0 to `most`."""

    def fit(values: tuple[Any, ...]) -> bool:
        numbers = all(is_number(value) and value <= most for value in values)
        return numbers and len({f"{value:g}" for value in values}) == len(values)

    return fit


@block
class ObjectiveName:
    """The name of a run's objective."""

    name: str = choice(OBJECTIVES, "cross_entropy", help="which one")


def objective_field(name: str) -> Any:
    """The group with the fields of all objectives; a run reads those of its own."""

    def list_fields() -> dict[str, ConfigField]:
        return merge_fields((ObjectiveName, *(entry.cls for entry in OBJECTIVES.values())))

    return group(list_fields, name=name, help="what is minimized; fields of all objectives")


@block
class Mesh:
    """Devices by axis."""

    data: int = integer(1, help="devices that split the batch")
    model: int = integer(1, help="devices that split weights")


@block
class Generation:
    """How the checkpoint's generation_config.json is used."""

    ignore_generation_config: bool = flag(help="decode as if it held special tokens only")
    generation: dict[str, Any] = mapping(
        open=True, help="its fields otherwise, as min_length=5; None: off"
    )


@block
class Models(Generation):
    """The target and its drafters."""

    target: str = text(
        help="directory or hub id; append :bfloat16, :int8 or :int4 for smaller weights"
    )
    drafter: str = text(
        help='the same of the model called "drafter", if there is one; target:int8, for instance,'
        " is the target with quantized weights"
    )
    drafters: dict[str, str] = mapping(
        text(allowed="a model directory or hub id", help=""),
        open=True,
        help="more of them: name -> directory or hub id, as --config.drafters.small=DIR",
    )
    dtype: str = dtype_field("bfloat16 on TPU and GPU")


@block
class Languages:
    """Languages of prompts and outputs."""

    source_language: str = text(
        help="language of prompts, as eng_Latn, where the tokenizer has codes"
    )
    target_language: str = text(
        help="language of outputs, set by their first token; empty: not set"
    )


@block
class Placement(Languages, Models):
    """Placement of models on devices; minimum shared vocabulary of drafters."""

    mesh: Mesh = group(Mesh, partial=True, help="devices that split batch and weights")
    drafter_ways: dict[str, int] = mapping(
        integer(least=0, help=""),
        open=True,
        help="by drafter: devices of mesh.model that share it; 1, the default: every device"
        " holds it whole; 0: all, as the target",
    )
    pad_heads: bool = flag(
        help="add heads of zeros where heads do not divide by the devices that share a model"
    )
    least_shared: float = number(
        0.1,
        bounds="[0, 1]",
        help="share of the target's tokens that a drafter with another tokenizer must have",
    )


@block
class Place:
    """Where the rows of a task come from."""

    kind: str = choice(tuple(KINDS), "", help="empty: the task's source, or by the path")
    path: str = text(help="file, pattern, directory or hub id")
    reference_path: str = text(help="file of the references, for text")
    subset: str = text(help="configuration of a data set of the hub")
    split: str = text(help="split of the data, as test or train")
    data_dir: str = text(help="folder of a prepared tfds data set")


@block
class Examples:
    """Where examples come from: a task of its own or another source, or plain files.

    Plain files are text with one segment per line, or JSONL; gzip by the ending.
    """

    task: str = choice(TASKS, "", help="its name; empty: plain files")
    data: Place = group(Place, partial=True, help="another source of the task")
    turns: int = integer(0, least=0, help="messages of each conversation to decode; 0: all")
    source_file: str = text(help="file of what models read")
    reference_file: str = text(help="file of what outputs are scored by")
    source_field: str = text("source", help="field of JSONL that models read")
    reference_field: str = text("reference", help="field of JSONL that outputs are scored by")
    group_field: str = text(help="field whose values group the figures; empty: none")
    prefix: str = text(help="text before every source")
    examples: int = examples_field(0, "how many; 0: all")


@block
class Data(Examples):
    """Examples with a metric."""

    metric: str = choice(METRICS, "", help="empty: the task's, or none")


@block
class Chat:
    """Chat template settings of prompts."""

    chat: bool = flag(help="prompts are a user's messages in the model's template")
    system: str = text(help="what a chat begins with; empty: nothing")
    chat_template_kwargs: dict[str, Any] = mapping(
        open=True, help="variables of the template: enable_thinking=False"
    )


@block
class Speech:
    """Settings of speech models."""

    language: str = text(
        help="as en or english; empty: its checkpoint's, or detected for each text"
    )
    task: str = text(help="transcribe, or translate: into English; empty: the checkpoint's")
    timestamps: bool = flag(help="outputs contain timestamp tokens")


@block
class Counts:
    """Counts that drafters read."""

    ngram_table: str = text(help="table of `configs/ngram.py`; empty: fitted from the next two")
    ngram_file: str = text(help="text to fit n-grams from; empty: rows that are not decoded")
    ngram_examples: int = integer(
        1000, least=0, help="rows of a task to fit from, when a strategy needs them"
    )


@block
class Tables(Counts):
    """Data that drafters read in addition to models."""

    heads: str = text(
        help="file of parallel heads, or folder or hub id of published ones; empty: none"
    )
    draft_tokens: int = integer(
        0,
        least=0,
        help="first ids that speech drafters draft, next to EOS, special tokens and times; 0: all",
    )
    corpus_file: str = text(
        help="texts that suffix drafters search: lines, or JSON rows of the task"
    )
    corpus_split: str = text(
        help='split of the task instead, as "train"; both empty: as ngram_file'
    )
    corpus_tokens: int = integer(
        2**20, least=16, most=2**25, help="only the last of these texts that fit"
    )


@block
class TimedTexts(Sizes, Data):
    """Texts that are decoded and timed."""

    name: str = text(help="name of the data, for tables and reports")
    examples: int = examples_field(200, "how many; 0: all")
    repeats: int = integer(3, most=10**4, help="timed decodes of every batch by every strategy")
    overwrite: bool = flag(help="overwrite results in the workdir")


@block
class ComparedTexts(TimedTexts, Tables, Placement):
    """Strategies of all kinds on texts."""

    speech: Speech = group(Speech)
    prices: dict[str, float] = mapping(
        number(bounds="(0, inf)", help=""),
        open=True,
        help="prices of calls by model, for the standardized walltime improvement; empty: numbers"
        " of parameters",
    )
    invariant: bool = flag(
        help="every target call feeds equally many tokens, so that greedy outputs agree in"
        " half precision too (docs/how_to/half_precision.md)"
    )
    profile_rounds: int = integer(
        0, least=0, most=10**4, help="rounds to profile of every strategy; 0: none"
    )


@block
class Chosen:
    """The strategies of a config, and a selection of them."""

    strategies: dict[str, Any] = strategies_field(
        "what is compared: name -> drafter, rule, their fields"
    )
    only: str = text(help="some of them, with commas between, next to the baseline; empty: all")
