"""Metrics of judges: pure functions on arrays (:mod:`judgetrain.evaluate.metrics.verdicts`)."""

from judgetrain.evaluate.metrics.verdicts import *  # noqa: F403  # which lists what is public
from judgetrain.evaluate.metrics.verdicts import __all__ as __all__
