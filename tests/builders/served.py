"""A real server in a process of its own, on the loopback address; and one whose judge tells what it judged.

    python -m tests.builders.served DIRECTORY PORT SECONDS [key=value ...]

serves a judge that takes SECONDS a batch, likes the longer response, and notes in DIRECTORY/judged.txt whom it judged.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

from judgetrain.judges import LongerJudge, Prediction
from judgetrain.schema import Comparison

COMMAND = [sys.executable, "-m", "judgetrain", "serve"]
SLOW = [sys.executable, "-m", "tests.builders.served"]


class Served:
    """A server's process, its address (``url``: where it does not say it), and its log."""

    def __init__(self, command: Sequence[str], log: Path, url: str = "", **environment: str) -> None:
        self._log = log
        self._from = log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environment})
        self.url = url

    def wait(self, seconds: float = 1200) -> Served:
        """Until it answers; one that has ended fails at once.

        vLLM's server once took over five minutes to start, where two parts of continuous integration share two cores.
        """
        until = time.monotonic() + seconds
        while not self.url:
            assert self.process.poll() is None and time.monotonic() < until, self.log
            self.url = "".join(re.findall(r"answers at (http://[^ ,]+)", self.log)[:1])
            time.sleep(0.05)
        while True:
            try:
                httpx2.get(f"{self.url}/health", trust_env=False).raise_for_status()
                return self
            except httpx2.TransportError:
                assert self.process.poll() is None and time.monotonic() < until, self.log
                time.sleep(0.05)

    @property
    def log(self) -> str:
        """Return what it has said since it was started."""
        return self._log.read_bytes()[self._from :].decode()


@contextmanager
def served(command: Sequence[str], log: Path, url: str = "", **environment: str) -> Iterator[Served]:
    """Yield a server that answers, and is killed at the end if it still runs."""
    server = Served(command, log, url, **environment)
    try:
        yield server.wait()
    finally:
        server.process.kill()
        server.process.wait()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class NotingJudge(LongerJudge):
    """Takes its time for a batch, and notes whom it judged before anybody is told."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self._notes = directory / "judged.txt"
        self._seconds = seconds

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        time.sleep(self._seconds)
        with self._notes.open("a") as file:
            file.write("".join(f"{c.id}\n" for c in comparisons))
        return super().compare_batch(comparisons, seed)


def main(directory: Path, port: int, seconds: float, *overrides: str) -> None:
    """Serve a :class:`NotingJudge`."""
    from judgetrain.artifacts.console import Console
    from judgetrain.extras.server.config import Limits, ServeConfig
    from judgetrain.extras.server.run import bound, run
    from judgetrain.extras.server.service import Service

    numbers = {key: int(value) for key, _, value in (o.partition("=") for o in overrides) if value.isdigit()}
    config = ServeConfig(port=port)
    service = Service(NotingJudge(directory, seconds), config, 17, Limits(**numbers))  # type: ignore[arg-type]
    run(service, bound(config), None, Console())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
