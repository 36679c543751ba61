"""What the parsers of benchmarks' flags share."""

from __future__ import annotations

import argparse

from specjax.runtime.errors import UserError


class Parser(argparse.ArgumentParser):
    """Says a mistake in one sentence."""

    def error(self, message: str) -> None:
        raise UserError(message)
