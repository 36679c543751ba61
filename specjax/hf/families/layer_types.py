"""Which layers have a sliding window: `layer_types`, a field that many families have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.hf.families.schema import shown
from specjax.models.causal import CausalConfig

KINDS = ("full_attention", "sliding_attention")


def windows_of(kinds: Any, layers: int, window: int | None, needed: str) -> tuple[int, ...]:
    """The window of each of the `layers`, 0 for none; empty where none slides.

    Raises:
      ValueError: when the `kinds` are not those of so many layers, or some slide without a
        `window`, saying what is `needed` for it.
    """
    known = isinstance(kinds, list) and all(kind in KINDS for kind in kinds)
    if not known or len(kinds) != layers:
        raise ValueError(
            f"layer_types is {shown(kinds)}; it must name each of the {layers} layers"
            f" {' or '.join(map(repr, KINDS))}"
        )
    slides = [kind == "sliding_attention" for kind in kinds]
    if not any(slides):
        return ()
    if window is None:
        raise ValueError(f"layer_types is {shown(kinds)}; layers that slide need {needed}")
    return tuple(window if slide else 0 for slide in slides)


def same_windows(fields: Mapping[str, Any]) -> tuple[int, ...]:
    """The windows of a family all of whose layers slide, unless `sliding_window` is null.

    Raises:
      ValueError: when `layer_types` says otherwise: Hugging Face's masks do not look at it, but its
        caches do.
    """
    window, layers = fields["sliding_window"], fields["num_hidden_layers"]
    kinds = [KINDS[window is not None]] * layers
    if fields["layer_types"] not in (None, kinds):
        raise ValueError(
            f"layer_types is {shown(fields['layer_types'])}; with sliding_window {window} every one"
            f" of the {layers} layers is {kinds[0]!r}"
        )
    return (window,) * layers if window else ()


def windows_to_hf(config: CausalConfig) -> dict[str, Any]:
    """`sliding_window` and `layer_types` of a shape whose windows are of one size."""
    windows = config.layer_windows
    return {
        "sliding_window": max(windows) or None,
        "layer_types": [KINDS[window > 0] for window in windows],
    }
