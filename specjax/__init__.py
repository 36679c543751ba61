"""specjax: speculative decoding in JAX."""

import os

# Of transformers we use tokenizers: that PyTorch is missing is nothing to tell the user.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

from specjax.api import Generator, LoadedModel, Result, load
from specjax.decoding.strategy import (
    Strategy,
    autoregressive,
    bild,
    calm,
    early_exit,
    speculative,
)
from specjax.errors import UserError
from specjax.parallel.mesh import make_mesh
from specjax.profiling import profile

__version__ = "0.1.0"

__all__ = [
    "Generator",
    "LoadedModel",
    "Result",
    "Strategy",
    "UserError",
    "autoregressive",
    "bild",
    "calm",
    "early_exit",
    "load",
    "make_mesh",
    "profile",
    "speculative",
]
