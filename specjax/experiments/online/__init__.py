"""A stream of texts, decoded while a drafter learns from it (docs/methods/online.md)."""
