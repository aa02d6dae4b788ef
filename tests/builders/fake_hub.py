"""A Hub that takes repositories and commits, as far as an upload of small files asks for it."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_write_token"


class FakeHub(ThreadingHTTPServer):
    """``files`` holds what was committed, by repository and path; ``created`` the bodies of repositories' creation.

    ``known``: the models that there are, None: all that are asked for; ``looked_up`` those that were asked for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.created: list[dict[str, Any]] = []
        self.refuse = False
        self.known: set[str] | None = None
        self.looked_up: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *args: Any) -> None:
        pass

    def _answer(self, value: Any, status: int = 200, code: str = "") -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        model = self.path.partition("?")[0].removeprefix("/api/models/")
        self.server.looked_up.append(model)
        if self.server.known is not None and model not in self.server.known:
            return self._answer({"error": "Repository not found"}, 404, "RepoNotFound")
        return self._answer({"id": "me/judge", "sha": "0" * 40, "siblings": [], "private": True})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" or self.server.refuse:
            return self._answer({"error": "You don't have the rights to write here"}, 403)
        if self.path == "/api/repos/create":
            self.server.created.append(json.loads(body))
            return self._answer({"url": f"{self.server.url}/me/judge"})
        if "/preupload/" in self.path:
            files = [{"path": f["path"], "uploadMode": "regular"} for f in json.loads(body)["files"]]
            return self._answer({"files": [file | {"shouldIgnore": False} for file in files]})
        if "/commit/" in self.path:
            repository = "/".join(self.path.split("/")[3:5])
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    self.server.files.setdefault(repository, {})[value["path"]] = base64.b64decode(value["content"])
            return self._answer({"commitUrl": f"{self.server.url}/{repository}/commit/abc", "commitOid": "abc"})
        return self._answer({})
