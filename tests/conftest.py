"""Before anything imports PyTorch: one thread for each of the test processes (``addopts`` starts one a core).

And no test asks a model hub for anything, whatever the machine can reach, and none fails because the machine is busy:
Hypothesis's deadline of 200 ms an example is off. Tests marked ``ray`` run where Ray is installed (``.ci/scale``).
"""

import importlib.util
import os

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin cost a busy machine ten times as much
os.environ.setdefault("HF_HUB_OFFLINE", "1")

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("ray") and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
