"""Hub data sets from a cache without network, local Parquet, and what failures say."""

from __future__ import annotations

import http.server
import threading
import time

import datasets
import huggingface_hub
import pytest
from datasets.arrow_writer import ArrowWriter

from specjax.data import sources
from specjax.data.sources import Source, read
from specjax.runtime.errors import UserError

ROWS = [{"question": f"q{i}", "choices": ["a", "b"], "answer": i} for i in range(3)]


@pytest.fixture
def parquet(tmp_path):
    """A directory with the splits train and test in two Parquet files."""
    for split, rows in {"train": ROWS[:2], "test": ROWS[2:]}.items():
        file = tmp_path / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_list(rows).to_parquet(file)
    return tmp_path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that holds the subset main of acme/tiny, and no network."""
    directory = tmp_path / "acme___tiny" / "main" / "0.0.0" / "0123"
    directory.mkdir(parents=True)
    data = datasets.Dataset.from_list(ROWS)
    with ArrowWriter(path=str(directory / "tiny-test.arrow"), features=data.features) as writer:
        for row in ROWS:
            writer.write(row)
        writer.finalize()
    splits = datasets.SplitDict()
    splits.add(datasets.SplitInfo("test", num_examples=len(ROWS), dataset_name="tiny"))
    info = datasets.DatasetInfo(
        features=data.features, config_name="main", dataset_name="tiny", splits=splits
    )
    info.write_to_directory(str(directory))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr(sources, "hub_is_reachable", lambda: False)


def test_a_cached_data_set_needs_no_network(cache):
    assert read(Source("hub", "acme/tiny", subset="main")) == ROWS
    assert read(Source("hub", "acme/tiny", subset="main"), 2) == ROWS[:2]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            Source("hub", "acme/other"),
            "path 'acme/other' is not in the cache, and the Hugging Face hub cannot be reached; "
            "connect, or name a local file in data.path",
        ),
        (
            Source("hub", "acme/tiny", subset="other"),
            "path 'acme/tiny' (subset 'other', split 'test') cannot be read from the cache, as "
            "the Hugging Face hub cannot be reached: "
            "Couldn't find cache for acme/tiny for config 'other'",
        ),
        (
            Source("hub", "acme/tiny", subset="main", split="dev"),
            "path 'acme/tiny' (subset 'main', split 'dev') cannot be read from the cache, as "
            "the Hugging Face hub cannot be reached: "
            "Unknown split \"dev\". Should be one of ['test'].",
        ),
        (
            Source("parquet", "hf://datasets/acme/other/*.parquet"),
            "path 'hf://datasets/acme/other/*.parquet' is not in the cache, and the Hugging Face "
            "hub cannot be reached; connect, or name a local file in data.path",
        ),
    ],
)
def test_without_network_the_reason_is_told_quickly(cache, monkeypatch, source, message):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    start = time.perf_counter()
    with pytest.raises(UserError) as error:
        read(source)
    assert str(error.value) == message
    assert time.perf_counter() - start < 5
    assert not datasets.config.HF_HUB_OFFLINE  # as before


def test_a_refused_connection_means_unreachable(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert not sources.hub_is_reachable()


def test_any_answer_means_reachable(monkeypatch):
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    assert sources.hub_is_reachable()  # it answers 501
    server.shutdown()
    server.server_close()


def test_parquet_files_globs_and_directories(parquet):
    one = parquet / "test-00000-of-00001.parquet"
    assert read(Source("parquet", str(one))) == ROWS[2:]
    assert sorted(r["answer"] for r in read(Source("parquet", f"{parquet}/*.parquet"))) == [0, 1, 2]
    assert read(Source("parquet", str(parquet), split="train")) == ROWS[:2]
    assert read(Source("parquet", str(parquet), split="train"), 1) == ROWS[:1]


def test_parquet_mistakes_are_named(parquet):
    broken = parquet / "broken.txt"
    broken.write_text("no Parquet")
    reasons = {
        f"{parquet}/*.csv": "no such file or directory",
        str(broken): "Parquet magic bytes not found",
    }
    for path, reason in reasons.items():
        with pytest.raises(UserError) as error:
            read(Source("parquet", path))
        assert str(error.value).startswith(f"path {path!r} (subset '', split 'test') cannot be")
        assert reason in str(error.value)
