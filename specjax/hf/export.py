"""`python -m specjax.hf.export DRAFTER FOLDER --layout=specforge`: for other engines.

Feature drafters and Medusa heads in the layouts that others read
(docs/how_to/published_drafters.md).
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specjax.checks import parse_dtype
from specjax.hf import heads, huggingface, medusa
from specjax.hf.families.dflash_speculators import unlike_kind
from specjax.hf.families.published import ROPES
from specjax.hf.families.rotary import get_rope
from specjax.hf.tokenizer import load_tokenizer
from specjax.models.base import LanguageModel, Params
from specjax.models.dflash import DFlash, DFlashCausalConfig
from specjax.models.eagle import Eagle, EagleCausalConfig
from specjax.models.heads import ResidualHeads
from specjax.models.p_eagle import PEagle, PEagleCausalConfig
from specjax.models.target_shapes import USUAL
from specjax.runtime.errors import UserError

EAGLE = {"specforge": "eagle3", "speculators": "eagle3_speculators"}
"""Families of EAGLE-3 by who writes their layout."""

P_EAGLE = {"specforge": "p_eagle", "speculators": "p_eagle_speculators"}
"""The same of P-EAGLE."""

BLOCKS = {"dflash": "dflash", "speculators": "dflash_speculators"}
"""Families of block drafters by their layout."""

MEDUSA = "medusa"
LAYOUTS = (*EAGLE, "dflash", MEDUSA)


def main(argv: Sequence[str]) -> int:
    """Exports; returns the exit code."""
    flags = _parser().parse_args(list(argv[1:]))
    try:
        export(flags.drafter, flags.folder, flags.layout, flags.target, flags.dtype)
    except UserError as error:
        print(f"specjax: {error}", file=sys.stderr)
        return 2
    print(f"{flags.folder} holds {flags.drafter} in the layout of {flags.layout}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specjax.hf.export",
        description="Writes a feature drafter, or heads on the target, for other engines.",
    )
    parser.add_argument("drafter", help="directory or hub id of a feature drafter, or of heads")
    parser.add_argument("folder", help="where it is written; new, empty or an earlier export")
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        required=True,
        help="specforge, dflash: for SGLang and vLLM; speculators: for `vllm serve FOLDER`;"
        " medusa: for text-generation-inference",
    )
    parser.add_argument(
        "--target", default="", help="name of its target, for speculators and medusa"
    )
    parser.add_argument("--dtype", default="float32", help="of the weights, such as bfloat16")
    return parser


def export(
    name: str | Path, folder: str | Path, layout: str, target: str = "", dtype: Any = "float32"
) -> None:
    """Writes a feature drafter in another layout, with its tokenizer if it has one; or heads.

    Raises:
      UserError: when it cannot be read, or computes what the layout has no words for.
    """
    if layout == MEDUSA:
        _export_heads(name, folder, target, dtype)
        return
    found = huggingface.load(name, parse_dtype(dtype))
    tokenizer = load_tokenizer(
        found.path, found.model.info.vocab_size, source_vocab=found.model.info.source_vocab
    )
    model = in_layout(found.model, found.params, layout, target)
    original = found.original_config if model is found.model else None
    huggingface.save(folder, model, found.params, tokenizer, found.generation, original)


def _export_heads(name: str | Path, folder: str | Path, target: str, dtype: Any) -> None:
    loaded = heads.load(name, parse_dtype(dtype))
    if not isinstance(loaded.heads, ResidualHeads):
        raise UserError(
            f"heads {str(name)!r} hold networks of two layers, for which the layout of {MEDUSA} has"
            " no words; it must be published heads"
        )
    medusa.save(folder, loaded.heads, loaded.params, target or medusa.target_of(name))


def in_layout(
    model: LanguageModel, params: Params, layout: str, target: str = ""
) -> Eagle | DFlash:
    """The drafter as one of a layout; its parameters stay as they are.

    `target` is the name of the model that it drafts for.

    Raises:
      UserError: naming a field of its configuration, and what the layout allows.
    """
    if layout not in {*EAGLE, *BLOCKS}:
        raise UserError(f"layout is {layout!r}; it must be one of {', '.join(LAYOUTS)}")
    config = model.config
    if layout not in EAGLE or (isinstance(model, DFlash) and layout in BLOCKS):
        return _blocks_in_layout(model, layout, target)
    if not isinstance(model, Eagle) or not isinstance(config, EagleCausalConfig):
        raise UserError(
            f"model_type is {config.family!r}; a feature drafter of a decoder-only target is what"
            f" the layout of {layout} is for"
        )
    for field, value, fits, allowed in _demands(config, params, layout):
        if not fits:
            raise UserError(
                f"{field} is {value!r}; for the layout of {layout} it must be {allowed}"
            )
    families = P_EAGLE if isinstance(model, PEagle) else EAGLE
    changed = {"family": families[layout], "target_name": target or config.target_name}
    shape: Any = dataclasses.replace(config, **changed)
    return type(model)(shape)


def _blocks_in_layout(model: LanguageModel, layout: str, target: str) -> DFlash:
    """The block drafter as one of a layout.

    Raises:
      UserError: naming a field of its configuration, and what the layout allows.
    """
    config = model.config
    if not isinstance(model, DFlash) or config.family not in BLOCKS.values():
        raise UserError(
            f"model_type is {config.family!r}; for the layout of {layout} it must be one of"
            f" {', '.join(BLOCKS.values())}, whose masks are a token"
        )
    for field, value, allowed in _block_demands(config, layout):
        raise UserError(f"{field} is {value!r}; for the layout of {layout} it must be {allowed}")
    if config.family == BLOCKS[layout] and not target:
        return model
    name = target or config.target_name
    return DFlash(dataclasses.replace(config, family=BLOCKS[layout], target_name=name))


def _block_demands(config: DFlashCausalConfig, layout: str) -> Iterator[tuple[str, Any, str]]:
    """(field, value, what is allowed) of all that a layout cannot say of a shape."""
    if layout == "speculators":
        yield from unlike_kind(config)
        return
    if config.embedded:
        yield "embed_tokens", "its own", "the target's"
    if config.headed:
        yield "lm_head", "its own", "the target's"


def _demands(
    config: EagleCausalConfig, params: Params, layout: str
) -> Iterator[tuple[str, Any, bool, str]]:
    """(field, value, whether it fits, what is allowed) for all that a layout demands."""
    c, width = config, config.embedding_width or config.target_width
    yield "read_first_token", c.reads_first, not c.reads_first, "False: engines never read it"
    yield "hidden_size", c.d_model, c.d_model == width, f"the embedding's width, {width}"
    if isinstance(c, PEagleCausalConfig):
        yield "mask_token_id", c.mask_token, c.mask_token is not None, "a token of the target"
    else:
        yield "num_hidden_layers", c.num_layers, c.num_layers == 1, "1"
    layers = c.features
    yield "target_layers", layers, not layers or min(layers) > 1, "layers from 2 on"
    kind = get_rope(c).kind
    yield "rope_type", kind, kind in ROPES, f"one of {', '.join(ROPES)}"
    for name in ("qkv_bias", "out_bias", "ff_bias"):
        yield name, getattr(c, name), not getattr(c, name), "False"
    if c.draft_vocab == c.vocab_size and "ids" in params:
        ids = np.asarray(params["ids"])
        rising = bool(np.all(ids[1:] > ids[:-1]))
        yield "draft_ids", "out of order", rising, "rising where all ids can be drafted"
    if layout == "specforge":
        yield "target_layers", layers, c.read == USUAL, f"{USUAL} layers"
        yield "qk_norm", c.qk_norm, not c.qk_norm, "False"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
