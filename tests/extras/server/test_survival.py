"""A real server is killed, ended and overrun while many clients wait: nothing is lost."""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx2
import pytest

from judgetrain.errors import EngineError
from judgetrain.extras.server.client import RemoteJudge
from judgetrain.judges import LongerJudge
from judgetrain.schema import Comparison
from tests.builders.served import SLOW, Served, free_port, served
from tests.builders.unopening import unopening

ROWS = [Comparison.of(f"query {i}", "a" * (1 + i % 7), "b" * (1 + i % 5), id=f"row-{i}") for i in range(256)]


def slow(directory: Path, port: int, seconds: float, *overrides: str) -> list[str]:
    return [*SLOW, str(directory), str(port), str(seconds), *overrides]


def test_64_clients_lose_nothing_when_the_server_is_killed_and_started_again(tmp_path: Path) -> None:
    port = free_port()
    answered = dict[str, float]()
    command = slow(tmp_path, port, 0.15, "batch=16")
    log = tmp_path / "log"
    first = Served(command, log).wait()
    url = first.url

    def client(number: int) -> list[object]:
        predictions = []
        with RemoteJudge(url, patience=120) as judge:
            for row in ROWS[number::64]:
                predictions += judge.compare_batch([row], 3)
                answered[row.id] = time.monotonic()
        return predictions

    with ThreadPoolExecutor(64) as clients:
        waiting = [clients.submit(client, number) for number in range(64)]
        while len(answered) < 64:  # the first quarter: others are under way or wait
            time.sleep(0.01)
        first.process.kill()
        first.process.wait()
        killed = time.monotonic()
        before = Counter((tmp_path / "judged.txt").read_text().split())
        with served(command, log):
            predictions = {p.comparison_id: p for future in waiting for p in future.result()}  # type: ignore[attr-defined]
            judged = Counter((tmp_path / "judged.txt").read_text().split())
    assert predictions == {p.comparison_id: p for p in LongerJudge().compare_batch(ROWS, 3)}, "nothing is lost"
    answered_before = [row.id for row in ROWS if answered[row.id] < killed]
    assert len(answered_before) >= 64 and len(answered_before) < len(ROWS)
    assert {judged[name] for name in answered_before} == {1}, "nobody asks again for what was answered"
    twice = [name for name, times in judged.items() if times > 1]
    # The batch that the kill caught, and on a busy machine answers of the one before it that were on their way.
    assert len(twice) <= 2 * 16 and set(twice) <= set(before), "nothing else is judged again"


def test_a_server_that_is_ended_answers_what_it_has_accepted_and_nothing_new(tmp_path: Path) -> None:
    row = {"prompt": "p", "response_a": "aa", "response_b": "b"}
    server = Served(slow(tmp_path, 0, 4.0), tmp_path / "log").wait()
    try:
        with ThreadPoolExecutor(8) as clients, httpx2.Client(base_url=server.url, trust_env=False) as late:
            late.get("/health")  # a connection that is open when the signal comes
            ask = partial(httpx2.post, f"{server.url}/v1/judge", trust_env=False, timeout=300)
            waiting = [clients.submit(ask, json=row | {"id": f"r{i}"}) for i in range(8)]
            while late.get("/health").json()["open_requests"] != 8:
                time.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            refused = late.post("/v1/judge", json=row)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert "shutting down" in refused.json()["error"]["message"]
            assert {future.result().json()["verdict"] for future in waiting} == {"A"}
        assert server.process.wait(120) == 0, server.log
        assert "everything that was accepted is answered" in server.log
    finally:
        server.process.kill()


HEAD = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def sent(server: Served, data: bytes) -> Iterator[socket.socket]:
    """Yield a connection on which this was sent; it is closed at the end."""
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(data)
        yield connection


def posted(path: str, body: object) -> bytes:
    """Return a whole request."""
    content = json.dumps(body).encode()
    return HEAD.replace(b"/v1/judge", path.encode()) + b"Content-Length: %d\r\n\r\n" % len(content) + content


def test_a_client_that_sends_half_a_request_holds_nothing(tmp_path: Path) -> None:
    """Neither the server's end, nor a connection for ever; what is still coming is bounded for all together."""
    with served(slow(tmp_path, 0, 0.1, "patience=2", "bodies=1000"), tmp_path / "log") as server:
        body = HEAD + b"Content-Length: 100\r\n\r\n{"
        with sent(server, b""), sent(server, HEAD) as headers, sent(server, body) as stalled:
            replies = [
                b"".join(iter(partial(connection.recv, 4096), b"")) for connection in (headers, stalled)
            ]  # to their ends
            assert replies[0] == b"" and b" 408 " in replies[1]
        with httpx2.Client(base_url=server.url, trust_env=False) as client:
            assert client.post("/v1/judge", content=b"x" * 1001).status_code == 429
            row = {"prompt": "p", "response_a": "aa", "response_b": "b"}
            assert client.post("/v1/judge", json=row).json()["verdict"] == "A"
            assert client.post("/health", content=b"x" * 5000).status_code == 405, "it reads nothing"
        with sent(server, body):
            time.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(120) == 0, server.log
        assert "everything that was accepted is answered" in server.log


def test_what_waits_for_a_client_that_has_gone_is_not_judged(tmp_path: Path) -> None:
    """256 comparisons, and the 2,016 pairs of a group, of which a batch takes four in half a second."""
    rows = [{"prompt": "p", "response_a": str(i), "response_b": "b"} for i in range(256)]
    rewarded = {"query": [f"p{i}" for i in range(64)], "prompts": ["p"] * 64}
    with served(slow(tmp_path, 0, 0.5, "batch=4"), tmp_path / "log") as server:
        with sent(server, posted("/v1/judge", {"comparisons": rows})), sent(server, posted("/get_reward", rewarded)):
            while not (tmp_path / "judged.txt").exists():
                time.sleep(0.05)
        one = httpx2.post(f"{server.url}/v1/judge", json=rows[0], trust_env=False, timeout=300)
        assert one.json()["verdict"] == "tie"
        time.sleep(1.5)
        judged = (tmp_path / "judged.txt").read_text().split()
        assert len(judged) <= 5 * 4
        health = httpx2.get(f"{server.url}/health", trust_env=False).json()
        assert (health["waiting"], health["open_requests"]) == (0, 0)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0, server.log


def test_a_full_queue_sends_clients_away_for_a_while_and_serves_them_all(tmp_path: Path) -> None:
    with served(slow(tmp_path, 0, 0.2, "queue=4", "batch=2"), tmp_path / "log") as server:
        refused = list[httpx2.Response]()
        barrier = threading.Barrier(16)

        def post(index: int) -> None:
            barrier.wait()
            body = {"prompt": f"p{index}", "response_a": "a", "response_b": "bb"}
            response = httpx2.post(f"{server.url}/v1/judge", json=body, trust_env=False, timeout=300)
            if response.status_code != 200:
                refused.append(response)

        with ThreadPoolExecutor(16) as clients:
            list(clients.map(post, range(16)))
        assert refused and {r.status_code for r in refused} == {429}
        assert {r.headers["retry-after"] for r in refused} == {"1"}
        with RemoteJudge(server.url) as judge, ThreadPoolExecutor(16) as clients:
            predictions = [p for part in clients.map(lambda row: judge.compare_batch([row]), ROWS[:16]) for p in part]
            assert predictions == LongerJudge().compare_batch(ROWS[:16])
        many = [{"prompt": "p", "response_a": str(i), "response_b": "b"} for i in range(5)]
        whole = httpx2.post(f"{server.url}/v1/judge", json={"comparisons": many}, trust_env=False)
        assert (whole.status_code, whole.json()["error"]["field"]) == (422, "comparisons"), "it never has room"


def test_a_client_gives_up_on_a_server_that_stays_away() -> None:
    with (
        RemoteJudge(f"http://127.0.0.1:{free_port()}", "a-token", patience=0.5) as judge,
        pytest.raises(EngineError, match=r"no answer within 0\.5 s") as given_up,
    ):
        judge("p", "a", "b")
    assert "a-token" not in str(given_up.value)


def test_where_nothing_listens_a_client_says_so_in_ten_seconds() -> None:
    began = time.monotonic()
    with RemoteJudge(f"http://127.0.0.1:{free_port()}") as judge, pytest.raises(EngineError) as given_up:
        judge("p", "a", "b")
    # Ten seconds, and a busy machine's delay; its patience with a server that has answered is ten minutes.
    assert time.monotonic() - began < 60
    assert "nothing seems to listen there: start judgetrain serve" in str(given_up.value)


def test_a_server_that_never_opens_a_connection_is_waited_for_once() -> None:
    began = time.monotonic()
    with (
        unopening() as address,
        RemoteJudge(address, patience=1.0) as judge,
        pytest.raises(EngineError, match=r"no answer within 1 s.*nothing seems to listen there"),
    ):
        judge.compare_batch(ROWS)
    assert 1 <= time.monotonic() - began < 10


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    server = Served(slow(tmp_path, 0, 60.0), tmp_path / "log").wait()
    body = {"prompt": "p", "response_a": "a", "response_b": "bb"}
    with ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(httpx2.post, f"{server.url}/v1/judge", json=body, trust_env=False, timeout=300)
        time.sleep(1)
        os.kill(server.process.pid, signal.SIGINT)
        time.sleep(1)
        assert server.process.poll() is None, "it waits for the judge"
        os.kill(server.process.pid, signal.SIGINT)
        assert server.process.wait(120) == 0
        assert "ended at once" in server.log
        with contextlib.suppress(httpx2.TransportError):
            assert waiting.result().status_code == 500
