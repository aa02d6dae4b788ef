"""A real browser without a window: Debian's Chromium, driven by its own protocol over pipes, where it is installed.

``apt-get install chromium`` is all that the tests need which look at pages; without it they are skipped.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium")
QUIET = ("disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update")
"""Without these it asks for hosts of the network at every start."""
DESK = 1280
PHONE = 390
"""Widths in pixels."""
KEYS = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Space": (" ", 32, " ")}


class Browser:
    """One page at a time; ``with Browser() as browser``."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours = os.pipe()
        theirs = os.pipe()
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (ours[0], theirs[1])]
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--hide-scrollbars", "--remote-debugging-pipe"]
        command += [*(f"--{flag}" for flag in QUIET), f"--user-data-dir={self._home.name}", "about:blank"]
        pipes = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'  # where Chromium reads and writes
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            ["bash", "-c", pipes, "-", *command], pass_fds=ends, stdin=quiet, stdout=quiet, stderr=quiet
        )
        for fd in (ours[0], theirs[1], *ends):
            os.close(fd)
        self._send = os.fdopen(ours[1], "wb", 0)
        self._read = os.fdopen(theirs[0], "rb", 0)
        self._come = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        page = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        self._send.close()
        self._read.close()
        self._home.cleanup()

    def open(self, address: str | Path, width: int = DESK, dark: bool = False) -> None:
        """Load a page, given as its address or its file, on a screen of this width."""
        url = address.resolve().as_uri() if isinstance(address, Path) else address
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width == PHONE
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self._call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, script: str) -> Any:
        """Return what an expression is worth in the page."""
        reply = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, script: str, seconds: float = 60) -> None:
        """Until an expression is true in the page."""
        until = time.monotonic() + seconds
        while not self.value(f"Boolean({script})"):
            assert time.monotonic() < until, f"{script} after {seconds:g} s: {self.value('document.body.innerText')}"
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        """Return what a person reads there."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def picture(self, width: int, height: int) -> bytes:
        """Return what is in sight from the top left as a PNG, in pixels of the page."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self._call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self._call("Input.insertText", text=text)

    def press(self, key: str, control: bool = False) -> None:
        """Press a key."""
        name, code, text = KEYS[key]
        event = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": 2 if control else 0}
        self._call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self._call("Input.dispatchKeyEvent", type="keyUp", **event)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._come:
            part = self._read.read(65536)
            assert part, "Chromium has ended"
            self._come += part
        message, _, self._come = self._come.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        return received

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        while (reply := self._next()).get("id") != message["id"]:
            self.events.append(reply)
        assert "error" not in reply, f"{method}: {reply['error']}"
        answer: dict[str, Any] = reply["result"]
        return answer
