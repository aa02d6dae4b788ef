"""A judge behind ``judgetrain serve``, as a judge in Python: nothing is lost while the server is away."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import httpx2

from judgetrain.engines.config import server_address
from judgetrain.errors import EngineError
from judgetrain.extras.server.config import LIMITS, TOKEN
from judgetrain.judges.base import Cost, Judge, Prediction, Reason
from judgetrain.schema import Comparison

AGAIN = (429, 502, 503, 504)
"""Statuses after which the same is asked again: the server is busy, ends, or is starting."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds."""


class RemoteJudge(Judge):
    """Asks a server, as any judge is asked; ``with RemoteJudge(url) as judge`` closes its connections.

    A connection that breaks, a full queue (429) and a server that is away or shutting down (503) are waited for and
    asked again, with pauses that grow: the same row and seed have the same verdict.

    Args:
        url: of the server, as ``http://127.0.0.1:8765``.
        token: which it asks for; None takes the environment variable ``JUDGETRAIN_TOKEN``, if there is one.
        patience: seconds that one answer may take, and for which one request is sent again.

    Raises:
        ConfigError: the URL is none.
    """

    def __init__(self, url: str, token: str | None = None, *, patience: float = 600.0) -> None:
        self._url = server_address(url, "url")[0]
        self.name, self._patience = "remote", patience
        token = token or os.environ.get(TOKEN)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(headers=headers, timeout=patience, trust_env=False)

    def __enter__(self) -> RemoteJudge:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons, in their order.

        Raises:
            EngineError: the server refuses a row (it is named) or the token, or is busy or away for too long.
        """
        starts = range(0, len(comparisons), LIMITS.batch)  # what a server judges together, and so in no less time
        return [p for start in starts for p in self._judged(comparisons[start : start + LIMITS.batch], seed)]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _judged(self, part: Sequence[Comparison], seed: int) -> list[Prediction]:
        body = {"comparisons": [_row(comparison, seed) for comparison in part]}
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                response = self._client.post(f"{self._url}/v1/judge", json=body)
                if response.status_code == 200:
                    return _predictions(response, [comparison.id for comparison in part], self._url)
                said = f"status {response.status_code}: {_message(response)}"
                if response.status_code not in AGAIN:
                    raise EngineError(f"{self._url}/v1/judge: {said}")
            except httpx2.TransportError as error:
                said = str(error) or type(error).__name__
            wait = pause * random.uniform(0.5, 1.0)  # so that clients do not all come back at once
            if time.monotonic() + wait > until:
                raise EngineError(f"{self._url}: no answer within {self._patience:g} s; the last thing said: {said}")
            time.sleep(wait)
            pause = min(LONGEST_PAUSE, 2 * pause)


def _row(comparison: Comparison, seed: int) -> dict[str, Any]:
    texts = {name: getattr(comparison, name) for name in ("id", "response_a", "response_b", "model_a", "model_b")}
    return texts | {"messages": [asdict(message) for message in comparison.dialogue.messages], "seed": seed}


def _predictions(response: httpx2.Response, ids: Sequence[str], where: str) -> list[Prediction]:
    """The verdicts of an answer, which are about the comparisons that were sent, in their order."""
    try:
        rows = response.json()["verdicts"]
        found, said = [_prediction(row) for row in rows], [row["id"] for row in rows]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        told = f"the answer holds no verdicts ({type(error).__name__}: {error})"
        raise EngineError(f"{where}/v1/judge: {told}") from error
    if said != [*ids]:
        told = f"{len(ids)} comparisons were sent, and {len(said)} verdicts came that are not about the same, in order"
        raise EngineError(f"{where}/v1/judge: {told}")
    return found


def _prediction(row: Mapping[str, Any]) -> Prediction:
    known = {name: value for name, value in row.items() if name in Prediction.__dataclass_fields__}
    cost = {name: float("nan") if number is None else number for name, number in row["cost"].items()}
    made = {"cost": Cost(**cost), "reasons": tuple(Reason(**reason) for reason in row["reasons"])}
    return Prediction(comparison_id=row["id"], method=row["judge"], **known | made)


def _message(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
