"""How the target reads a draft: whole, from states that it has already, as narrow as fits, or layer
by layer. A reader calls the target and hands what it read to the rule (`core.reader`)."""

from specjax.readers.calm import Calm
from specjax.readers.fitted import Fitted
from specjax.readers.invariant import Invariant
from specjax.readers.resumed import Resumed
from specjax.readers.whole import Whole

__all__ = ["Calm", "Fitted", "Invariant", "Resumed", "Whole"]
