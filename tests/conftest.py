"""What all tests share: a tiny pair, compiled programs, and a budget."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import jaxtyping
import pytest
from costs import Costs
from parts import Parts
from shape_checks import CHECKED

pytest_plugins = ("pytester",)

jaxtyping.install_import_hook(CHECKED, "shape_checks.checker")  # before specjax is imported

CACHE = {
    "JAX_COMPILATION_CACHE_DIR": "",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

MOST_MAPS = 20_000
"""Held at the end of a module of tests; Linux gives a process 65,530 memory maps."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=int, default=0, metavar="N", help="show the N dearest tests")
    parser.addoption("--part", default="0/1", metavar="I/N", help="only every N-th test, from I on")


def pytest_configure(config: pytest.Config) -> None:
    share_programs(config)
    config.pluginmanager.register(Costs(config.getoption("costs")), "costs")
    config.pluginmanager.register(Parts(config.getoption("part")), "parts")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spares what collecting leaves behind: some million objects that never become garbage.

    Tracing makes many objects and little garbage: looking for it every 700 of them takes a
    twentieth of all time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    sys.dont_write_bytecode = True  # of configs that a test writes and reads once


def share_programs(config: pytest.Config) -> None:
    """Keeps compiled programs for this run: its workers and processes need many of them again."""
    os.environ["SPECJAX_COMPILATION_CACHE"] = ""  # nor do tests fill the user's cache
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # the user's, or the run's in its workers
        return
    folder = tempfile.TemporaryDirectory(prefix="specjax-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ.update(CACHE | {"JAX_COMPILATION_CACHE_DIR": folder.name})
    config.add_cleanup(lambda: [os.environ.pop(name) for name in CACHE])
    jax.config.update("jax_compilation_cache_dir", folder.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(autouse=True, scope="module")
def few_programs_left_behind() -> Iterator[None]:
    """Drops compiled programs when they hold many memory maps, of which a process has few.

    Not after every module: what a model's first draw of weights compiles, the next one needs too.
    """
    yield
    from specjax.runtime.programs import release_programs

    release_programs(MOST_MAPS)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Slow tests are looked after one by one: those of one module are up to thousands."""
    if item.get_closest_marker("slow"):
        from specjax.runtime.programs import release_programs

        release_programs()


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> int:
    """Texts of a chi-square test of a distribution; slow tests look closer."""
    return 20_000 if request.node.get_closest_marker("slow") else 8_000


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `tiny.write_pair`; a test that changes it copies it first."""
    from tiny import write_pair  # not before: the process that starts workers needs no models

    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder)
    return folder
