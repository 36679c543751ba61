"""Training data of a config: texts, token ids, and streams of batches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.data.encoding import Encoder
from specjax.data.pipeline import Batches, Ids, Mixture, Pairs, RaggedRows
from specjax.data.text import Example
from specjax.decoding.strategy import autoregressive
from specjax.experiments.decode.data import Data, check_single_turn, load_data
from specjax.experiments.decode.prompts import chat_prompts_by
from specjax.experiments.train.target_outputs import write_outputs
from specjax.experiments.train.with_input import InputEncoder
from specjax.loading import LoadedModel
from specjax.models.info import ModelInfo
from specjax.runtime.errors import UserError

OUTPUTS = "target_outputs.jsonl"
"""File in the workdir: the target's outputs for the training inputs."""

VALIDATION_OUTPUTS = "validation_outputs.jsonl"
"""File in the workdir: the target's outputs for validation inputs without output."""


@dataclasses.dataclass(frozen=True)
class Texts:
    """Training examples, evaluation examples, and their metric."""

    train: list[Example]
    validation: list[Example]
    metric: str


def load_texts(config: ConfigDict) -> Texts:
    """Reads training and validation examples, with prefixes before the prompts.

    Raises:
      UserError: when they cannot be read, the training rows fill no batch, or rows have no output
        and there is no target to generate one.
    """
    texts = _read(config)
    if len(texts.train) < config.batch_size:
        raise UserError(
            f"config.batch_size is {config.batch_size}; there are {len(texts.train)} training rows"
        )
    if config.sequences.data > 0 and any(example.output is None for example in texts.train):
        raise UserError(
            f"config.sequences.data is {config.sequences.data}, but not every training row has an"
            " output"
        )
    if rows_without_output(texts.validation) and not config.target:
        raise UserError(
            "config.validation has rows without an output, and config.target is empty; give the"
            " outputs that the loss is measured on, or a target that generates them"
        )
    return texts


def rows_without_output(examples: Sequence[Example]) -> list[int]:
    """Indices of the examples that have no output."""
    return [index for index, example in enumerate(examples) if example.output is None]


def _read(config: ConfigDict) -> Texts:
    data = _load_side(config, "train")
    train = _add_prefix(config.train, data.examples)
    side = config.validation
    if side.task or side.source_file:
        held_out = _load_side(config, "validation")
        return Texts(train, _add_prefix(side, held_out.examples), held_out.metric)
    count = side.examples
    if not 0 < count < len(train):
        raise UserError(
            f"config.validation.examples is {count}; without a source of their own these are the"
            f" last of the {len(train)} training rows: it must be from 1 to {len(train) - 1}"
        )
    return Texts(train[:-count], train[-count:], side.metric or data.metric)


def _load_side(config: ConfigDict, side: str) -> Data:
    """The examples of one side.

    Raises:
      UserError: naming the side that cannot be read.
    """
    place = f"config.{side}"
    try:
        return load_data(config[side], more=False, place=place)
    except UserError as error:
        named = str(error).startswith(place)
        raise UserError(str(error) if named else f"{place}: {error}") from None


def _add_prefix(side: ConfigDict, examples: list[Example]) -> list[Example]:
    for example in examples:
        check_single_turn(side, example)
    return [dataclasses.replace(e, source=side.prefix + e.source) for e in examples]


def make_encoder(config: ConfigDict, start: LoadedModel) -> Encoder:
    """The encoder of texts into a model's ids; with `config.chat` texts are messages.

    Raises:
      UserError: when the model has no token that ends an output, or no template for a chat.
    """
    model = start.model
    if not model.info.eos:
        raise UserError("config.model has no end-of-sequence token; give model.shape.eos_token_id")
    return Encoder(
        start.tokenizer,
        model.info.start_token is None,
        model.info.eos[0],
        config.max_prompt_tokens,
        config.max_output_tokens,
        functools.partial(chat_prompts_by, config, start) if config.chat else None,
    )


AnyEncoder = Encoder | InputEncoder
"""Encoders of prompts into model inputs and of outputs into ids."""


def encode(encoder: AnyEncoder, examples: list[Example], field: str) -> Pairs:
    """Prompts and outputs as ids; rows without an output have an empty one.

    Raises:
      UserError: when a prompt is empty.
    """
    prompts = encoder.prompts([example.source for example in examples])
    for index, prompt in enumerate(prompts):
        if not len(prompt):
            raise UserError(f"config.{field} row {index + 1} has an empty prompt")
    outputs = encoder.outputs(
        [example.source for example in examples], [example.output or "" for example in examples]
    )
    return Pairs(prompts, outputs)


def get_decoder_info(start: LoadedModel, target: LoadedModel | None) -> ModelInfo:
    """Facts about the decoder of the rows: of a drafter on the target's states its target's."""
    if target is not None and start.model.info.reads_states:
        return target.model.info
    return start.model.info


def batches_of(config: ConfigDict, info: ModelInfo, pairs: Pairs, seed: int) -> Batches:
    """Training batches of rows."""
    return Batches(
        pairs,
        batch_size=config.batch_size,
        bucket=config.bucket,
        seed=seed,
        start_token=info.start_token,
        pad=info.pad,
        learn_prompt=config.learn_prompt,
        forced=len(info.forced),
    )


def streams_of(
    config: ConfigDict,
    encoder: AnyEncoder,
    examples: list[Example],
    target: LoadedModel | None,
    workdir: Path,
) -> dict[str, Pairs]:
    """The rows of each kind of `config.sequences` that has a share.

    The target's outputs are generated, or read from an earlier run.
    """
    pairs = encode(encoder, examples, "train")
    streams = {kind: pairs for kind, share in config.sequences.items() if share > 0}
    if "target" in streams and target is not None:
        file = workdir / OUTPUTS
        outputs = target_outputs(config, encoder, examples, pairs.prompts, target, file)
        streams["target"] = Pairs(pairs.prompts, outputs)
    return streams


def validation_pairs(
    config: ConfigDict,
    encoder: AnyEncoder,
    examples: list[Example],
    target: LoadedModel | None,
    workdir: Path,
) -> Pairs:
    """Validation rows as ids; the target's output replaces a missing one.

    It is generated, or read from an earlier run.
    """
    pairs = encode(encoder, examples, "validation")
    missing = rows_without_output(examples)
    if not missing or target is None:
        return pairs
    prompts = [pairs.prompts[index] for index in missing]
    rows = [examples[index] for index in missing]
    made = target_outputs(config, encoder, rows, prompts, target, workdir / VALIDATION_OUTPUTS)
    outputs = list(pairs.outputs)
    for index, output in zip(missing, made, strict=True):
        outputs[index] = output
    return Pairs(pairs.prompts, RaggedRows(outputs))


def mixture(config: ConfigDict, info: ModelInfo, streams: Mapping[str, Pairs]) -> Mixture:
    """The batches of every step, drawn from the streams by their shares."""
    made = {
        kind: batches_of(config, info, rows, config.seed + place)
        for place, (kind, rows) in enumerate(streams.items())
    }
    weights = {kind: config.sequences[kind] for kind in streams}
    return Mixture(made, weights, config.optimizer.steps, config.seed)


def target_outputs(
    config: ConfigDict,
    encoder: AnyEncoder,
    examples: list[Example],
    ids: Sequence[Ids],
    target: LoadedModel,
    file: Path,
) -> RaggedRows:
    """The target's outputs to learn from, from the file or newly generated."""
    settings = config.target_outputs
    generator = Generator(
        target,
        strategy=autoregressive(temperature=settings.temperature),
        max_new_tokens=config.max_output_tokens,
        max_prompt_tokens=config.max_prompt_tokens,
        bucket=config.bucket,
    )
    prompts = [example.source for example in examples]
    size, seed = settings.batch_size, config.seed
    rows = write_outputs(generator, prompts, ids, file, batch_size=size, seed=seed)
    return RaggedRows(
        encoder.with_heads(prompts, rows) if isinstance(encoder, InputEncoder) else rows
    )
