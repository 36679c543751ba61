"""The config of each job, declared once: `defaults` makes it, `validation` checks it.

`--help` and docs/reference/config.md show the same declarations.
"""

from __future__ import annotations

from typing import Any

from specjax.checks import TOKENS, seed
from specjax.contracts.fields import (
    choice,
    flag,
    group,
    integer,
    is_number,
    listing,
    mapping,
    names,
    number,
    remove_field,
    text,
    whole,
)
from specjax.experiments.config.blocks import (
    Chat,
    Chosen,
    ComparedTexts,
    Counts,
    Languages,
    Models,
    Placement,
    Speech,
    Tables,
    TimedTexts,
    block,
    bucket_field,
    different_numbers,
    strategies_field,
    topology_field,
)
from specjax.experiments.config.learning import (
    Ngram,
    Online,
    Select,
    SelectCurve,
    SelectData,
    Tokenizer,
    Train,
)
from specjax.experiments.recipes.grammar import Training

BATCHING = STATIC, FILLED = "static", "filled"
"""Values of `batching`: batches that are decoded to their ends, or slots that are refilled."""


@block
class Decode(Chosen, Chat, ComparedTexts):
    """A decode experiment; every field can be set by a flag such as `--config.batch_size=4`."""

    batching: str = choice(
        BATCHING,
        STATIC,
        help="filled: a slot whose row has ended takes the next prompt"
        " (docs/how_to/many_prompts.md)",
    )
    topology: str = topology_field()
    acceptance: str = text(
        help="to predict speedups from: a number, NAME=NUMBER,..., or a results.json"
    )
    sweep: dict[str, Any] = mapping(
        help="grid of configs/sweep.py without a grid of its own: strategy -> fields"
    )


@block
class Engagement(Chat, ComparedTexts):
    """How often the target must step in: every drafter under an oracle, at several thresholds."""

    repeats: int = integer(1, most=10**4, help="timed decodes of every batch")
    thresholds: tuple[float, ...] = whole(
        "a list of different numbers of at least 0",
        lambda values: bool(values) and different_numbers(float("inf"))(values),
        (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.1),
        help="the target writes where it gives the drafter's token a probability below one",
    )


@block
class Beams(Chat, TimedTexts, Counts, Languages, Models):
    """Beam searches side by side; the first one without drafts is the baseline."""

    batching: str = choice(BATCHING, STATIC, help="static: slots that are refilled have no beams")
    strategies: dict[str, Any] = strategies_field("searches: name -> drafter, beams, ...")
    bucket: int = bucket_field(8)
    seed: Any = remove_field()


@block
class Windows:
    """How windows of audio follow each other; names are those of transformers' `generate`."""

    condition_on_prev_tokens: bool = flag(help="the previous transcript precedes a window's text")
    temperature: tuple[float, ...] = listing(
        "a list of numbers of at least 0",
        is_number,
        (),
        help="tried in turn until the thresholds hold, as (0.0, 0.2, 0.4); empty: that of each"
        " strategy",
    )
    compression_ratio_threshold: float = number(
        0.0, bounds="(-inf, inf)", help="above it a text is decoded again; 0: not tested"
    )
    logprob_threshold: float = number(
        0.0, bounds="(-inf, inf)", help="so is one of a lower mean log probability; 0: not tested"
    )
    no_speech_threshold: float = number(
        0.0, bounds="(-inf, inf)", help="above it such a text is silence; 0: not tested"
    )


@block
class Transcribe(Chosen, TimedTexts, Tables, Placement):
    """Audio of any length, window by window, by strategies that are timed side by side."""

    task: str = text("transcribe", help="where audio and references come from")
    metric: str = text("wer_basic", help="metric of the texts")
    max_new_tokens: int = integer(220, most=TOKENS, help="most tokens of a window")
    max_prompt_tokens: Any = remove_field()
    speech: Speech = group(Speech, timestamps=True)
    windows: Windows = group(Windows)


@block
class Compare:
    """Finished decode runs side by side."""

    runs: str = text(help="their workdirs, commas between; the others are compared with the first")
    seed: int = seed(help="seed of the bootstrap")


@block
class Sweep:
    """Runs of a decode config over a grid; flags set it as `--config.grid.seed='(0, 1)'`."""

    base: dict[str, Any] = mapping(help="the decode config")
    grid: dict[str, Any] = mapping(help="values by dotted field")
    strategies: tuple[str, ...] = names(
        help="those of the base to run, baselines are added; empty: all"
    )
    apart: bool = flag(help="fields of different strategies are not crossed, each runs alone")


@block
class Tune:
    """A search for the best setting of a strategy of a decode config."""

    base: dict[str, Any] = mapping(help="the decode config")
    strategy: str = text(help="its name in the base; empty: the first with a neural drafter")
    space: dict[str, Any] = mapping(
        help="values by field; empty: draft lengths and, where it has one, confidence stops"
    )
    tree_nodes: int = integer(
        0, least=0, help="most nodes of trees, searched as well as chains; 0: no trees"
    )
    objective: str = choice(
        ("time", "swi"), "time", help="swi: the price of all calls, for all candidates"
    )
    budget_seconds: float = number(
        300.0, bounds="(0, inf)", help="limit of the search, loading and compiling included"
    )
    probe_examples: int = integer(32, help="examples decoded to predict all draft lengths")
    margin: float = number(
        0.2,
        bounds="[0, 1]",
        help="candidates predicted to be slower than the best by more are not run",
    )
    contenders: int = integer(6, help="most candidates that are run")
    first_examples: int = integer(
        16, help="examples of the first round; each later round has twice as many"
    )
    quality_loss: float = number(
        0.5, bounds="[0, 100]", help="allowed points of the metric, where outputs change"
    )
    quality_examples: int = integer(
        50, help="least examples of the first round, where outputs change"
    )


@block
class Quickstart(Decode):
    """A tiny pair that is trained on the built-in grammar and then decodes."""

    training: Training = group(Training)
    batching: Any = remove_field()


SCHEMAS: dict[str, type] = {
    "beams": Beams,
    "compare": Compare,
    "decode": Decode,
    "engagement": Engagement,
    "ngram": Ngram,
    "online": Online,
    "quickstart": Quickstart,
    "select": Select,
    "select_curve": SelectCurve,
    "select_data": SelectData,
    "sweep": Sweep,
    "tokenizer": Tokenizer,
    "train": Train,
    "transcribe": Transcribe,
    "tune": Tune,
}
"""By the name that `config.experiment` gives."""
