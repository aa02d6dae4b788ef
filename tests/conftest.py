"""Before anything imports PyTorch: one thread for each of the test processes (``addopts`` starts one a core).

And no test asks a model hub for anything, whatever the machine can reach, and none fails because the machine is busy:
Hypothesis's deadline of 200 ms an example is off.
"""

import os

from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ.setdefault("HF_HUB_OFFLINE", "1")

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
