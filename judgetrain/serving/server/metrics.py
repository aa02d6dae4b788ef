"""What Prometheus is told of a server."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from judgetrain.judges.base import Prediction

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one server; ``waiting`` gives how many comparisons wait, ``open_`` how many requests do."""

    def __init__(self, waiting: Callable[[], int], open_: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        at, registry = "judgetrain_", self.registry
        self.requests = Counter(
            at + "requests", "Answered requests by endpoint and status", ["endpoint", "status"], registry=registry
        )
        self.seconds = Histogram(
            at + "request_seconds", "From request to answer", ["endpoint"], buckets=SECONDS, registry=registry
        )
        self._verdicts = Counter(at + "verdicts", "Verdicts that the judge came to", ["verdict"], registry=registry)
        self._kept = Counter(at + "kept_answers", "Verdicts given again out of the kept ones", registry=registry)
        self._rows = Histogram(
            at + "batch_rows", "Comparisons or chats done together", ["work"], buckets=ROWS, registry=registry
        )
        self._batch_seconds = Histogram(
            at + "batch_seconds", "A batch in the model", ["work"], buckets=SECONDS, registry=registry
        )
        self._tokens = Counter(at + "tokens", "Tokens read and written by the model", ["kind"], registry=registry)
        Gauge(at + "queue_rows", "Comparisons and chats that wait", registry=registry).set_function(waiting)
        Gauge(at + "open_requests", "Requests without an answer yet", registry=registry).set_function(open_)

    def batch(self, work: str, rows: int, seconds: float) -> None:
        """A batch was done."""
        self._rows.labels(work).observe(rows)
        self._batch_seconds.labels(work).observe(seconds)

    def judged(self, prediction: Prediction) -> None:
        """The judge came to a verdict."""
        self._verdicts.labels(prediction.verdict).inc()
        self.tokens(prediction.whole_cost.prompt_tokens, prediction.whole_cost.generated_tokens)

    def tokens(self, prompt: float, generated: float) -> None:
        """The model read and wrote so many tokens; what is not known (NaN) does not count."""
        for kind, number in (("prompt", prompt), ("generated", generated)):
            if number > 0:
                self._tokens.labels(kind).inc(number)

    def given_again(self, verdicts: int) -> None:
        """So many verdicts were kept."""
        self._kept.inc(verdicts)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)
