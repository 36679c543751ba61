"""The script that makes the site of the docs: its options, and the command that it runs."""

from __future__ import annotations

from cluster import launch


def test_help_says_what_it_does():
    done = launch("docs", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--serve" in done.stdout


def test_a_warning_ends_the_build():
    assert launch("docs", "--dry-run").stdout == ".venv/bin/mkdocs build --strict\n"
    assert launch("docs", "--serve", "--dry-run").stdout == ".venv/bin/mkdocs serve --strict\n"


def test_an_unknown_option_is_refused():
    done = launch("docs", "--fast")
    assert done.returncode == 2
    assert "there is no option --fast" in done.stderr
