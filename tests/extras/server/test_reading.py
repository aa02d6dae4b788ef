"""A request as large as is allowed keeps nobody else waiting."""

import json
import threading
import time
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.extras.server import reading
from judgetrain.extras.server.config import LIMITS, Limits
from tests.builders.served import SLOW, served

MANY = dict.fromkeys(map(str, range(10**5)), 1)
"""Keys that nothing knows."""
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\[]{},:é\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a"\\[{,', max_size=3), inner),
    max_leaves=20,
)


def parts(value: Any) -> int:
    """Return how many texts, keys, lists and objects a value holds."""
    if isinstance(value, str):
        return 1
    if isinstance(value, list):
        return 1 + sum(map(parts, value))
    if isinstance(value, dict):
        return 1 + sum(1 + parts(inner) for inner in value.values())
    return 0


@given(values, st.booleans())
def test_parts_are_those_that_a_reader_counts(value: Any, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    number = parts(value)
    with pytest.MonkeyPatch.context() as patch:
        for limit in (number, number - 1):
            patch.setattr(reading, "LIMITS", Limits(parts=limit))
            assert reading.holds_too_much(body) == (limit < number)


def test_numbers_have_a_limit_of_their_own_and_texts_may_hold_any_number_of_commas() -> None:
    assert not reading.holds_too_much(b"[%s]" % b",".join([b"1"] * LIMITS.values))
    assert reading.holds_too_much(b"[%s]" % b",".join([b"1"] * (LIMITS.values + 1)))
    assert not reading.holds_too_much(b'["%s"]' % (b',[{\\"' * LIMITS.values))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("served")
    with served([*SLOW, str(directory), "0", "0.001"], directory / "log") as server:
        yield server.url


def padded(number: int, overhead: int) -> str:
    """Return a text so long that ``number`` of them, with ``overhead`` characters each, are as large as is allowed."""
    return "x " * ((LIMITS.body // number - overhead) // 2)


def many_messages() -> tuple[str, Any]:
    number = LIMITS.parts // 5 - 2
    message = {"role": "user", "content": padded(number, 40)}
    return "/v1/judge", {"messages": [message] * number, "response_a": "a", "response_b": "bb"}


def many_prompts() -> tuple[str, Any]:
    prompts = [f"{place} {padded(LIMITS.rewarded, 50)[:900]}" for place in range(LIMITS.rewarded)]
    return "/get_reward", {"query": [f"{prompt} yes" for prompt in prompts], "prompts": prompts}


@pytest.mark.parametrize("request_of", [many_messages, many_prompts])
def test_others_are_answered_while_the_largest_request_is_read(url: str, request_of: Any) -> None:
    """By shares of the time that the request takes, whatever the machine does beside.

    Nobody waits a fifth of it; where it was read on the event loop, one had to wait a quarter of it.
    """
    path, request = request_of()
    body = json.dumps(request).encode()
    assert len(body) < LIMITS.body
    ended = threading.Event()
    waits: list[float] = []

    def look() -> None:
        with httpx2.Client(trust_env=False, timeout=120) as client:
            while not ended.is_set():
                began = time.monotonic()
                client.get(f"{url}/health").raise_for_status()
                waits.append(time.monotonic() - began)
                time.sleep(0.005)

    looking = threading.Thread(target=look)
    looking.start()
    began = time.monotonic()
    headers = {"content-type": "application/json"}
    answer = httpx2.post(f"{url}{path}", content=body, headers=headers, trust_env=False, timeout=600)
    took = time.monotonic() - began
    ended.set()
    looking.join()
    assert answer.status_code == 200, answer.text[:300]
    assert max(waits) < took / 5, f"{max(waits):.2f} s of {took:.2f} s"


@pytest.mark.parametrize(
    ("path", "request_", "status", "said"),
    [
        ("/v1/judge", {"prompt": "p", "response_a": "a", "criteria": [[]] * 10**6}, 413, "131,072 texts, lists and"),
        ("/v1/systemone", {"state": [1] * 2 * 10**6, "questions": {"q": {"type": "noul"}}}, 413, "1,048,576 values"),
        ("/v1/judge", {"prompt": "p", "response_a": "a", **MANY}, 422, "0: Extra inputs are not permitted"),
        (
            "/v1/judge",
            {"messages": [{"role": "x", "content": 1}] * 20000, "response_a": "a"},
            422,
            "messages[0].role: Input should be",
        ),
        (
            "/v1/systemone",
            {
                "state": "s",
                "questions": {"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(10**5)), 1)}},
            },
            422,
            "at most 255 with their options in one request, found 100000",
        ),
        (
            "/v1/systemone",
            {"state": "s", "questions": {str(place): {"type": "x"} for place in range(20000)}},
            422,
            "questions: at most 1024 with their options in one request, found 20000",
        ),
    ],
)
def test_of_many_faults_the_first_is_told_at_once(url: str, path: str, request_: Any, status: int, said: str) -> None:
    """Each fault told by itself takes 50 microseconds, or more: all of them, longer than this client waits."""
    answer = httpx2.post(f"{url}{path}", json=request_, trust_env=False, timeout=60)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text[:300]
