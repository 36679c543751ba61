"""Loads, trains and compares tokenizers of checkpoints."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer, LlamaTokenizer, PreTrainedTokenizerFast

from specjax.data.two_vocabularies import has_two, text_ids, text_vocabulary
from specjax.hf.gguf.header import is_gguf
from specjax.hf.gguf.tokenizer import read_tokenizer
from specjax.hf.languages import read_in
from specjax.models.base import LanguageModel
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import read_json

FILE = "tokenizer.json"
VOCABULARIES = (FILE, "*.model", "vocab.json", "vocab.txt")
"""Files of which a tokenizer is made; the others only describe it."""
LLAMA = "tokenizer.model"
OWN = ("eagle_", "p_eagle_", "dflash_")
"""Beginnings of the model types that are this project's."""
DESCRIPTIONS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def load_tokenizer(
    path: Path,
    vocab_size: int | None = None,
    language: str = "",
    source_vocab: int | None = None,
) -> Any:
    """The tokenizer in a checkpoint directory or GGUF file, None when it has none.

    `language` is the code of the prompts' language, where it has codes; `source_vocab` is how many
    ids prompts have, where they are not the texts'.

    Raises:
      UserError: when a file is damaged, a token has no place in a model of `vocab_size`, or there
        is no such language.
    """
    if is_gguf(path):
        return read_in(_check_vocabulary(path, read_tokenizer(path), vocab_size), language)
    stored = [name for pattern in VOCABULARIES for name in path.glob(pattern)]
    described = [path / name for name in DESCRIPTIONS if (path / name).exists()]
    if not stored and not described:
        return read_in(None, language)
    for file in described:
        read_json(file)
    tokenizer = _read(path) if stored else _without_vocabulary(path, described)
    return read_in(_check_vocabulary(path, tokenizer, vocab_size, source_vocab), language)


def _without_vocabulary(path: Path, described: list[Path]) -> Any:
    """A byte tokenizer; refuses others, which transformers would build without a vocabulary."""
    with contextlib.suppress(UserError):
        tokenizer = _read(path)
        if not tokenizer.vocab_files_names:
            return tokenizer
    raise UserError(
        f"tokenizer of {str(path)!r} has {described[0].name} but no vocabulary: none of"
        f" {', '.join(VOCABULARIES)} is there"
    )


def _read(path: Path) -> Any:
    """Loads the tokenizer with transformers from its files, or from only `tokenizer.json`."""
    if not (path / FILE).exists():
        for file in path.glob("*.model"):
            _check_sentencepiece(file)
        if (path / LLAMA).exists() and not (path / DESCRIPTIONS[0]).exists():
            # Undescribed, transformers 5 reads it without the space and the <s> of all its models.
            return LlamaTokenizer.from_pretrained(path, add_bos_token=True)
    # Damaged files raise various exceptions; the Rust library raises plain Exceptions.
    try:
        if _is_own(path):
            return PreTrainedTokenizerFast.from_pretrained(path)
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except Exception as error:
        if not (path / FILE).exists():
            raise _unreadable(path, error) from None
    try:
        return PreTrainedTokenizerFast(tokenizer_file=str(path / FILE))
    except Exception as error:
        raise _unreadable(path / FILE, error) from None


def _is_own(path: Path) -> bool:
    """Whether its model is unknown to transformers, which would warn about it."""
    config = path / "config.json"
    return config.exists() and str(read_json(config).get("model_type")).startswith(OWN)


def _check_sentencepiece(file: Path) -> None:
    """Refuses what is no sentencepiece model: transformers would take it for another format."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise UserError(
            f"tokenizer {str(file)!r} needs the package sentencepiece: pip install sentencepiece"
        ) from None
    try:
        SentencePieceProcessor(model_file=str(file))
    except (OSError, RuntimeError):
        raise UserError(
            f"tokenizer {str(file)!r} cannot be read: it is no sentencepiece model"
        ) from None


def _unreadable(path: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split()).split(". ")[0] or type(error).__name__
    return UserError(f"tokenizer of {str(path)!r} cannot be read: {reason[:SHOWN_OF_REASON]}")


SHOWN_OF_REASON = 200
"""Most characters of another library's message in an error."""


def _check_vocabulary(
    path: Path, tokenizer: Any, vocab_size: int | None, source_vocab: int | None = None
) -> Any:
    """The tokenizer; refuses tokens without an embedding, which would be decoded as others."""
    if tokenizer is not None and vocab_size is not None:
        _check_fits(path, tokenizer.get_vocab(), source_vocab or vocab_size)
        _check_fits(path, text_vocabulary(tokenizer), vocab_size)
    return tokenizer


def _check_fits(path: Path, vocabulary: dict[str, int], vocab_size: int) -> None:
    """Refuses a vocabulary that has ids beyond those of a model."""
    piece, token = max(vocabulary.items(), key=lambda item: item[1], default=("", -1))
    if token >= vocab_size:
        raise UserError(
            f"tokenizer of {str(path)!r} has {piece!r} as token {token}; the model has embeddings"
            f" for {vocab_size} tokens, 0 to {vocab_size - 1}"
        )


AT_ONCE = 1000
"""Texts that are tokenized together: enough to keep all cores busy."""


def token_ids(tokenizer: Any, texts: Iterable[str], *, special: bool = True) -> Iterator[list[int]]:
    """Token ids of texts one after another, with what the tokenizer appends if `special`."""
    texts = iter(texts)
    while chunk := list(itertools.islice(texts, AT_ONCE)):
        yield from tokenizer(
            chunk, add_special_tokens=special, return_attention_mask=False
        ).input_ids


def written_ids(tokenizer: Any, model: LanguageModel, texts: Iterable[str]) -> Iterator[list[int]]:
    """Token ids of texts as a model writes them, with what its tokenizer appends.

    A tokenizer for speech begins texts with the decoder's forced tokens, which are not generated.
    """
    if has_two(tokenizer):
        texts = iter(texts)
        while chunk := list(itertools.islice(texts, AT_ONCE)):
            yield from text_ids(tokenizer, chunk)
        return
    if not model.info.input:
        yield from token_ids(tokenizer, texts)
        return
    for ids in token_ids(tokenizer, texts, special=False):
        yield [*ids, *model.info.eos[:1]]


SHOWN = 3
"""Most differing pieces in an error message."""


def check_same_vocabulary(name: str, drafter: Any, target: Any) -> None:
    """Refuses a drafter whose ids differ from the target's.

    Widths may differ: they are padded to round numbers, and what is not common is cut
    (`models.vocabularies`).

    Raises:
      UserError: when a piece has another id, or a vocabulary is too small for the tokenizer.
    """
    if drafter.tokenizer is None or target.tokenizer is None:
        _check_widths(name, drafter, target)
        return
    theirs = text_vocabulary(target.tokenizer)
    for vocabulary in (lambda tokenizer: tokenizer.get_vocab(), text_vocabulary):
        _check_same(name, vocabulary(drafter.tokenizer), vocabulary(target.tokenizer))
    if drafter.model.info.vocab_size <= max(theirs.values()):
        raise UserError(
            f"drafter {name!r} has a vocabulary of {drafter.model.info.vocab_size}, too small for"
            f" the ids up to {max(theirs.values())} of its target's tokenizer"
        )


def _check_same(name: str, ours: dict[str, int], theirs: dict[str, int]) -> None:
    differing = _find_different(ours, theirs)
    if differing:
        shown = "; ".join(
            f"{piece!r} is id {theirs[piece]} for the target and {ours.get(piece, 'absent')} for"
            " the drafter"
            for piece in differing[:SHOWN]
        )
        raise UserError(
            f"drafter {name!r} has another tokenizer than the target, {len(differing)} of"
            f" {len(theirs)} pieces differ: {shown}"
        )


def are_same(drafter: Any, target: Any) -> bool:
    """Whether all pieces of the target's tokenizer have the same ids in the drafter's."""
    prompts = _find_different(drafter.get_vocab(), target.get_vocab())
    return not (prompts or _find_different(text_vocabulary(drafter), text_vocabulary(target)))


def _find_different(ours: dict[str, int], theirs: dict[str, int]) -> list[str]:
    """Pieces that have another id, or none, in the first vocabulary, by their id."""
    differing = (piece for piece in theirs if ours.get(piece) != theirs[piece])
    return sorted(differing, key=theirs.__getitem__)


def _check_widths(name: str, drafter: Any, target: Any) -> None:
    """Without tokenizers only equal widths are a sign of the same vocabulary."""
    if drafter.model.info.vocab_size != target.model.info.vocab_size:
        raise UserError(
            f"drafter {name!r} has a vocabulary of {drafter.model.info.vocab_size}, the target of"
            f" {target.model.info.vocab_size}; without tokenizers to compare they must be the same"
        )


PAD, EOS, UNKNOWN = "<pad>", "</s>", "<unk>"
"""Special tokens of a tokenizer trained here: ids 0, 1 and 2, as T5 has them."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-pair tokenizer of at most `vocab_size` pieces that appends EOS, as T5's does."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.NFKC()
    # Splits off punctuation, otherwise every word would be learned again with a full stop.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    specials = [PAD, EOS, UNKNOWN]
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        # Characters come before pieces; without a limit rare ones would go beyond the size.
        limit_alphabet=vocab_size - len(specials),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN
    )


BYTE_SPECIALS = ("<|endoftext|>", "<|pad|>")
"""Special tokens of a byte-level tokenizer trained here: ids 0 and 1."""
BYTES = 256


def train_byte_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level byte-pair tokenizer of at most `vocab_size` pieces for decoder-only models.

    Every text comes back as it was, no token is unknown, and nothing is appended: a prompt that is
    to be continued must not end with EOS. `vocab_size` is at least the bytes and two specials.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(BYTE_SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    end, pad = BYTE_SPECIALS
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=pad)
