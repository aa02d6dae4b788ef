"""Before anything imports PyTorch: one thread for each of the test processes (``addopts`` starts one a core).

And no test asks a model hub for anything, whatever the machine can reach.
"""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
