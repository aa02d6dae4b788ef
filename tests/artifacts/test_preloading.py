"""The server from which workers are forked ends with its parent, also while it still imports."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from judgetrain.artifacts.executor import IMPORTED

WORKERS = """
import sys
import time
from judgetrain.artifacts import executor
if __name__ == "__main__":
    executor.IMPORTED = sys.argv[1].split(",")
    pool = executor._forked(1)
    pool.submit(time.sleep, 300)
    time.sleep(300)
"""


def test_a_fork_server_that_still_imports_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    imported = [IMPORTED[0], "tests.builders.slow_import"]
    began = tmp_path / "began"
    parent = subprocess.Popen(
        [sys.executable, str(script), ",".join(imported)],
        env=os.environ | {"SLOW_IMPORT_BEGAN": str(began), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        deadline = time.monotonic() + 240
        while not began.exists():
            assert parent.poll() is None and time.monotonic() < deadline, "the server never began to import"
            time.sleep(0.05)
        processes = psutil.Process(parent.pid).children(recursive=True)
    finally:
        parent.kill()
        parent.wait()
    assert len(processes) == 2, "the server, and what counts semaphores"
    # The import lasts for five minutes.
    alive = psutil.wait_procs(processes, timeout=120)[1]
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_it_is_the_first_import() -> None:
    assert IMPORTED[0] == "judgetrain.artifacts.preloading"
    assert len(IMPORTED) > 1
