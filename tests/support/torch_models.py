"""Random PyTorch models of every family, in the shapes of the golden checkpoints, and their files.

`tests/golden/make_*.py` build and save them; this knows which of them makes which family.
"""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

MAKERS = Path(__file__).parents[1] / "golden"


@functools.cache
def maker(name: str) -> dict[str, Any]:
    """What `tests/golden/make_<name>.py` defines."""
    return runpy.run_path(str(MAKERS / f"make_{name}.py"))


def maker_of(family: str) -> str:
    """The name of the maker with a shape of this name."""
    if family == "whisper":
        return family
    names = ("t5", "bart", "t5gemma", "causal")
    return next(name for name in names if family in maker(name)["SHAPES"])


def make_model(family: str, seed: int, **changes: Any) -> Any:
    """A random model of a golden shape with `changes`."""
    kind = maker_of(family)
    if kind == "causal":
        of, shape = maker(kind)["SHAPES"][family]
        return maker(kind)["build"](of, shape | changes, seed)
    if kind == "t5gemma":
        return maker(kind)["build"](maker(kind)["SHAPES"][family] | changes, seed)
    named = () if kind == "whisper" else (family,)
    return maker(kind)["build"](*named, seed, **changes)


def save(family: str, model: Any, folder: Path) -> None:
    """Writes the checkpoint as published ones of the family are."""
    kind = maker_of(family)
    folder.mkdir(exist_ok=True)
    if kind == "causal":
        model.save_pretrained(folder)
    elif kind == "t5":
        tied = model.lm_head.weight is model.shared.weight
        maker(kind)["save"](model, folder, tied)
    else:
        maker(kind)["save"](model, folder)


def with_more_ends(model: Any, end: int) -> Any:
    """Makes logits of the end vary more, so that texts end early, late and not at all.

    Where the output layer is the embedding, of that too.
    """
    weight = model.get_output_embeddings().weight
    weight.data *= 0.5
    weight.data[end] *= 3.0
    return model
