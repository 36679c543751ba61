"""Parts of the tests: together all of them, none twice."""

from __future__ import annotations

import pytest
from parts import Parts

NAMES = [f"tests/test_some.py::test_it[{number}]" for number in range(200)]


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_every_test_is_of_one_part(parts):
    made = [Parts(f"{part}/{parts}") for part in range(parts)]
    assert all(sum(part.has(name) for part in made) == 1 for name in NAMES)


def test_halves_are_nearly_equal():
    assert 80 <= sum(map(Parts("0/2").has, NAMES)) <= 120


@pytest.mark.parametrize("part", ["2/2", "half", "1", "-1/2", "0/0"])
def test_what_is_no_part_is_refused(part):
    with pytest.raises(pytest.UsageError, match="it must be I/N with I from 0"):
        Parts(part)


def test_a_run_of_a_part_leaves_out_the_others(pytester):
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test(n): pass"
    )
    for part in range(2):
        plugin = Parts(f"{part}/2")
        result = pytester.inline_run("--collect-only", plugins=[plugin])
        kept = [
            item.nodeid for item in result.getcalls("pytest_collection_finish")[0].session.items
        ]
        assert kept and all(map(plugin.has, kept)) and len(kept) < 20
