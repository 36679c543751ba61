"""What holds for every registered thing: a summary, an example that builds, tables and help."""

from __future__ import annotations

import dataclasses
import re
import sys
import types

import pytest

from specjax.contracts import fields, reference
from specjax.contracts.fields import build, get_config_fields, merge_fields
from specjax.contracts.registry import (
    DRAFTERS,
    FAMILIES,
    METRICS,
    OBJECTIVES,
    READERS,
    RULES,
    TASKS,
    Registry,
)

REGISTRIES = (DRAFTERS, READERS, RULES, OBJECTIVES, TASKS, METRICS, FAMILIES)
ENTRIES = {
    f"{registry.kind} {name}": entry for registry in REGISTRIES for name, entry in registry.items()
}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_entry_says_what_it_is(entry):
    # A dataclass without a docstring is given one that spells its fields.
    assert entry.summary.endswith(".") and not entry.summary.startswith(entry.cls.__name__ + "(")
    assert entry.cls.__doc__ not in [base.__doc__ for base in entry.cls.__mro__[1:]]


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_an_example_builds_and_keeps_to_the_schema(entry):
    known = get_config_fields(entry.cls)
    needed = {name for name, field in known.items() if field.required}
    assert needed <= entry.example.keys() <= known.keys()
    values = {name: known[name].value(name, value) for name, value in entry.example.items()}
    made, _ = build(entry.cls, values)
    assert hash(made) == hash(build(entry.cls, values)[0]) or not known
    for name, field in known.items():
        assert field.help
        if not field.required and field.default is not None:
            assert field.value(name, field.default) == field.default


PAGES = sorted(reference.DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_of_the_docs_are_current(page):
    """`python -m specjax.contracts.reference` writes them."""
    text = page.read_text("utf-8")
    assert reference.fill_tables(text) == text


def read_items(table: str) -> list[tuple[str, str]]:
    """Owner and field of every item of a list of fields."""
    found, owners = [], []
    for line in table.splitlines():
        field = re.match(r" *- `(\w+)[^`]*`(?!.*:$)", line)
        if line.startswith("- "):
            owners = re.findall(r"`(\w+)", line.partition(": ")[0])
        if field:
            found += [(owner, field[1]) for owner in owners]
    return found


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_the_docs_have_a_table_of_every_kind_and_help_has_every_field(registry):
    docs = "".join(page.read_text("utf-8") for page in PAGES)
    assert docs.count(f"<!-- table: {registry.kind} -->") == 1
    table, words = reference.format_table(registry), reference.format_help(registry)
    assert max(map(len, words.splitlines())) <= reference.WIDTH
    items = read_items(table)
    for name, entry in registry.items():
        assert f"  {name}: " in words
        if not entry.cls.__module__.startswith(registry.package):
            continue  # a test's own
        assert f"| `{name}` | {entry.summary} |" in table or f": {entry.summary}\n" in table
        for field in get_config_fields(entry.cls):
            assert items.count((name, field)) == 1
            assert f"    {field}: " in words


def test_a_page_is_written_only_where_it_asks_for_a_table(tmp_path, capsys):
    (tmp_path / "plain.md").write_text("# Nothing\n")
    page = tmp_path / "metrics.md"
    page.write_text("above\n<!-- table: metric -->\nold\n<!-- end of table -->\nbelow\n")
    reference.main(tmp_path)
    assert capsys.readouterr().out == "metrics.md\n"
    written = page.read_text()
    assert reference.format_table(METRICS) in written and "old" not in written
    assert written.startswith("above\n") and written.endswith("\nbelow\n")
    with pytest.raises(ValueError, match="table is 'verb'; it must be one of drafter, "):
        reference.fill_tables("<!-- table: verb -->\n<!-- end of table -->")


@dataclasses.dataclass(frozen=True)
class First:
    size: int = fields.integer(help="how large")
    share: float = fields.number(0.5, bounds="[0, 1]", help="of what")


@dataclasses.dataclass(frozen=True)
class Second:
    share: float = fields.number(0.25, bounds="[0, 1]", help="of what")


def test_fields_side_by_side_must_agree_on_their_defaults():
    known = merge_fields([First, First, int])
    assert {name: field.stand_in for name, field in known.items()} == {"size": 0, "share": 0.5}
    with pytest.raises(ValueError, match="Second has another default or kind of field 'share'"):
        merge_fields([First, Second])


def test_a_name_belongs_to_one_class():
    registry = Registry("thing", "specjax.metrics")
    registry.register("first")(First)
    registry.register("first")(First)  # the module was imported twice
    with pytest.raises(ValueError, match="thing 'first' is registered already"):
        registry.register("first")(Second)
    assert list(registry) == ["first"] and registry.get_name(First) == "first"


def test_a_name_of_the_package_is_taken_before_anybody_looked_it_up(tmp_path, monkeypatch):
    registry = Registry("thing", "late")
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "__init__.py").write_text("")
    (tmp_path / "late" / "one.py").write_text("import rack\nrack.registry.register('first')(int)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "rack", types.SimpleNamespace(registry=registry))
    with pytest.raises(ValueError, match="thing 'first' is registered already, as <class 'int'>"):
        registry.register("first")(First)


def test_a_package_that_cannot_be_imported_is_no_empty_registry():
    registry = Registry("thing", "specjax.nowhere")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            len(registry)
