"""What an OpenAI-compatible server is asked."""

from __future__ import annotations

from typing import Any

from judgetrain.engines.base import Request
from judgetrain.engines.choices import LOGPROBS
from judgetrain.engines.neutralise import neutralise_known


def chat_body(model: str, request: Request, seed: int, limit_key: str) -> dict[str, Any]:
    """The body of a request for a chat completion; ``limit_key``: the server's name of the length limit."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [{**m, "content": neutralise_known(m["content"])} for m in request.messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        **({"top_k": sampling.top_k} if sampling.top_k else {}),
        limit_key: sampling.max_new_tokens,
        "seed": seed,
    }
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.candidates:
        body |= {"logprobs": True, "top_logprobs": LOGPROBS}
    if sampling.pattern:
        body["structured_outputs"] = {"regex": sampling.pattern}  # vLLM's server; others answer 400
    return body
