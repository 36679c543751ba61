"""One report of made-up results, which takes seconds to draw."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic

from specjax.reporting.report import write_report


@pytest.fixture(scope="session")
def workdir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(synthetic.results(), folder)
    return folder


@pytest.fixture(scope="session")
def text(workdir) -> str:
    return (workdir / "report.html").read_text("utf-8")
