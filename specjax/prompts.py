"""Encodes prompts into batches of ids or audio features, decodes ids, applies chat templates."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jinja2 import TemplateError

from specjax.checks import check_dictionary, token_ids
from specjax.contracts.catching_up import CHUNK
from specjax.contracts.env import Models
from specjax.data.batching import Batch, Prompt, make_batch, pad_ids
from specjax.loading import LoadedModel
from specjax.models import info
from specjax.models.base import LanguageModel
from specjax.models.info import Input, has_one_size
from specjax.runtime.errors import UserError

KINDS = {
    type(None): "texts or token ids",
    info.Frames: "audio files or waveforms",
    info.Samples: "audio files or waveforms",
    info.Spectrogram: "audio files or waveforms",
    info.Patches: "image files or pixels",
    info.PlacedPatches: "image files or pixels",
    info.EncoderStates: "encoder states",
}
"""Prompts by the type of a target's input."""

LETTERS = 16
"""Characters per token of `max_prompt_tokens` for an early check of long texts."""


class Decodes(Protocol):
    """The interface of a decoder that prompts need, for any loop."""

    @property
    def models(self) -> Models: ...

    @property
    def max_new_tokens(self) -> int: ...

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the models that run, the target first."""
        ...


@dataclasses.dataclass(frozen=True)
class OwnIds:
    """Prompts in the ids of a model with another vocabulary than the target's."""

    tokenizer: Any  # the model's
    fed: np.ndarray  # [V] int32: the model's id for each of the target's
    fewest: int  # fewest tokens, if the target's ids are as many
    most: int | None  # tokens that it has positions for

    def __call__(self, text: str, ids: Prompt) -> list[int]:
        """The model's ids of a prompt with the target's `ids`; of a long prompt its end.

        A prompt that becomes too short is mapped token by token, because calls would otherwise
        begin before it.
        """
        own = list(self.tokenizer(text).input_ids)
        if len(own) < min(len(ids), self.fewest):
            own = self.fed[ids].tolist()
        return own[-self.most :] if self.most else own


def prompt_positions(model: LanguageModel, max_new_tokens: int) -> int | None:
    """Most prompt tokens of a model with positions for `new` more tokens; None: any.

    An encoder has separate positions, which do not help a decoder with too few.
    """
    most = model.info.max_positions
    if most is None:
        return None
    if model.info.start_token is None:
        return most - max_new_tokens
    fits = len(model.info.forced) + max_new_tokens <= most
    return (model.info.source_positions or most) if fits else 0


def make_own_ids(name: str, entry: Any, max_new_tokens: int) -> OwnIds:
    """The prompt encoder of a loaded model of another vocabulary (`in_vocabulary_of`).

    Raises:
      UserError: when its positions leave no room for them.
    """
    model = entry.model
    fewest = 1 if model.info.start_token is not None else CHUNK  # a decoder that does not read them
    most = prompt_positions(model, max_new_tokens)
    if most is not None and most < fewest:
        raise UserError(
            f"max_new_tokens is {max_new_tokens}; model {name!r} has {model.info.max_positions}"
            f" positions, of which a prompt needs {fewest}"
        )
    return OwnIds(entry.own_tokenizer, np.asarray(entry.params["fed"]), fewest, most)


def make_all_own_ids(loaded: Mapping[str, Any], max_new_tokens: int) -> dict[str, OwnIds]:
    """The prompt encoders of the loaded models with another vocabulary."""
    return {
        name: make_own_ids(name, entry, max_new_tokens)
        for name, entry in loaded.items()
        if entry.own_tokenizer is not None and entry.model.info.input is None
    }


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Encodes prompts for a decode, and pads them to few shapes."""

    tokenizer: Any  # None: prompts are token ids
    decoder: Decodes
    max_prompt_tokens: int
    bucket: int
    own: Mapping[str, OwnIds] = dataclasses.field(default_factory=dict)  # by model
    extractor: Any = None  # of a model that reads audio or images (`hf.extractor`, `hf.images`)

    @property
    def models(self) -> dict[str, LanguageModel]:
        """Names of the models that run, the target first."""
        known = dict(self.decoder.models)
        return {name: known[name] for name in self.decoder.used}

    @property
    def input(self) -> Input | None:
        """The shape of audio or image prompts; None: prompts are tokens."""
        return self._target.info.input

    @property
    def has_one_size(self) -> bool:
        """Whether all prompts are as long."""
        return has_one_size(self.input)

    @property
    def pad(self) -> int:
        """The token that pads prompts."""
        return self._target.info.pad

    @property
    def _target(self) -> LanguageModel:
        return next(iter(self.models.values()))

    def encode(self, prompts: Sequence[Any]) -> list[Prompt]:
        """Token ids of prompts, or audio features; checks that all can be decoded.

        A single text is a list of one.

        Raises:
          UserError: when they are invalid.
        """
        kinds = KINDS[type(self.input)]
        if isinstance(prompts, str):
            prompts = [prompts]
        if not isinstance(prompts, Iterable):
            raise UserError(f"prompts is {prompts!r}; it must be a list of {kinds}")
        rows = [self.encode_one(index, prompt) for index, prompt in enumerate(prompts)]
        if not rows:
            raise UserError("prompts is empty; there is nothing to decode")
        return rows

    def encode_one(self, index: int, prompt: Any) -> Prompt:
        """Token ids or audio features of the prompt `index`; checks that it can be decoded.

        Raises:
          UserError: when it is invalid, naming the index.
        """
        return self._features(index, prompt) if self.input else self._ids(index, prompt)

    def _features(self, index: int, prompt: Any) -> np.ndarray:
        if self.extractor is None:
            kinds = KINDS[type(self.input)]
            raise UserError(f"prompts holds {kinds}, but the target has no feature extractor")
        self.check_room()
        return self.extractor(f"prompt {index}", prompt)

    def _ids(self, index: int, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            prompt = self._tokens(index, prompt)
        sources = [
            model.info.source_vocab for model in self.models.values() if model.info.source_vocab
        ]
        vocabulary = min(sources or [model.info.vocab_size for model in self.models.values()])
        row = token_ids(f"prompt {index}", prompt, vocabulary)
        if not 1 <= len(row) <= self.max_prompt_tokens:
            raise UserError(
                f"prompt {index} has {len(row)} tokens; max_prompt_tokens allows 1 to"
                f" {self.max_prompt_tokens}"
            )
        self._check_positions(index, len(row))
        return row

    def _tokens(self, index: int, text: str) -> list[int]:
        if self.tokenizer is None:
            raise UserError("prompts holds texts, but the target has no tokenizer")
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UserError(f"prompt {index} has half a character; it must be a whole text")
        self._check_length(index, text)
        return self.tokenizer(text).input_ids

    def _check_length(self, index: int, text: str) -> None:
        """Refuses a far too long text by its beginning: encoding megabytes takes a minute."""
        beginning = text[: LETTERS * self.max_prompt_tokens]
        if len(text) > 2 * len(beginning):
            count = len(self.tokenizer(beginning).input_ids)
            if count > 2 * self.max_prompt_tokens:
                raise UserError(
                    f"prompt {index} has {len(text):,} characters, of which the first"
                    f" {len(beginning):,} are {count:,} tokens; max_prompt_tokens allows 1 to"
                    f" {self.max_prompt_tokens}"
                )

    def check_room(self) -> None:
        """Refuses audio if the decoder has too few positions for the new tokens.

        Raises:
          UserError: when a model has too few of them.
        """
        for name, model in self.models.items():
            prefix, new = len(model.info.prefix), self.decoder.max_new_tokens
            most = model.info.max_positions
            if most is not None and prompt_positions(model, new) == 0:
                raise UserError(
                    f"max_new_tokens is {new}; after the {prefix} tokens that a text begins with"
                    f" model {name!r} has positions for {most - prefix + 1}"
                )

    def _check_positions(self, index: int, length: int) -> None:
        """Refuses texts beyond a model's table of positions."""
        for name, model in self.models.items():
            new = self.decoder.max_new_tokens
            most = prompt_positions(model, new) if name not in self.own else None
            if most is not None and length > most:
                share = "both" if model.info.start_token is None else "each"
                if model.info.source_positions is not None:
                    share = f"new tokens and {model.info.source_positions} for prompts"
                raise UserError(
                    f"prompt {index} has {length} tokens, and max_new_tokens is {new}; model"
                    f" {name!r} has {model.info.max_positions} positions for {share}"
                )

    def batch(
        self, ids: Sequence[Prompt], size: int, first: int = 0, own_most: int | None = None
    ) -> Batch:
        """Rows `first ..` padded to a compiled shape; missing rows decode nothing.

        With `bucket` 0 that is as wide as the longest of them. Of prompts with more than `own_most`
        tokens in a model's own vocabulary, that model gets the end.
        """
        bucket = 1 if self.has_one_size else self.bucket or 1
        made = make_batch(
            ids,
            size,
            first=first,
            pad=self.pad,
            bucket=bucket,
            limit=self.decoder.max_new_tokens,
        )
        texts = self.texts(ids) if self.own else []
        own = {
            name: pad_ids(
                [own[-own_most:] if own_most else own for own in map(encode_own, texts, ids)],
                size,
                0,
                bucket,
            )
            for name, encode_own in self.own.items()
        }
        return dataclasses.replace(made, own=own)

    def decode(self, tokens: Sequence[Prompt]) -> list[str] | None:
        """Texts of generated ids without special tokens; None without a tokenizer."""
        return None if self.tokenizer is None else self.texts(tokens)

    def texts(self, tokens: Sequence[Prompt]) -> list[str]:
        """Texts of generated ids, for a model with a tokenizer.

        Raises:
          ValueError: when there is none.
        """
        if self.tokenizer is None:
            raise ValueError("tokenizer is None; texts need one")
        return self.tokenizer.batch_decode(tokens, skip_special_tokens=True)


OWN = frozenset(
    """
    add_generation_prompt chat_template continue_final_message conversation documents max_length
    messages padding return_assistant_tokens_mask return_dict return_tensors tokenize
    tokenizer_kwargs tools truncation
    """.split()  # noqa: SIM905
)
"""Reserved arguments of transformers' `apply_chat_template`."""


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
    variables = dict(chat_template_kwargs or {})
    _check_read(target, variables)
    return [_ids(target, messages, variables) for messages in conversations]


def _conversation(given: Any, system: str) -> list[dict[str, str]]:
    """The messages of a text or a conversation, the system's before them.

    Raises:
      UserError: when it is neither, or its last message is not to be answered.
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
    """Refuses invalid variables of a chat template.

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


def _check_read(target: LoadedModel, variables: Mapping[str, Any]) -> None:
    """Refuses variables that the template does not read, which would change nothing."""
    template = target.tokenizer.get_chat_template() if variables else ""
    for name in variables:
        if not re.search(rf"\b{name}\b", template):
            raise UserError(
                f"chat_template_kwargs has {name!r}, which the chat template of model"
                f" {target.name!r} does not read; leave it out"
            )


def _ids(
    target: LoadedModel, messages: list[dict[str, str]], variables: Mapping[str, Any]
) -> list[int]:
    try:
        return target.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, **variables
        )
    except (TemplateError, TypeError, ValueError) as error:
        roles = " and ".join(message["role"] for message in messages)
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"the chat template of model {target.name!r} takes no messages of {roles}: {reason}"
        ) from None
