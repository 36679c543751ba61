"""Installations of specjax: an editable one in any folder, a wheel outside of the checkout."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from setuptools import build_meta
from tiny import corpus, write_pair

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
"""Files next to the package that a build reads."""

IMPORT = (
    "import site, sys; site.addsitedir(sys.argv[1])\n"
    "import specjax\n"
    "print(specjax.__file__, specjax.runtime.errors.UserError.__name__)"
)
DECODE = """
import sys
from importlib import metadata
import specjax
target, drafter = specjax.load("target"), specjax.load("drafter")
strategy = specjax.speculative(length=2)
generator = specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=4)
assert len(generator([sys.argv[1]]).texts) == 1
assert specjax.grammar_pair and specjax.__version__ == metadata.version("specjax")
print(specjax.__file__)
"""


def build(build_wheel: Callable[[str], str], clone: Path, folder: Path) -> Path:
    """Builds a wheel of a clone; where its files lie, as pip would install them."""
    for name in PROJECT:
        shutil.copy(ROOT / name, clone / name)
    with contextlib.chdir(clone), contextlib.redirect_stdout(io.StringIO()):
        wheel = build_wheel(str(folder))
    with zipfile.ZipFile(folder / wheel) as packed:
        packed.extractall(folder / "site-packages")
    return folder / "site-packages"


def test_the_package_is_found_in_the_folder_that_holds_the_clone(tmp_path: Path) -> None:
    clone = tmp_path / "work" / "specjax"
    (clone / "specjax").mkdir(parents=True)
    # Importing the whole takes seconds.
    (clone / "specjax" / "__init__.py").write_text(
        "import specjax.runtime.errors\n__version__ = '1.0'\n"
    )
    (clone / "specjax" / "runtime").mkdir()
    (clone / "specjax" / "runtime" / "__init__.py").write_text("")
    (clone / "specjax" / "runtime" / "errors.py").write_text("class UserError(Exception): pass\n")
    installed = build(build_meta.build_editable, clone, tmp_path)
    for folder in (clone.parent, clone, tmp_path):
        done = subprocess.run(
            [sys.executable, "-S", "-c", IMPORT, str(installed)],
            cwd=folder, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, (folder, done.stderr)
        file, name = done.stdout.split()
        assert Path(file).resolve() == clone / "specjax" / "__init__.py" and name == "UserError"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    clone = folder / "clone"
    unused = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "specjax", clone / "specjax", ignore=unused)
    return build(build_meta.build_wheel, clone, folder)


def test_a_wheel_holds_all_files_of_the_package(wheel: Path) -> None:
    def names(folder: Path) -> set[str]:
        files = (path.relative_to(folder) for path in (folder / "specjax").rglob("*.*"))
        return {file.as_posix() for file in files if "__pycache__" not in file.parts}

    assert names(wheel) == names(ROOT)
    assert "specjax/py.typed" in names(wheel)


@pytest.mark.slow
def test_a_wheel_decodes_in_a_folder_of_its_own(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv").glob("lib/*/site-packages")
    shutil.copytree(wheel, packages, dirs_exist_ok=True)
    # Dependencies come from this environment; the paths that its editable installs add do not.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    work = tmp_path / "work"
    write_pair(work)

    def run(*args: str) -> str:
        environment = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"}
        return subprocess.run(
            [python, *args], cwd=work, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert "--config" in run("-m", "specjax.main", "--help")
    assert Path(run("-c", DECODE, corpus()[0].source).split()[-1]).is_relative_to(packages)
