"""What Prometheus is told of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from judgetrain.judges.base import Prediction

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
AT = "judgetrain_"


class Metrics:
    """Counters of one server; ``waiting`` gives how many comparisons wait, ``open_`` how many requests do."""

    def __init__(self, waiting: Callable[[], int], open_: Callable[[], int]) -> None:
        self.registry = to = CollectorRegistry()
        ProcessCollector(registry=to)
        of = ["endpoint", "status"]
        self.requests = Counter(AT + "requests", "Answered requests by endpoint and status", of, registry=to)
        self.seconds = Histogram(
            AT + "request_seconds", "From request to answer", ["endpoint"], buckets=SECONDS, registry=to
        )
        self._verdicts = Counter(AT + "verdicts", "Verdicts that the judge came to", ["verdict"], registry=to)
        self._rows = Histogram(AT + "batch_rows", "Comparisons judged together", buckets=ROWS, registry=to)
        self._batches = Histogram(AT + "batch_seconds", "A batch in the model", buckets=SECONDS, registry=to)
        self._tokens = Counter(AT + "tokens", "Tokens read and written by the model", ["kind"], registry=to)
        Gauge(AT + "queue_rows", "Comparisons that wait", registry=to).set_function(waiting)
        Gauge(AT + "open_requests", "Requests without an answer yet", registry=to).set_function(open_)

    def judged(self, predictions: Sequence[Prediction], seconds: float) -> None:
        """A batch was judged."""
        self._rows.observe(len(predictions))
        self._batches.observe(seconds)
        for prediction in predictions:
            self._verdicts.labels(prediction.verdict).inc()
            cost = prediction.whole_cost
            for kind, number in (("prompt", cost.prompt_tokens), ("generated", cost.generated_tokens)):
                if number > 0:  # NaN, what is not known, is not
                    self._tokens.labels(kind).inc(number)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
