"""Prompts of chat models: texts as a user's messages, in the words of the target's tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from specjax.checks import check_dictionary
from specjax.errors import UserError
from specjax.loading import LoadedModel

OWN = frozenset(
    """
    add_generation_prompt chat_template continue_final_message conversation documents max_length
    messages padding return_assistant_tokens_mask return_dict return_tensors tokenize
    tokenizer_kwargs tools truncation
    """.split()  # noqa: SIM905
)
"""Arguments of transformers' `apply_chat_template` that say something else, or are said here."""


def chat_prompts(
    target: LoadedModel,
    texts: Sequence[str | Sequence[Mapping[str, str]]],
    *,
    system: str = "",
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> list[list[int]]:
    """Token ids of prompts, each a user's message that the target's answer follows.

    In place of a text there may be a conversation: messages with a `role` and a `content`, the last
    of them one to answer. A `system` text comes before each as a message of its own. The template
    is the tokenizer's, which transformers renders in a sandbox; `chat_template_kwargs` are
    variables that it reads, as Qwen3's `{"enable_thinking": False}`.

    Raises:
      UserError: when there is no template, or it has no place for such messages and variables.
    """
    if isinstance(texts, str):
        raise UserError(f"texts is {texts!r:.80}; a chat needs a list of texts or conversations")
    conversations = [_conversation(text, system) for text in texts]
    tokenizer = target.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        has = "no tokenizer" if tokenizer is None else "a tokenizer without a chat template"
        raise UserError(f"model {target.name!r} has {has}; its prompts can only be plain texts")
    check_chat_template_kwargs(chat_template_kwargs)
    said = dict(chat_template_kwargs or {})
    _check_read(target, said)
    return [_ids(target, messages, said) for messages in conversations]


def _conversation(given: Any, system: str) -> list[dict[str, str]]:
    """The messages of a text or a conversation, the system's before them.

    Raises:
      UserError: when it is neither, or nothing of it is to be answered.
    """
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list | tuple) or not messages:
        raise UserError(f"texts has {given!r:.80}; a chat needs a list of texts or conversations")
    for message in messages:
        parts = message if isinstance(message, Mapping) else {}
        if {*parts} != {"role", "content"} or not all(isinstance(x, str) for x in parts.values()):
            raise UserError(
                f"texts has the message {message!r:.80}; a chat needs a list of texts or"
                " conversations, whose messages have a role and a content, both texts"
            )
    if messages[-1]["role"] == "assistant":
        raise UserError("texts has a conversation that ends with the assistant, not before it")
    if system and messages[0]["role"] == "system":
        raise UserError(f"system is {system!r:.80}; it must be empty: a conversation has its own")
    before = [{"role": "system", "content": system}] if system else []
    return [*before, *map(dict, messages)]


def check_chat_template_kwargs(given: Any, where: str = "") -> None:
    """Refuses what no variables of a template are.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_dictionary(f"{where}chat_template_kwargs", given)
    for name, value in (given or {}).items():
        if not (isinstance(name, str) and name.isidentifier()) or name in OWN:
            raise UserError(
                f"{where}chat_template_kwargs has {name!r}; it must have names of variables that a"
                f" template reads and that are none of {', '.join(sorted(OWN))}"
            )
        if not isinstance(value, bool | int | float | str | None):
            raise UserError(
                f"{where}chat_template_kwargs.{name} is {value!r:.80}; it must be True, False, a"
                " number, a text or None"
            )


def _check_read(target: LoadedModel, said: Mapping[str, Any]) -> None:
    """Refuses variables that the template does not read, which would change nothing."""
    template = target.tokenizer.get_chat_template() if said else ""
    for name in said:
        if not re.search(rf"\b{name}\b", template):
            raise UserError(
                f"chat_template_kwargs has {name!r}, which the chat template of model"
                f" {target.name!r} does not read; leave it out"
            )


def _ids(target: LoadedModel, messages: list[dict[str, str]], said: Mapping[str, Any]) -> list[int]:
    try:
        return target.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **said
        )
    except (TemplateError, TypeError, ValueError) as error:
        roles = " and ".join(message["role"] for message in messages)
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"the chat template of model {target.name!r} takes no messages of {roles}: {reason}"
        ) from None
