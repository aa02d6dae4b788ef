"""A chat-completions server that fails in the ways real ones do."""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import tests.builders.client_pauses  # noqa: F401

KEY = "sk-very-secret"


@dataclass(frozen=True)
class Fault:
    """An answer to order: its bytes, sent after ``pause`` seconds, one each ``drip`` seconds, and only the first
    ``cut`` of them; None in ``cut`` sends all, and 0 closes the connection at once.

    ``charged``: whether the server generated something, and charges for it.
    """

    name: str
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    pause: float = 0.0
    drip: float = 0.0
    cut: int | None = None
    charged: bool = False


@dataclass
class Try:
    """A try that came to the server: what was asked, in which run and when, the fault it got, and the seconds until
    its answer was sent (None: not yet, or not whole)."""

    body: dict
    run: int
    when: float
    fault: Any
    took: float | None = None


class FaultyServer(ThreadingHTTPServer):
    """Answers with the prompt repeated; ``faults`` maps a prompt to what its first tries get."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.faults: dict[str, list] = {}
        self.reply = lambda text: f"you said {text}"
        self.billed: list[dict] = []
        self.tries: Counter = Counter()
        self.bodies: list[dict] = []
        self.log: list[Try] = []
        self.run = 0
        self.headers: list[str | None] = []
        self.paths: list[str] = []
        self.header_names: set[str] = set()
        self.running = self.most = 0
        self.slow = 1.5
        self.lock = threading.Lock()


@contextmanager
def serving():
    """Yield a server that answers on a thread of its own, and is closed at the end."""
    server = FaultyServer()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class FixedWindow(dict):
    """Faults of a server that takes ``limit`` requests a window of ``seconds`` and refuses the others (429).

    ``now`` tells the time; ``headers`` go with every refusal.
    """

    def __init__(self, limit, now, seconds=60.0, headers=None):
        self.limit = limit
        self.now = now
        self.seconds = seconds
        self.headers = headers or {}
        self.start = None
        self.taken = 0
        self.refused = 0

    def get(self, text, default=None):
        now = self.now()
        if self.start is None or now - self.start >= self.seconds:
            self.start = now
            self.taken = 0
        if self.taken >= self.limit:
            self.refused += 1
            return [(429, self.headers)]
        self.taken += 1
        return []


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer

    def log_message(self, *args):
        pass

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        sent = self.rfile.read(length)
        if len(sent) < length:  # of a process that was killed
            return
        body = json.loads(sent)
        text = body["messages"][-1]["content"]
        server = self.server
        with server.lock:
            server.running += 1
            server.most = max(server.most, server.running)
            server.tries[text] += 1
            server.bodies.append(body)
            server.headers.append(self.headers.get("Authorization"))
            server.paths.append(self.path)
            server.header_names |= {name.lower() for name in self.headers}
            remaining_faults = server.faults.get(text, [])
            fault = remaining_faults.pop(0) if remaining_faults else None
            if fault is None or (isinstance(fault, Fault) and fault.charged):
                server.billed.append(body)
            noted = Try(body, server.run, time.time(), fault)
            server.log.append(noted)
        with suppress(OSError):  # who asked is gone
            self.answer(fault, text)
            noted.took = time.time() - noted.when
        with server.lock:
            server.running -= 1

    def send(self, fault):
        """Send the answer with the fault that was ordered."""
        time.sleep(fault.pause)
        if fault.cut == 0:
            self.connection.close()
            return
        self.send_response(fault.status)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(fault.body)))
        self.end_headers()
        sent = fault.body[: fault.cut]
        pieces = [sent[i : i + 1] for i in range(len(sent))] if fault.drip else [sent]
        for piece in pieces:
            self.wfile.write(piece)
            time.sleep(fault.drip)
        if fault.cut is not None:
            self.close_connection = True

    def answer(self, fault, text):
        if isinstance(fault, Fault):
            self.send(fault)
            return
        good = {
            "choices": [
                {"message": {"role": "assistant", "content": self.server.reply(text)}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        }
        status = 200
        headers = {}
        payload = json.dumps(good)
        if isinstance(fault, int):
            status = fault
            payload = json.dumps({"error": {"message": f"bad key {KEY}"}})
        elif isinstance(fault, tuple):
            status, headers = fault[:2]
            payload = fault[2] if len(fault) > 2 else payload
        elif fault == "slow":
            time.sleep(self.server.slow)
        elif fault == "drop":
            self.connection.close()
            return
        elif isinstance(fault, str):
            payload = fault
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        content = payload if isinstance(payload, bytes) else payload.encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
