"""Before anything imports PyTorch: one thread for each of the test processes (``addopts`` starts one a core)."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
