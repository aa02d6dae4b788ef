"""A judge behind ``judgetrain serve``, as a judge in Python: nothing is lost while the server is away."""

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
from judgetrain.judges.base import Cost, Judge, Prediction, Reason, Score
from judgetrain.schema import Candidates, Comparison

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

    goes_by_criteria = True  # the server refuses them where its judge goes by none

    def __init__(self, url: str, token: str | None = None, *, patience: float = 600.0) -> None:
        self._url = server_address(url, "url")[0]
        self.name, self._patience = "remote", patience
        token = token or os.environ.get(TOKEN)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(headers=headers, timeout=patience, trust_env=False)

    def __enter__(self) -> "RemoteJudge":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def compare_all(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """The verdicts on many comparisons, in their order.

        Raises:
            EngineError: the server refuses a row (it is named) or the token, or is busy or away for too long.
        """
        names = ("id", "response_a", "response_b")
        rows = [{name: getattr(c, name) for name in names} | _asked(c, seed) for c in comparisons]
        return self._said(rows)

    def score_all(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """How good each response of each group is; each is asked about by itself.

        Raises:
            EngineError: as in :meth:`compare_all`, or the server's judge reads two responses at a time.
        """
        rows = [{"id": g.id, "response_a": each} | _asked(g, seed) for g in groups for each in g.responses]
        found = iter(self._said(rows))
        return [[next(found) for _ in group.responses] for group in groups]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _said(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        starts = range(0, len(rows), LIMITS.batch)  # what a server judges together, and so in no less time
        return [said for start in starts for said in self._judged(rows[start : start + LIMITS.batch])]

    def _judged(self, part: Sequence[dict[str, Any]]) -> list[Any]:
        body = {"comparisons": part}
        until, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                response = self._client.post(f"{self._url}/v1/judge", json=body)
                if response.status_code == 200:
                    return _verdicts(response, [row["id"] for row in part], self._url)
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


def _asked(of: Comparison | Candidates, seed: int) -> dict[str, Any]:
    given = {"reference": of.dialogue.reference, "criteria": of.rubric and of.rubric.to_row()}
    return {"messages": [asdict(message) for message in of.dialogue.messages], "seed": seed, **given}


def _verdicts(response: httpx2.Response, ids: Sequence[str], where: str) -> list[Any]:
    """The verdicts and scores of an answer, which are about what was sent, in its order."""
    try:
        rows = response.json()["verdicts"]
        found, said = [_verdict(row) for row in rows], [row["id"] for row in rows]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        told = f"the answer holds no verdicts ({type(error).__name__}: {error})"
        raise EngineError(f"{where}/v1/judge: {told}") from error
    if said != [*ids]:
        told = f"{len(ids)} comparisons were sent, and {len(said)} verdicts came that are not about the same, in order"
        raise EngineError(f"{where}/v1/judge: {told}")
    return found


def _verdict(row: Mapping[str, Any]) -> Prediction | Score:
    cost = {name: float("nan") if number is None else number for name, number in row["cost"].items()}
    made: dict[str, Any] = {"cost": Cost(**cost), "reasons": tuple(Reason(**reason) for reason in row["reasons"])}
    if "value" in row:
        return Score(value=row["value"], failures=row["failures"], **made)
    known = {name: value for name, value in row.items() if name in Prediction.__dataclass_fields__}
    return Prediction(comparison_id=row["id"], method=row["judge"], **known | made)


def _message(response: httpx2.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
