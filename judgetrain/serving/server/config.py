"""The command ``serve``."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.judges.method import method_directory
from judgetrain.keys import beside, key
from judgetrain.serving.rewards.modes import MODES


@dataclass
class ServeConfig:
    """stage=serve: a judge behind HTTP."""

    judge: str = key("dpo", "who judges: as in verdicts.judge", content=beside(method_directory))
    branches: int = key(1, "criteria that a branching judge follows; dpo@3 comes first", low=1)
    host: str = key("127.0.0.1", "address to listen at; 0.0.0.0 is every one of this machine", in_fingerprint=False)
    port: int = key(8765, "port to listen at; 0 takes a free one", low=0, high=65535, in_fingerprint=False)
    token_env: str = key(
        "",
        "environment variable that holds the token which clients send (Authorization: Bearer); empty: none is wanted",
        empty=True,
        in_fingerprint=False,
    )
    batch: int = key(64, "comparisons judged together at most, of however many clients", low=1, in_fingerprint=False)
    wait: float = key(
        0.01,
        "how long a batch waits for further comparisons while the model is idle",
        low=0.0,
        unit="s",
        in_fingerprint=False,
    )
    queue: int = key(
        1024, "comparisons that wait at most; further requests are answered 429", low=1, in_fingerprint=False
    )
    comparisons: int = key(256, "comparisons in one request at most", low=1, in_fingerprint=False)
    body: int = key(8 * 2**20, "longest request", low=1024, unit="bytes", in_fingerprint=False)
    keep: bool = key(
        True,
        "keep answers in output_dir/served: a server that is started again judges none of them twice",
        in_fingerprint=False,
    )
    reward: str = key("round_robin", "how /get_reward makes scalars of pairs", choices=tuple(MODES))
    group: int = key(
        1,
        "/get_reward: responses to a prompt that are compared, where a trainer sends each in a request of its own "
        "(OpenRLHF's n_samples_per_prompt)",
        low=1,
    )
    group_wait: float = key(
        60.0,
        "/get_reward: how long a response waits for the others of its group",
        low=0.0,
        unit="s",
        in_fingerprint=False,
    )
