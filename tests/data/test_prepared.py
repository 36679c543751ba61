"""Prepared TensorFlow Datasets, written and read without TensorFlow."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from specjax.data.examples import examples
from specjax.data.sources import Source, read
from specjax.data.text import Example
from specjax.runtime.errors import UserError

ROWS = [
    {"de": f"schön {i}", "en": f"fine {i}", "more": {"names": ["ä", "b"], "number": i, "w": [0.5]}}
    for i in range(3)
]


class TinyTranslate(tfds.core.GeneratorBasedBuilder):
    """Three sentence pairs with other features beside them."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="de-en")]
    pkg_dir_path = None

    def _info(self):
        f = tfds.features
        more = {
            "names": f.Sequence(f.Text()),
            "number": f.Scalar(np.int64),
            "w": f.Tensor(shape=(1,), dtype=np.float32),
        }
        features = f.FeaturesDict({"de": f.Text(), "en": f.Text(), "more": more})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"test": enumerate(ROWS)}

    def _generate_examples(self):
        raise AssertionError("the rows are given above")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory) -> str:
    made = str(tmp_path_factory.mktemp("tfds"))
    TinyTranslate(config="de-en", data_dir=made, file_format="array_record").download_and_prepare()
    return made


def by_number(rows):
    """TFDS shuffles on writing."""
    return sorted(rows, key=lambda row: row["more"]["number"])


@pytest.mark.parametrize(
    ("path", "subset"),
    [("tiny_translate/de-en", ""), ("tiny_translate", "de-en"), ("tiny_translate/de-en:1.0.0", "")],
)
def test_rows_hold_text_and_python_values(data_dir, path, subset):
    found = read(Source("tfds", path, subset=subset, data_dir=data_dir))
    assert by_number(found) == ROWS
    assert type(found[0]["more"]["number"]) is int and type(found[0]["more"]["w"]) is list
    assert "tensorflow" not in sys.modules


def test_a_split_can_be_sliced_and_counted(data_dir):
    whole = read(Source("tfds", "tiny_translate/de-en", data_dir=data_dir))
    sliced = Source("tfds", "tiny_translate/de-en", split="test[1:]", data_dir=data_dir)
    assert read(sliced) == whole[1:]
    assert read(sliced, 1) == whole[1:2]


def test_a_task_reads_it(data_dir):
    source = Source("tfds", "tiny_translate/de-en", data_dir=data_dir)
    found = sorted(examples("wmt14_deen", source), key=lambda e: e.source)
    assert found[0] == Example("translate German to English: schön 0", "fine 0")


@pytest.mark.parametrize(
    ("path", "split", "reason"),
    [
        ("nothing", "test", "Dataset nothing not found."),
        ("tiny_translate/de-en", "dev", "Unknown split 'dev'. Should be one of ['test']."),
    ],
)
def test_what_is_not_there_is_named(data_dir, path, split, reason):
    with pytest.raises(UserError) as error:
        read(Source("tfds", path, split=split, data_dir=data_dir))
    assert str(error.value) == (
        f"path {path!r} (split {split!r}, data_dir {data_dir!r}) must be a data set that TFDS "
        f"prepared as array_record: {reason}"
    )


def test_other_file_formats_are_refused(data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)
    info = tmp_path / "tiny_translate" / "de-en" / "1.0.0" / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(UserError, match="prepared as array_record: there is none in this format"):
        read(Source("tfds", "tiny_translate/de-en:1.0.0", data_dir=str(tmp_path)))


def test_nothing_is_prepared_on_the_way(tmp_path):
    with pytest.raises(UserError, match="there is none in this format"):
        read(Source("tfds", "tiny_translate/de-en", data_dir=str(tmp_path)))
    assert not list(tmp_path.rglob("*.array_record*"))
