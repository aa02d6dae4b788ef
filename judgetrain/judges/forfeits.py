"""Leaves out comparisons with an empty response, which loses whoever judges."""

from collections.abc import Callable, Iterator, Sequence

from judgetrain.judges.predictions import Prediction
from judgetrain.schema import Comparison


def without_forfeits(
    comparisons: Sequence[Comparison], ask: Callable[[Sequence[Comparison]], list[Prediction]], name: str
) -> list[Prediction]:
    """Return the predictions on comparisons, in their order; a judge is asked about those alone that it can decide.

    Args:
        comparisons: to be judged.
        ask: returns a judge's predictions on some of them; not called where there is nothing to read.
        name: of the judge.
    """
    waiting = [comparison for comparison in comparisons if comparison.forfeit is None]
    answers: Iterator[Prediction] = iter(())
    # The judge may be loaded by the call.
    if waiting:
        answers = iter(ask(waiting))
    predictions = []
    for comparison in comparisons:
        if comparison.forfeit is None:
            predictions.append(next(answers))
        else:
            predictions.append(Prediction.of(comparison, name))
    return predictions
