"""An editable install serves any folder, also the one that holds a clone called specjax."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from setuptools import build_meta

ROOT = Path(__file__).resolve().parents[2]
IMPORT = (
    "import site, sys; site.addsitedir(sys.argv[1])\n"
    "import specjax\n"
    "print(specjax.__file__, specjax.errors.UserError.__name__)"
)


def editable(clone: Path, folder: Path) -> Path:
    """A folder as `pip install --editable` of a clone leaves site-packages."""
    before = Path.cwd()
    os.chdir(clone)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            wheel = build_meta.build_editable(str(folder))
    finally:
        os.chdir(before)
    with zipfile.ZipFile(folder / wheel) as packed:
        packed.extractall(folder / "site-packages")
    return folder / "site-packages"


def test_the_package_is_found_in_the_folder_that_holds_the_clone(tmp_path: Path) -> None:
    clone = tmp_path / "work" / "specjax"
    (clone / "specjax").mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, clone / name)
    for name in ("__init__.py", "errors.py"):  # importing the whole takes seconds
        (clone / "specjax" / name).write_text("")
    (clone / "specjax" / "__init__.py").write_text("import specjax.errors\n")
    (clone / "specjax" / "errors.py").write_text("class UserError(Exception): pass\n")
    installed = editable(clone, tmp_path)
    for folder in (clone.parent, clone, tmp_path):
        done = subprocess.run(
            [sys.executable, "-S", "-c", IMPORT, str(installed)],
            cwd=folder, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, (folder, done.stderr)
        file, name = done.stdout.split()
        assert Path(file).resolve() == clone / "specjax" / "__init__.py" and name == "UserError"
