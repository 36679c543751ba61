"""What the target is asked for each example: a text, or a user's message in a chat."""

from __future__ import annotations

from ml_collections import ConfigDict

from specjax.chat import chat_prompts
from specjax.data.text import Example
from specjax.loading import LoadedModel


def asked(
    config: ConfigDict, target: LoadedModel, examples: list[Example]
) -> list[str] | list[list[int]]:
    """Sources behind `config.prefix`; with `config.chat` as token ids of chats.

    Raises:
      UserError: when the target's tokenizer has no chat template, or none that fits.
    """
    texts = [config.prefix + example.source for example in examples]
    if not config.chat:
        return texts
    said = config.chat_template_kwargs.to_dict()
    return chat_prompts(target, texts, system=config.system, chat_template_kwargs=said)
