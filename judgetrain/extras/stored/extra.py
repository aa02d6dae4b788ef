"""Verdicts read from files, as an extra of stage evaluate."""

from judgetrain.evaluate.hooks import EvaluationExtra

_ROOM = __name__.rpartition(".")[0]

EXTRA = EvaluationExtra(name="stored", check=f"{_ROOM}.verdicts:check", check_here=f"{_ROOM}.verdicts:check_here")
