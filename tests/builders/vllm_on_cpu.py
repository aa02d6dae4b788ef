"""vLLM on a CPU, for the tests that ``.ci/parts/vllm`` runs."""

from collections.abc import Iterator

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
