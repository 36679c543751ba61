"""The winning strategy of a search as a config file that decodes with it."""

from __future__ import annotations

import math
import pprint
from pathlib import Path
from typing import Any

from specjax.experiments.tune.space import Candidate, Space
from specjax.writing import write_text

FILE = "chosen.py"

_TEXT = '''"""What a search chose; tune.json beside this file has its figures.

    python -m specjax.main --config=chosen.py --workdir=runs/chosen
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config

FIELDS = {fields}


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(**FIELDS)
'''


def write_config(workdir: Path, space: Space, candidate: Candidate) -> Path:
    """Writes the base config with the candidate, beside the target alone, as its strategies."""
    file = workdir / FILE
    fields = space.decode.to_dict()
    alone = {name: fields["strategies"][name] for name in space.alone}
    fields |= {"strategies": {**alone, space.strategy: dict(candidate.spec)}, "only": ""}
    shown = pprint.pformat(_plain(fields), width=99, sort_dicts=False)
    write_text(file, _TEXT.format(fields=shown))
    return file


def _plain(value: Any) -> Any:
    """Without infinite numbers, which have no literal; configs take the word."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return "inf" if isinstance(value, float) and math.isinf(value) else value
