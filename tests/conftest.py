"""Before anything imports PyTorch: one thread for each of the test processes (``addopts`` starts one a core).

And no test asks a model hub for anything, whatever the machine can reach, and none fails because the machine is busy:
Hypothesis's deadline of 200 ms an example is off. Tests marked ``ray`` run where Ray is installed (``.ci/parts/ray``).
"""

import atexit
import gc
import importlib.metadata
import importlib.util
import os
from functools import cache

gc.disable()  # until everything is imported: half of that time went into looking through it again and again

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin cost a busy machine ten times as much
os.environ.setdefault("HF_HUB_OFFLINE", "1")
importlib.metadata.metadata = cache(importlib.metadata.metadata)  # Accelerate reads it for every model it looks at
os.fsync = lambda _: None  # type: ignore[assignment]  # no test turns the power off; a disk takes milliseconds each

SLOWEST = (
    *("e2e/test_quickstart", "train/test_modes", "train/test_stopped", "train/test_distributed"),
    "pipeline/test_tiny_recipes",
    *("rl/test_rl", "e2e/test_own_rows", "fuzz/test_workers", "train/test_saved", "pipeline/test_hub"),
    *("train/test_trainer_arguments", "e2e/test_pages", "e2e/test_readme", "e2e/test_gemma_recipe"),
    *("train/test_train", "label/test_worth_on_the_world", "fuzz/test_killed", "fuzz/test_linear"),
    *("train/test_templates", "init/test_preflight", "train/test_preflight", "engines/test_prompting"),
    *("e2e/test_new_benchmark", "judging/test_judging", "world_base/test_corpus"),
)
"""Files of some 15 seconds or more. They begin a run, or the last of them would end it with no test beside it.

The first makes the run that several read (``debug_run.finished_once``), while the others wait for nothing.
"""

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("ray") and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")


def pytest_collection_finish() -> None:
    """Garbage is collected again, and what was imported is left out: a full collection ends every stage."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # or a library says at the end that it has lost what was left out
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: places.get("/".join(item.path.with_suffix("").parts[-2:]), len(places)))
