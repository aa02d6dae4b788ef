"""A Hub that takes repositories and commits of small files, and gives them out again at every commit."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from huggingface_hub import constants

TOKEN = "hf_write_token"


class FakeHub(ThreadingHTTPServer):
    """``files`` holds what was committed, by repository and path; ``created`` the bodies of repositories' creation.

    ``commits`` holds the files of every commit by its hash, ``heads`` the last one of a repository, also by
    ``OWNER/NAME:TAG`` where a test sets that.

    ``known``: the models that there are, None: all that are asked for; ``looked_up`` those that were asked for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.created: list[dict[str, Any]] = []
        self.commits: dict[str, dict[str, bytes]] = {}
        self.heads: dict[str, str] = {}
        self.refuse = False
        self.known: set[str] | None = None
        self.looked_up: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def commit_of(self, repository: str, revision: str) -> str | None:
        """Return the hash of a commit that a branch, a tag or a hash names."""
        if revision in self.commits:
            return revision
        return self.heads.get(repository if revision == "main" else f"{repository}:{revision}")

    @property
    def url(self) -> str:
        """Return the address at which it listens."""
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
        # Whoever asks for nothing wants to know whether it is there.
        if self.path == "/":
            return self._answer({})
        parts = self.path.partition("?")[0].removeprefix("/api/models").strip("/").split("/")
        model = "/".join(parts[:2])
        (kind, revision) = parts[2:4] or ("revision", "main")
        self.server.looked_up.append(model)
        if self.server.known is not None and model not in self.server.known:
            return self._answer({"error": "Repository not found"}, 404, "RepoNotFound")
        commit = self.server.commit_of(model, revision)
        if commit is None and (self.server.known is not None or revision != "main"):
            return self._answer({"error": "Revision not found"}, 404, "RevisionNotFound")
        files = self.server.commits.get(commit or "", {})
        if kind == "resolve":
            return self._file(commit or "", files.get("/".join(parts[4:])))
        if kind == "tree":
            below = "/".join([*parts[4:], ""])
            entries = [_entry(path, content) for path, content in files.items() if path.startswith(below)]
            return (
                self._answer(entries) if entries else self._answer({"error": "Entry not found"}, 404, "EntryNotFound")
            )
        siblings = [{"rfilename": path} for path in files]
        return self._answer({"id": model, "sha": commit or "0" * 40, "siblings": siblings, "private": True})

    do_HEAD = do_GET

    def _file(self, commit: str, content: bytes | None) -> None:
        if content is None:
            self._answer({"error": "Entry not found"}, 404, "EntryNotFound")
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

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
            oid = hashlib.sha1(repr(sorted(self.server.files[repository].items())).encode()).hexdigest()
            self.server.commits[oid] = dict(self.server.files[repository])
            self.server.heads[repository] = oid
            return self._answer({"commitUrl": f"{self.server.url}/{repository}/commit/{oid}", "commitOid": oid})
        return self._answer({})


def _entry(path: str, content: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": path, "size": len(content), "oid": oid}


def in_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Yield the server that huggingface_hub asks, with a token; for a fixture."""
    server = FakeHub()
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    address = server.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
