"""vLLM on a CPU, for the tests that ``.ci/parts/vllm`` runs."""

import os
import time
from collections.abc import Iterable, Iterator

import pytest

VLLM = {"enforce_eager": True, "kv_cache_memory_bytes": 2**29}
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # one thread, whatever cores the machine has
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",  # a machine may be busy
    "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled for a few requests
}


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Set one thread, and no lines of vLLM's own, in the module that imports this."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


def children() -> set[int]:
    """Return the processes that this one has started, and theirs."""
    import psutil

    return {child.pid for child in psutil.Process(os.getpid()).children(recursive=True)}


def still_alive(pids: Iterable[int], seconds: float = 30) -> set[int]:
    """Return the processes that have not ended after so many seconds, or fewer where all have ended before."""
    deadline = time.monotonic() + seconds
    remaining = {pid for pid in pids if _is_alive(pid)}
    while remaining and time.monotonic() < deadline:
        time.sleep(0.1)
        remaining = {pid for pid in remaining if _is_alive(pid)}
    return remaining


def _is_alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
