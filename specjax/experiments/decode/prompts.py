"""Prompts of examples: texts, chat messages, turns after the target's own answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.data.text import Example
from specjax.experiments.train.target_outputs import write_outputs
from specjax.loading import LoadedModel
from specjax.prompts import chat_prompts
from specjax.runtime.errors import UserError

ANSWERS = "earlier_answers_{}.jsonl"
"""File in the workdir: the target's answers to turn N, counted from 1."""

Turns = tuple[str, ...]
"""The user's messages in a conversation so far."""


def make_prompts(
    config: ConfigDict, target: LoadedModel, examples: Sequence[Example], workdir: Path
) -> list[str] | list[list[int]]:
    """Each example's source after `config.prefix`; with `config.chat` token ids of its chat.

    The target's answers to earlier messages are written to the workdir and read from there.

    Raises:
      UserError: when the target's tokenizer has no chat template, or none that fits, or examples
        with earlier messages are no chat.
    """
    if not any(example.earlier for example in examples):
        texts = [config.prefix + example.source for example in examples]
        return chat_prompts_by(config, target, texts) if config.chat else texts
    if not config.chat:
        raise UserError(
            f"config.chat is False, and task {config.task!r} has messages that follow answers; it"
            " must be True, or config.turns 1, which decodes first messages alone"
        )
    answers: dict[Turns, str] = {}
    for number in range(1, 1 + max(len(example.earlier) for example in examples)):
        known = (one.earlier[:number] for one in examples if len(one.earlier) >= number)
        turns = list(dict.fromkeys(known))
        answers |= _answers(config, target, turns, answers, workdir / ANSWERS.format(number))
    conversations = [
        messages((*example.earlier, config.prefix + example.source), answers)
        for example in examples
    ]
    return chat_prompts_by(config, target, conversations)


def chat_prompts_by(
    config: ConfigDict, model: LoadedModel, texts: Sequence[str | Sequence[Mapping[str, str]]]
) -> list[list[int]]:
    """Token ids of messages or conversations, by a config's system message and variables.

    Raises:
      UserError: when the model's tokenizer has no chat template, or none that fits.
    """
    variables = config.chat_template_kwargs.to_dict()
    return chat_prompts(model, texts, system=config.system, chat_template_kwargs=variables)


def messages(turns: Turns, answers: Mapping[Turns, str]) -> list[dict[str, str]]:
    """A conversation that ends with the last of the user's turns."""
    conversation = []
    for place, turn in enumerate(turns):
        conversation.append({"role": "user", "content": turn})
        if place + 1 < len(turns):
            answer = answers[turns[: place + 1]]
            conversation.append({"role": "assistant", "content": answer})
    return conversation


def _answers(
    config: ConfigDict,
    target: LoadedModel,
    turns: Sequence[Turns],
    answers: Mapping[Turns, str],
    file: Path,
) -> dict[Turns, str]:
    """The target's greedy answer to the last of each conversation's turns."""
    generator = Generator(
        target,
        max_new_tokens=config.max_new_tokens,
        max_prompt_tokens=config.max_prompt_tokens,
        bucket=config.bucket,
    )
    ids = chat_prompts_by(config, target, [messages(one, answers) for one in turns])
    rows = write_outputs(
        generator,
        [json.dumps(one, ensure_ascii=False) for one in turns],
        generator.encode(ids),
        file,
        batch_size=config.batch_size,
        seed=config.seed,
        title="earlier turns",
    )
    return dict(zip(turns, generator.prompts.texts(rows), strict=True))
