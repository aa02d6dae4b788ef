"""A server of a model, whose answers have the form of vLLM's (vllm/entrypoints/openai/completion/serving.py)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

import tests.builders.client_pauses  # noqa: F401

Answer = tuple[int, Any]
"""An HTTP status and a body."""


@dataclass
class ServedModel:
    """What a server runs, and what it was asked.

    ``bodies``: of every request that came. ``answered``: the texts, as token ids, whose log-probabilities were sent.
    ``faults``: what the next requests get in place of an answer. ``changed``: applied to each answer before it is sent.
    """

    tokenizer: Any
    model: Any
    context: int = 512
    reply: str = "the cat sat"
    changed: Callable[[dict[str, Any]], Any] = lambda answer: answer
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    answered: list[tuple[int, ...]] = field(default_factory=list)
    faults: list[Answer] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        """The answer to a request, or the next fault."""
        with self.lock:
            self.bodies.append(body)
            if self.faults:
                return self.faults.pop(0)
        if path.endswith("/chat/completions"):
            message = {"role": "assistant", "content": self.reply}
            choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
            return 200, self.changed({"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
        prompt = body["prompt"]
        ids = self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else prompt
        if len(ids) + body["max_tokens"] > self.context:
            said = f"This model's maximum context length is {self.context} tokens. Please reduce the length."
            return 400, {"error": {"message": said, "type": "BadRequestError", "code": 400}}
        if max(ids) >= self.model.config.vocab_size:
            return 400, {"error": {"message": f"Token id {max(ids)} is out of vocabulary", "code": 400}}
        with self.lock:
            self.answered.append(tuple(ids))
        choice = {"index": 0, "text": self.tokenizer.decode(ids), "logprobs": self._logprobs(ids, body)}
        usage = {"prompt_tokens": len(ids), "completion_tokens": body["max_tokens"]}
        return 200, self.changed({"choices": [choice | {"finish_reason": "length"}], "usage": usage})

    def _logprobs(self, ids: list[int], body: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the text and of one token after it, with the offsets that vLLM makes of single tokens' texts."""
        with torch.no_grad():
            logs = self.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        written = int(logs[-1].argmax())
        values = [None, *(float(logs[i, t]) for i, t in enumerate([*ids[1:], written]))]
        tokens = [self.tokenizer.decode([t]) for t in [*ids, written]]
        offsets = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
        upto = len(tokens) if body["max_tokens"] else len(ids)
        found = {"text_offset": offsets, "token_logprobs": values, "tokens": tokens}
        return {name: column[:upto] for name, column in found.items()}


@contextmanager
def serving_model(tokenizer: Any, model: Any, **options: Any) -> Iterator[ServedModel]:
    """The model behind an address; closed at the end."""
    served = ServedModel(tokenizer, model, **options)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = served.answer(self.path, body)
            sent = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
