"""How vLLM is told to start its processes. vLLM on a CPU always spawns them, so real vLLM shows nothing here."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from judgetrain.engines.config import ModelConfig, VllmEngineConfig
from judgetrain.engines.vllm_engine import START_METHOD, VllmEngine
from judgetrain.errors import EngineError


@pytest.mark.parametrize(("by_user", "expected"), [(None, "spawn"), ("fork", "fork")])
def test_processes_are_spawned_unless_the_user_says_otherwise(
    by_user: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has looked for a GPU cannot fork one that uses it."""
    methods = []

    def no_gpu_here(**arguments: Any) -> None:
        methods.append(os.environ.get(START_METHOD))
        raise RuntimeError("no GPU")

    platforms = SimpleNamespace(current_platform=SimpleNamespace(is_cpu=lambda: False))
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=no_gpu_here))
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    # Set first, so that whatever the engine sets is taken back at the end.
    monkeypatch.setenv(START_METHOD, by_user or "")
    if by_user is None:
        monkeypatch.delenv(START_METHOD)
    with pytest.raises(EngineError, match=r"vLLM cannot load world: no GPU"):
        VllmEngine(VllmEngineConfig(model=ModelConfig(path="world")))
    assert methods == [expected]
