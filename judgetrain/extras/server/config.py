"""The command ``serve``."""

from dataclasses import dataclass

from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key

TOKEN = "JUDGETRAIN_TOKEN"
"""The environment variable of the token that a server asks for, and that a client sends (Authorization: Bearer)."""


@dataclass
class ServeConfig:
    """stage=serve: a judge behind HTTP."""

    judge: str = key("dpo", "who judges: as in verdicts.judge", content=beside(method_directory))
    host: str = key("127.0.0.1", "address to listen at; 0.0.0.0 is every one of this machine", in_fingerprint=False)
    port: int = key(8765, "port to listen at; 0 takes a free one", low=0, high=65535, in_fingerprint=False)
    reward: str = key(
        "round_robin",
        "what /get_reward scores: pairs, or each response (score)",
        choices=("round_robin", "anchor", "score"),
    )
    reasons: bool | None = key(
        None, "write reasons, or scores alone (judge.reasons), behind HTTP; None: as judge.reasons says"
    )
    criteria: int = key(4096, "criteria in one request at most, all rows together", low=1, in_fingerprint=False)
    allowed_hosts: list[str] = key(
        [],
        "without a token: further names by which clients may reach this server (a proxy's); it answers to those that "
        "it listens as, and to addresses",
        in_fingerprint=False,
    )
    group: int = key(1, "/get_reward: responses to a prompt that are compared (OpenRLHF's n_samples_per_prompt)", low=1)


@dataclass(frozen=True)
class Limits:
    """The limits of one server: the same for everybody, so that no deployment has to be tuned."""

    batch: int = 64
    """Comparisons judged together at most: an engine splits what does not fit into memory itself."""
    wait: float = 0.01
    """Seconds that a batch waits for more while the model is idle: little beside the shortest judgment."""
    queue: int = 1024
    """Comparisons that wait at most; further requests are answered 429."""
    comparisons: int = 256
    """Comparisons in one request at most."""
    responses: int = 64
    """Responses to one prompt at most that are all compared with one another: 2,016 pairs."""
    rewarded: int = 4096
    """Responses in one request at most."""
    body: int = 8 * 2**20
    """Bytes of the longest request."""
    parts: int = 2**17
    """Texts (with keys), lists and objects in one request at most."""
    values: int = 2**20
    """Values of any kind, with numbers, in one request at most."""
    bodies: int = 128 * 2**20
    """Bytes of all requests that are still coming in; further ones are answered 429."""
    patience: float = 60.0
    """Seconds that a request's headers may take, and then its body."""
    group_wait: float = 60.0
    """Seconds that a response waits for the others of its group."""


LIMITS = Limits()
