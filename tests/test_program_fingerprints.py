"""Fingerprints of decode programs: names are invisible, all else is seen; what is compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import programs  # noqa: E402
from programs_cases import cases  # noqa: E402
from programs_models import lower_program  # noqa: E402
from programs_text import normalize, operations  # noqa: E402

from specjax.contracts.registry import DRAFTERS, READERS, RULES  # noqa: E402
from specjax.decoding.strategy import Strategy  # noqa: E402

TEXT = """\
#loc1 = loc("one.py":1:2)
module @jit_run attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2xi32>) -> (tensor<2xi32> {jax.result_info = "result.a"}) {
    %c = stablehlo.constant dense<3> : tensor<i32>
    %0 = call @_where(%arg0, %c) : (tensor<2xi32>, tensor<i32>) -> tensor<2xi32>
    %1:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %0) : tensor<i32>, tensor<2xi32>
    cond {
      %2 = stablehlo.compare LT, %iterArg, %c : (tensor<i32>, tensor<i32>) -> tensor<i1> loc(#loc1)
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = call @_where_1(%iterArg_0, %c) : (tensor<2xi32>, tensor<i32>) -> tensor<2xi32>
      stablehlo.return %iterArg, %2 : tensor<i32>, tensor<2xi32>
    }
    return %1#1 : tensor<2xi32>
  }
  func.func private @_where(%arg0: tensor<2xi32>, %arg1: tensor<i32>) -> tensor<2xi32> {
    return %arg0 : tensor<2xi32>
  }
  func.func private @_where_1(%arg0: tensor<2xi32>, %arg1: tensor<i32>) -> tensor<2xi32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<2xi32>
    return %0 : tensor<2xi32>
  }
}
"""


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """What the tool sets of jax does not outlive a test."""
    before = jax.config.jax_platforms
    yield
    jax.config.update("jax_platforms", before)


def rename_values() -> str:
    """The same program by another printer: names, places in files, the order of functions."""
    head, *functions = TEXT.split("  func.func ")
    main, where, other = functions
    text = "  func.func ".join([head, other.removesuffix("}\n"), main, where]) + "}\n"
    for old, new in (
        ("@_where_1", '@"<lambda>"'), ("@_where", "@chosen_7"), ("jit_run", "jit_walk"),
        ("result.a", "result['b \\\"c\\\"']"), ("one.py", "two.py"), ("%c", "%cst_5"),
        ("%iterArg", "%arg"), ("%arg1", "%given"), ("%1:2", "%99:2"), ("%1#", "%99#"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    return text


def test_names_places_and_the_order_of_functions_are_invisible():
    assert rename_values() != TEXT
    assert normalize(rename_values()) == normalize(TEXT)
    twice = TEXT.replace("%2 = stablehlo", "%7 = stablehlo").replace(
        "return %2 : tensor<i1>", "return %7 : tensor<i1>"
    )
    assert twice != TEXT and normalize(twice) == normalize(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dense<3>", "dense<4>"),
        ("stablehlo.add", "stablehlo.subtract"),
        ("tensor<2xi32>", "tensor<3xi32>"),
        ("tensor<i32>", "tensor<i16>"),
        ("compare LT", "compare LE"),
        ("%0 = call @_where(", "%0 = call @_where_1("),
        ("compare LT, %iterArg, %c", "compare LT, %c, %iterArg"),
        ("return %1#1", "return %0"),
        ("num_partitions = 1", "num_partitions = 2"),
    ],
)
def test_all_else_is_seen(old, new):
    assert old in TEXT
    assert normalize(TEXT.replace(old, new)) != normalize(TEXT)


def test_functions_that_are_equal_or_not_called_count_once_or_not_at_all():
    copy = TEXT.split("  func.func ")[2].replace("@_where(", "@_where_2(")
    text = TEXT.removesuffix("}\n") + f"  func.func {copy}" + "}\n"
    assert normalize(text) == normalize(TEXT)
    called = text.replace("%0 = call @_where(", "%0 = call @_where_2(")
    assert normalize(called) == normalize(TEXT)


def test_operations_are_counted_by_kind():
    assert operations(normalize(TEXT)) == {
        "call": 2, "add": 1, "compare": 1, "constant": 1, "while": 1,
    }  # fmt: skip


def test_jitted_functions_may_be_renamed():
    def text_of(name: str, factor: float) -> str:
        def inner(x):
            return jnp.where(x > 0, x * factor, jnp.cumsum(x))

        inner.__name__ = inner.__qualname__ = name
        called = jax.jit(inner)
        return jax.jit(lambda x: called(x) + called(x + 1)).lower(jnp.ones(3)).as_text()

    first, other = text_of("first", 2.0), text_of("other", 2.0)
    assert "@first" in first and "@other" in other
    assert normalize(first) == normalize(other) != normalize(text_of("first", 3.0))


def test_every_drafter_reader_and_rule_is_a_case():
    every = list(cases())
    names = [case.name for case in every]
    assert len(set(names)) == len(names)
    made = [case.made() for case in every]
    made = [strategy for strategy in made if isinstance(strategy, Strategy)]
    for registry, part in ((DRAFTERS, "drafter"), (READERS, "reader"), (RULES, "rule")):
        own = {
            entry.cls for entry in registry.values() if entry.cls.__module__.startswith("specjax.")
        }
        assert own <= {type(getattr(strategy, part)) for strategy in made}


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_every_case_is_lowered(case):
    assert lower_program(case, "cpu").startswith("module @")


ONLY = "t5/none"


@pytest.mark.slow
def test_fresh_processes_agree_and_a_change_is_told(tmp_path, capsys):
    file, texts = tmp_path / "programs.json", tmp_path / "texts"
    flags = [sys.executable, str(ROOT / "benchmarks" / "programs.py"), f"--only={ONLY}"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*flags, f"--output={file}"], env=env, check=True, capture_output=True)
    here = [f"--only={ONLY}", f"--against={file}", f"--text={texts}"]
    assert programs.main(here) == 0
    assert capsys.readouterr().out.startswith(f"{ONLY}: equal\n1 equal, 0 changed, 0 new, 0 gone")
    assert (texts / f"{ONLY}.mlir").read_text("utf-8").startswith("module attributes")
    written = json.loads(file.read_text("utf-8"))
    assert written["jax"] == jax.__version__ and list(written["programs"]) == [ONLY]
    written["programs"][ONLY]["sha256"] = "another"
    written["programs"][ONLY]["operations"]["add"] -= 2
    written["programs"][f"{ONLY} too"] = written["programs"][ONLY]
    file.write_text(json.dumps(written), "utf-8")
    assert programs.main(here) == 1
    said = capsys.readouterr().out
    assert f"{ONLY}: changed: +2 add; " in said and f"{ONLY} too: gone" in said


def test_programs_are_equal_changed_new_or_gone():
    one = programs.fingerprint(normalize(TEXT))
    other = programs.fingerprint(normalize(TEXT.replace("stablehlo.add", "stablehlo.subtract")))
    third = programs.fingerprint(normalize(TEXT.replace("dense<3>", "dense<4>")))
    before = {"a": one, "b": one, "c": one, "gone": one}
    after = {"a": one, "b": other, "c": third, "new": one}
    found = {name: (word, said) for name, word, said in programs.compare_programs(before, after)}
    assert list(found) == ["a", "b", "c", "new", "gone"]
    assert found["a"] == ("equal", "equal") and found["new"] == ("new", "new")
    assert found["gone"] == ("gone", "gone")
    lines = one["lines"]
    words = f"changed: -1 add, +1 subtract; {lines} lines before, {lines} after"
    assert found["b"] == ("changed", words)
    assert found["c"][0] == "changed" and "as many operations of each kind" in found["c"][1]


OTHER = {"jax": "0.0.1", "platform": "cpu", "programs": {}}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--only=nowhere"], "--only is 'nowhere'; it must be part of the name"),
        (["--platform=abacus"], "abacus"),
        (["--against={folder}/none.json"], "No such file"),
        (["--against={folder}/text.json"], "it must be a file that --output wrote"),
        (["--against={folder}/list.json"], "has no fingerprints"),
        (["--against={folder}/other.json"], "and is of 0.0.1"),
        (["--output={folder}"], "it must be a file, not a folder"),
        (["--output={folder}/text.json/a.json"], "--output"),
        (["--text={folder}/text.json"], "--text"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(flags, words, tmp_path, capsys):
    (tmp_path / "text.json").write_text("no JSON", "utf-8")
    (tmp_path / "list.json").write_text("[1]", "utf-8")
    (tmp_path / "other.json").write_text(json.dumps(OTHER), "utf-8")
    assert programs.main([flag.format(folder=tmp_path) for flag in flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith("programs: ") and words in said and said.count("\n") == 1
