"""A judge that asks ``/v1/systemone``: which of two responses is better, or how good one is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urldefrag, urlsplit

import httpx2

from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.kind import Parts, Use
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Prediction, Score, verdict_of
from judgetrain.judges.settings import ModelSettings
from judgetrain.rubrics import EQUAL, HIGHEST, LOWEST
from judgetrain.schema import Candidates, Comparison, Dialogue

KEY = "SYSTEMONE_API_KEY"
"""The environment variable of the key that is sent, if it is set."""
AT_ONCE = 8
"""Requests at a time."""
TIMES = 5
"""Times that a request is sent while the server is busy or away."""
FIRST_CONTACT = 5.0
"""Seconds for which a server that has never answered may be away: nothing may listen at this address."""
CONNECTING = 10.0
"""Seconds that are waited for a connection."""
ANSWERING = 120.0
"""Seconds that are waited for the next bytes of an answer."""
BUSY = (429, 502, 503, 504)
"""Status codes after which a request is sent again."""
PATH = "/v1/systemone"

Item = TypeVar("Item")
Result = TypeVar("Result")

WHICH = "Which response answers the query better?"
HOW_GOOD = "How good is the response as an answer to the query?"
LEVELS = (
    "useless, wrong or harmful",
    "poor: large parts are wrong or missing",
    "fair: it helps in part",
    "good, with small faults",
    "excellent: right, complete and clear",
)
"""The levels of a single response, the worst first."""


class SystemOneJudge(Judge):
    """Asks a decision model for a choice between two responses, in both orders, or for the level of one.

    A verdict's margin, -4 to 4, says how far A's probability is from a half, by the mean of both orders.

    Args:
        address: of the server, and behind ``#`` the model's name, if it needs one.
        name: the judge's name in tables.
    """

    def __init__(self, address: str, name: str) -> None:
        # Behind #, which no address of a server needs otherwise.
        self._url, self._model = urldefrag(address)
        self.name = name
        headers = {}
        key = os.environ.get(KEY, "").strip()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx2.Client(headers=headers, timeout=httpx2.Timeout(ANSWERING, connect=CONNECTING))
        # Whether the server has answered anything, be it that it is busy.
        self._is_reached = False

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        """Return a prediction for each comparison (EngineError: the server refuses one, or is away for too long)."""
        return self._at_once(self._verdict, comparisons)

    def score_batch(self, groups: Sequence[Candidates], seed: int = 0) -> list[list[Score]]:
        """Return the score of each response of each group; errors as of :meth:`compare_batch`."""
        return self._at_once(self._scores, groups)

    def _at_once(self, judge: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return what ``judge`` makes of each item, several at a time, which the server may judge together.

        As long as the server has never answered, one item goes ahead alone: where nothing answers, one limit is waited
        for, and not one a row.
        """
        results = []
        for item in items:
            if self._is_reached:
                break
            results.append(judge(item))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return [*results, *threads.map(judge, items[len(results) :])]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _verdict(self, comparison: Comparison) -> Prediction:
        """Return the verdict on one comparison; an empty response loses without a request."""
        if comparison.forfeit is not None:
            return Prediction.of(comparison, self.name)
        a_first, cost = self._chance_of_first(comparison.dialogue, comparison.response_a, comparison.response_b)
        b_first, cost_ba = self._chance_of_first(comparison.dialogue, comparison.response_b, comparison.response_a)
        # Both are of response A, so that their mean takes the preference for a place out.
        chances = (a_first, 1 - b_first)
        verdicts = [verdict_of(chance - 0.5, EQUAL) for chance in chances]
        return Prediction.of(
            comparison,
            self.name,
            *verdicts,
            margin=(sum(chances) - 1) * (HIGHEST - LOWEST),
            judgments=len(chances),
            cost=(cost + cost_ba) * 0.5,
            plan="independent",
        )

    def _chance_of_first(self, dialogue: Dialogue, first: str, second: str) -> tuple[float, Cost]:
        """Return the probability that the response shown first is the better one, and what the request cost."""
        state = {**_conversation(dialogue), "response_a": first, "response_b": second}
        criteria = {"A": "response_a is better", "B": "response_b is better"}
        question = {"type": "choice", "instructions": WHICH, "criteria": criteria}
        answer, cost = self._ask(state, question)
        return _probabilities(answer, ("A", "B"), self._url)[0], cost

    def _scores(self, group: Candidates) -> list[Score]:
        """Return the scores of a group's responses; one without a text is worth 0, without a request."""
        scores = []
        for response in group.responses:
            if not response.strip():
                scores.append(Score(value=0.0))
                continue
            state = {**_conversation(group.dialogue), "response": response}
            question = {"type": "score", "instructions": HOW_GOOD, "criteria": list(LEVELS)}
            answer, cost = self._ask(state, question)
            # Levels are called by their number, from 0 for the worst.
            places = [str(place) for place in range(len(LEVELS))]
            probabilities = _probabilities(answer, places, self._url)
            expected = sum(place * chance for place, chance in enumerate(probabilities))
            scores.append(Score(value=expected / (len(LEVELS) - 1), cost=cost))
        return scores

    def _ask(self, state: Mapping[str, Any], question: Mapping[str, Any]) -> tuple[Mapping[str, Any], Cost]:
        """Return the answer to one question, and what it cost.

        Raises:
            EngineError: the server refuses it, gives no answer, or is away for too long.
        """
        body: dict[str, Any] = {"state": state, "questions": {"q": question}}
        if self._model:
            body["model"] = self._model
        reason = ""
        began = time.monotonic()
        for attempt in range(TIMES):
            # After 1, 2, 4 and 8 seconds.
            if attempt:
                time.sleep(2 ** (attempt - 1))
            try:
                reply = self._client.post(f"{self._url.rstrip('/')}{PATH}", json=body)
            except httpx2.ConnectTimeout:
                reason = f"no connection within {CONNECTING:g} s; check that a server runs at this address"
                # Nothing says that the address is right.
                if not self._is_reached:
                    break
                continue
            except httpx2.TransportError as error:
                reason = str(error) or type(error).__name__
                next_pause = 2**attempt
                # A server that is about to start is there by then.
                if not self._is_reached and time.monotonic() + next_pause > began + FIRST_CONTACT:
                    reason += "; nothing seems to listen there: start the server, or give another address"
                    break
                continue
            self._is_reached = True
            reason = f"status {reply.status_code}: {reply.text[:200]}"
            if reply.status_code == 200:
                return self._answer(reply)
            # A request that is wrong stays wrong, however often it is sent.
            if reply.status_code not in BUSY:
                break
        raise EngineError(f"{self._url}{PATH}: {reason}")

    def _answer(self, reply: httpx2.Response) -> tuple[Mapping[str, Any], Cost]:
        """Return the answer in a reply, and what it cost (EngineError: there is none)."""
        try:
            content = reply.json()
            answer = content["answers"]["q"]
            usage = content.get("usage") or {}
            tokens = (float(usage.get("input_tokens") or 0), float(usage.get("output_tokens") or 0))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise EngineError(f"{self._url}{PATH}: the reply holds no answer ({reply.text[:200]})") from error
        return answer, Cost(*tokens, 1)


def _conversation(dialogue: Dialogue) -> dict[str, Any]:
    """Return a dialogue as a state has it: its query, or all messages where there are several."""
    state: dict[str, Any] = {}
    if len(dialogue.messages) == 1:
        state["query"] = dialogue.messages[0].content
    else:
        state["messages"] = [{"role": message.role, "content": message.content} for message in dialogue.messages]
    if dialogue.reference:
        state["reference_answer"] = dialogue.reference
    return state


def _probabilities(answer: Mapping[str, Any], names: Sequence[str], url: str) -> list[float]:
    """Return the probabilities of named answers, which sum to 1 (EngineError: one is missing, or they are none)."""
    try:
        probabilities = [float(answer["probabilities"][name]) for name in names]
    except (LookupError, TypeError, ValueError) as error:
        raise EngineError(f"{url}{PATH}: expected probabilities of {', '.join(names)}, found {answer}") from error
    total = sum(probabilities)
    if not total > 0 or min(probabilities) < 0:
        raise EngineError(f"{url}{PATH}: expected probabilities of {', '.join(names)}, found {answer}")
    # Rounded probabilities need not sum to 1.
    return [chance / total for chance in probabilities]


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Refuse what is no address (ConfigError)."""
    check_address(method)


def check_address(method: Method) -> None:
    """Refuse a method whose target is no address (ConfigError)."""
    try:
        parts = urlsplit(method.target)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{method.text!r}: expected an address, as in systemone:http://localhost:8093")
    # The address is part of a method's name, which reports, rows and fingerprints hold.
    if parts.username or parts.password:
        raise ConfigError(f"systemone:{parts.hostname}: a key in the address would stand in files: set {KEY}")


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    """Return the judge."""
    check_address(method)
    return SystemOneJudge(method.target, method.name)
