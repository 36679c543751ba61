"""Files that no job can read, and configs that no job can use."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

_LINES = "one line\nanother line\n"
_DECODE = (
    "from specjax.experiments.config.defaults import decode_config\n\n"
    "def get_config():\n    return "
)

_TEXTS = {
    "empty.txt": "",
    "blank.txt": "\n \n\t\n",
    "long.txt": "word " * 2_000_000 + "x\n",
    "short.txt": _LINES,
    "broken.jsonl": '{"source": "a"}\n{"source": \n',
    "list.jsonl": "[1, 2]\n",
    "other.jsonl": '{"question": "a"}\n',
    "number.json": "3\n",
    "surrogate.jsonl": '{"source": "a"}\n{"source": "half \\ud800 of a pair"}\n',
    "deep.jsonl": "[" * 100_000 + "]" * 100_000 + "\n",
    "digits.jsonl": '{"source": ' + "7" * 5000 + "}\n",
    "ragged.tsv": "source\treference\na\tb\tc\n",
    "no.txt.gz": _LINES,
    "no.parquet": _LINES,
    "empty.py": "",
    "syntax.py": "def get_config():\n    return (\n",
    "null.py": "x = 1\n\0\n",
    "raises.py": "def get_config():\n    x = 0\n    return 1 / x\n",
    "key.py": "def get_config():\n    return {}['batch_size']\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "deep.py": "def get_config():\n    return get_config()\n",
    "imports.py": "import no_such_module\n",
    "no_function.py": "get_config = 3\n",
    "returns_none.py": "def get_config():\n    pass\n",
    "returns_dict.py": "def get_config():\n    return {'experiment': 'decode'}\n",
    "unknown_field.py": f"{_DECODE}decode_config(batchsize=4)\n",
    "missing_field.py": f"{_DECODE}_without('target')\n\n"
    "def _without(name):\n    config = decode_config()\n    del config[name]\n    return config\n",
    "no_experiment.py": "from ml_collections import ConfigDict\n"
    "def get_config():\n    return ConfigDict({'target': 'x'})\n",
}
_VALUES = {
    "text_for_integer.py": ("batch_size", "'4'"),
    "number_for_text.py": ("target", "3"),
    "number_for_group.py": ("mesh", "3"),
    "list_for_group.py": ("strategies", "['a']"),
    "number_experiment.py": ("experiment", "7"),
}


def write_bad_files(folder: Path) -> None:
    """Fills the folder."""
    for name, text in _TEXTS.items():
        (folder / name).write_text(text, "utf-8")
    for name, (field, value) in _VALUES.items():
        lines = ("config = decode_config()", "with config.ignore_type():",
                 f"    config.{field} = {value}", "return config")  # fmt: skip
        body = "".join(f"    {line}\n" for line in lines)
        head = _DECODE.removesuffix("    return ")
        (folder / name).write_text(head + body, "utf-8")
    (folder / "latin1.txt").write_bytes("Müller\n".encode("latin-1"))
    (folder / "cut.txt.gz").write_bytes(gzip.compress(_LINES.encode() * 99)[:-9])
    (folder / "empty").mkdir()
    (folder / "pipe_model").mkdir()
    for name in ("fifo", "fifo.parquet", "pipe_model/config.json"):
        os.mkfifo(folder / name)
