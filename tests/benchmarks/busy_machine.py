"""A small training loop alone, and beside busy processes: without and with what the command line sets for OpenMP.

    python -m tests.benchmarks.busy_machine

Milliseconds on the clock for a step of the shipped base (batches of 8 x 128 tokens), each way in a process of its own,
in turns. "before" has neither OMP_WAIT_POLICY nor OMP_NUM_THREADS; "now" has what share_cores sets. It and the busy
processes have sessions of their own, as other users' have: Linux may share cores out by session, not by thread.
"""

import os
import subprocess
import sys
from functools import partial

from tests.benchmarks.common import Figure, in_turns, program

LOOP = """
import sys, time
if sys.argv[1] == "now":
    from judgetrain.artifacts.executor import share_cores
    share_cores()
import torch
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
model = load_model(ModelConfig(path="world")).train()
optimizer, step, began = torch.optim.AdamW(model.parameters()), -1, 0.0
while step < 1 or (step < 30 and time.monotonic() < began + float(sys.argv[2])):
    began, ids = began if step else time.monotonic(), torch.randint(model.config.vocab_size, (8, 128))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
print(1000 * (time.monotonic() - began) / step)
"""
BUSY = [sys.executable, "-c", "import os\nwhile os.getppid() == " + str(os.getpid()) + ": pass"]
PEER = "the same process as PyTorch starts it, with neither OMP_WAIT_POLICY nor OMP_NUM_THREADS"


def figures(repeats: int = 2, seconds: float = 4.0, busy: tuple[int, ...] = (0, 1, 4)) -> list[Figure]:
    """Return a figure for each number of busy processes: ours is now, the peer before."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    rows = []
    for count in busy:
        beside = [subprocess.Popen(BUSY, start_new_session=True) for _ in range(count)]

        def step(way: str, env: dict[str, str] = env) -> float:
            command = [sys.executable, "-W", "ignore", "-c", LOOP, way, str(seconds)]
            done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, start_new_session=True)
            return float(done.stdout.split()[-1])

        try:
            times = in_turns({way: partial(step, way) for way in ("now", "before")}, repeats)
        finally:
            for process in beside:
                process.kill()
        rows.append(Figure(f"a step beside {count} busy processes", "ms", times["now"], times["before"], PEER))
    return rows


def main() -> None:
    program(__doc__, figures)


if __name__ == "__main__":
    main()
