"""A small training loop alone, and beside busy processes: without and with what the command line sets for OpenMP.

    python -m tests.benchmarks.busy_machine

Milliseconds on the clock for a step of the shipped base (batches of 8 x 128 tokens), each way in a process of its own,
in turns. "before" has neither OMP_WAIT_POLICY nor OMP_NUM_THREADS; "now" has what share_cores sets.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.benchmarks.common import Figure, parser_of, table

LOOP = """
import sys, time
if sys.argv[1] == "now":
    from judgetrain.artifacts.executor import share_cores
    share_cores()
import torch
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.loading import load_model
model = load_model(ModelConfig(path="world")).train()
optimizer, step, began = torch.optim.AdamW(model.parameters()), -2, 0.0
while step < 1 or (step < 30 and time.monotonic() < began + float(sys.argv[2])):
    if step == 0:
        began = time.monotonic()
    ids = torch.randint(593, (8, 128))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
print(1000 * (time.monotonic() - began) / step)
"""


def figures(repeats: int = 3, seconds: float = 4.0, busy: tuple[int, ...] = (0, 1, 4)) -> list[Figure]:
    """A figure for each number of busy processes: ours is now, the peer before."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    found = []
    for count in busy:
        beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        times: dict[str, list[float]] = {"now": [], "before": []}
        try:
            for _ in range(repeats):
                for way, each in times.items():
                    command = [sys.executable, "-W", "ignore", "-c", LOOP, way, str(seconds)]
                    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
                    each.append(float(done.stdout.split()[-1]))
        finally:
            for process in beside:
                process.kill()
        found.append(Figure(f"a step beside {count} busy processes", "ms", times["now"], times["before"], "before"))
    return found


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="for the steps of one process")
    options = parser.parse_args()
    print(table(figures(options.repeats, options.seconds)))


if __name__ == "__main__":
    main()
