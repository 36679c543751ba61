"""What the parsers of benchmarks' flags share."""

from __future__ import annotations

import argparse

from specjax.data.text import read_examples
from specjax.runtime.errors import UserError


class Parser(argparse.ArgumentParser):
    """Says a mistake in one sentence."""

    def error(self, message: str) -> None:
        raise UserError(message)


def add_prompt_flags(parser: argparse.ArgumentParser, *, drafter_required: bool = False) -> None:
    """Adds the flags of a pair of models and of its prompts."""
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=drafter_required, help="directory or hub id")
    parser.add_argument("--source_file", required=True, help="a prompt on each line, or JSON rows")
    parser.add_argument("--source_field", default="source", help="of JSON rows")
    parser.add_argument("--template", default="{}", help="of a prompt, \\n for a line's end")


def read_prompts(args: argparse.Namespace, count: int) -> list[str]:
    """The first `count` prompts of these flags.

    Raises:
      UserError: when they cannot be read.
    """
    template = args.template.replace("\\n", "\n")
    rows = read_examples(args.source_file, source_field=args.source_field)
    return [template.format(row.source) for row in rows[:count]]
