"""Prompts of chat models: texts as a user's messages, in the words of the target's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import TemplateError

from specjax.api import LoadedModel
from specjax.errors import UserError


def chat_prompts(target: LoadedModel, texts: Sequence[str], *, system: str = "") -> list[list[int]]:
    """Token ids of prompts, each a user's message that the target's answer follows.

    A `system` text comes before each of them as a message of its own. The template is the
    tokenizer's, which transformers renders in a sandbox.

    Raises:
      UserError: when there is no template, or it has no place for such messages.
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"texts is {texts!r:.80}; a chat needs a list of texts")
    tokenizer = target.tokenizer
    if tokenizer is None or not tokenizer.chat_template:
        has = "no tokenizer" if tokenizer is None else "a tokenizer without a chat template"
        raise UserError(f"model {target.name!r} has {has}; its prompts can only be plain texts")
    before = [{"role": "system", "content": system}] if system else []
    return [_ids(target, [*before, {"role": "user", "content": text}]) for text in texts]


def _ids(target: LoadedModel, messages: list[dict[str, str]]) -> list[int]:
    try:
        return target.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except (TemplateError, ValueError) as error:
        roles = " and ".join(message["role"] for message in messages)
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"the chat template of model {target.name!r} takes no messages of {roles}: {reason}"
        ) from None
