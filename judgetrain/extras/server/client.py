"""Ask a judge behind ``judgetrain serve`` as a judge in Python: nothing is lost while the server is away."""

import os
import random
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any

import httpx2

from judgetrain.amounts import agree, amount
from judgetrain.engines.config import server_address
from judgetrain.errors import EngineError
from judgetrain.extras.server.config import LIMITS, TOKEN
from judgetrain.judges.base import Judge
from judgetrain.judges.predictions import Cost, Prediction, Reason, Score, Step
from judgetrain.schema import Candidates, Comparison

AGAIN = (429, 502, 503, 504)
"""Statuses after which the same is asked again: the server is busy, ends, or is starting."""
FIRST_PAUSE = 0.2
"""Seconds before a request is sent again for the first time; each pause is twice the one before."""
LONGEST_PAUSE = 10.0
"""Seconds of a pause at most."""
FIRST_CONTACT = 10.0
"""Seconds for which a server that has never answered may be away: nothing may listen under this address."""


@dataclass
class _Contact:
    """Whether a server has answered before, be it that it is busy."""

    made: bool = False


class RemoteJudge(Judge):
    """Asks a server, as any judge is asked; ``with RemoteJudge(url) as judge`` closes its connections.

    A connection that breaks, a full queue (429) and a server that is away or shutting down (503) are waited for and
    asked again, with pauses that grow: the same row and seed have the same verdict. Where nothing has answered yet, it
    waits ten seconds for a connection, and no longer.

    Args:
        url: of the server, as ``http://127.0.0.1:8765``.
        token: which it asks for; None takes the environment variable ``JUDGETRAIN_TOKEN``, if there is one.
        patience: seconds that one answer may take, and for which one request is sent again.

    Raises:
        ConfigError: the URL is none.
    """

    # The server refuses criteria where its judge goes by none.
    goes_by_criteria = True

    def __init__(self, url: str, token: str | None = None, *, patience: float = 600.0) -> None:
        self._url = server_address(url, "url")[0]
        self.name = "remote"
        self._patience = patience
        self._reasons: bool | None = None
        token = token or os.environ.get(TOKEN)
        headers = {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # Of the copies that :meth:`writing` makes, all know whether the server was there.
        self._contact = _Contact()
        # No proxy of the environment: the server is this machine or a neighbour, and the token is for it alone.
        timeout = httpx2.Timeout(patience, connect=min(patience, FIRST_CONTACT))
        self._client = httpx2.Client(headers=headers, timeout=timeout, trust_env=False)

    def __enter__(self) -> "RemoteJudge":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return the verdicts on many comparisons, in their order.

        Raises:
            EngineError: the server refuses a row (it is named) or the token, or is busy or away for too long.
        """
        rows = []
        for comparison in comparisons:
            responses = {"response_a": comparison.response_a, "response_b": comparison.response_b}
            rows.append({"id": comparison.id} | responses | _question(comparison, seed))
        return self._ask_all(rows)

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """Return how good each response of each group is; each is asked about by itself.

        Raises:
            EngineError: as in :meth:`compare_batch`, or the server's judge reads two responses at a time.
        """
        rows = []
        for group in groups:
            for response in group.responses:
                rows.append({"id": group.id, "response_a": response} | _question(group, seed))
        scores = self._ask_all(rows)
        by_group = []
        start = 0
        for group in groups:
            end = start + len(group.responses)
            by_group.append(scores[start:end])
            start = end
        return by_group

    def writing(self, reasons: bool) -> Judge:
        """Return the same judge that asks for reasons, or for scores alone, which the server may refuse."""
        # With the same connections.
        judge = copy(self)
        judge._reasons = reasons
        return judge

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask_all(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        """Return the server's answers on rows, in their order.

        A request has as many rows as a server judges together; a larger one would take longer, not less.
        """
        answers = []
        for start in range(0, len(rows), LIMITS.batch):
            answers += self._ask(rows[start : start + LIMITS.batch])
        return answers

    def _ask(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        """Return the server's answers on the rows of one request, which is sent again while the server is away.

        Raises:
            EngineError: the server refuses it, or does not answer for too long.
        """
        body: dict[str, Any] = {"comparisons": rows}
        # Left out where nothing was said of it: older servers do not know it.
        if self._reasons is not None:
            body["reasons"] = self._reasons
        began = time.monotonic()
        pause = FIRST_PAUSE
        while True:
            try:
                response = self._client.post(f"{self._url}/v1/judge", json=body)
                self._contact.made = True
                if response.status_code == 200:
                    return _verdicts(response, [row["id"] for row in rows], self._url)
                reason = f"status {response.status_code}: {_message(response)}"
                # A row that is refused once will be refused again.
                if response.status_code not in AGAIN:
                    raise EngineError(f"{self._url}/v1/judge: {reason}")
            except httpx2.TransportError as error:
                reason = str(error) or type(error).__name__
            # By chance, so that clients do not all come back at once.
            seconds = pause * random.uniform(0.5, 1.0)
            patience = self._patience
            if not self._contact.made:
                patience = min(patience, FIRST_CONTACT)
            if time.monotonic() + seconds > began + patience:
                message = f"{self._url}: no answer within {patience:g} s; the last thing said: {reason}"
                if not self._contact.made:
                    message += "; nothing seems to listen there: start judgetrain serve, or give another url"
                raise EngineError(message)
            time.sleep(seconds)
            pause = min(LONGEST_PAUSE, 2 * pause)


def _question(item: Comparison | Candidates, seed: int) -> dict[str, Any]:
    """Return the columns of a request's row that comparisons and single responses share."""
    criteria = None
    if item.rubric:
        criteria = item.rubric.to_row()
    return {
        "messages": [asdict(message) for message in item.dialogue.messages],
        "seed": seed,
        "reference": item.dialogue.reference,
        "criteria": criteria,
    }


def _verdicts(response: httpx2.Response, ids: Sequence[str], url: str) -> list[Any]:
    """Return the verdicts and scores of an answer.

    Args:
        response: of the server.
        ids: of the rows that were sent.
        url: of the server, for errors.

    Raises:
        EngineError: it holds no verdicts, or they are not about what was sent, in its order.
    """
    try:
        rows = response.json()["verdicts"]
        verdicts = [_verdict(row) for row in rows]
        ids_of_answer = [row["id"] for row in rows]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise EngineError(f"{url}/v1/judge: the answer holds no verdicts ({type(error).__name__}: {error})") from error
    # A proxy or another version may answer; verdicts on other rows must not be taken for these.
    if ids_of_answer != [*ids]:
        raise EngineError(
            f"{url}/v1/judge: {amount(len(ids), 'comparison')} {agree(len(ids), 'were')} sent, and "
            f"{amount(len(ids_of_answer), 'verdict')} came that are not "
            "about the same, in order"
        )
    return verdicts


def _verdict(row: Mapping[str, Any]) -> Prediction | Score:
    """Return the prediction, or the score, of a row of an answer."""
    cost = {}
    for name, number in row["cost"].items():
        # JSON has no NaN, which stands for what was not measured.
        cost[name] = float("nan") if number is None else number
    reasons = tuple(Reason(**reason) for reason in row["reasons"])
    # Scores have a value, and verdicts a verdict.
    if "value" in row:
        return Score(
            value=row["value"],
            failures=row["failures"],
            cost=Cost(**cost),
            reasons=reasons,
            decision=row.get("decision"),
            passes=row.get("passes"),
            passes_from=row.get("passes_from", ""),
            steps=tuple(Step.from_row(step) for step in row.get("steps", ())),
        )
    # A newer server may send fields that this version does not know, and verdict and consistent are properties.
    fields = {name: value for name, value in row.items() if name in Prediction.__dataclass_fields__}
    steps = tuple(Step.from_row(step) for step in row.get("steps", ()))
    not_judged = tuple(row.get("not_judged", ()))
    fields |= {"cost": Cost(**cost), "reasons": reasons, "steps": steps, "not_judged": not_judged}
    return Prediction(comparison_id=row["id"], method=row["judge"], **fields)


def _message(response: httpx2.Response) -> str:
    """Return the server's message, or the beginning of an answer that is none of its own."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
