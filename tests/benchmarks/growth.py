"""What grows with the data: CPU seconds and peak memory of stages label, leaderboard and evaluate at several sizes.

    python -m tests.benchmarks.growth --run OUT --sizes 1000 4000 16000

``OUT`` is the output_dir of a finished quickstart, whose trees are taken again and again. Of leaderboard there are 60
times as many rows as trees, of evaluate three times as many comparisons (by random, longer and surface). Each size is a
process of its own; ``above`` is its peak above that of the same stage at a twentieth of the smallest size.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.label import stage
from judgetrain.label.stages import LabelSettings
from judgetrain.pipeline.compose import composed_of
from tests.benchmarks.common import parser_of

EACH = {"label": 1, "leaderboard": 60, "evaluate": 3}
FLOORS = "evaluate.methods=[random,longer,surface]"


def label(run: str, count: int, place: Path) -> None:
    """Stage label over ``count`` trees: the run's own, again and again under other names."""
    kept = list(read_rows(next(Path(run).glob("artifacts/tree/*/trees-*")).parent, "trees"))
    trees = StageRun(place / "tree", "tree", 0, Console())
    texts = [json.dumps(row).replace(row["comparison"]["id"], "t%d") for row in kept]
    trees.write_rows("trees", (json.loads(texts[i % len(kept)].replace("t%d", f"t{i}")) for i in range(count)))
    settings = LabelSettings.of(composed_of(["recipe=quickstart"]))
    stage.run(settings, {"tree": trees.directory}, StageRun(place / "label", "label", 17, Console()))


def command(name: str, count: int, run: str, place: Path) -> list[str]:
    """Return the command line of a stage at this size."""
    if name == "label":
        return ["tests.benchmarks.growth", "--run", run, "--sizes", str(count), "--label", str(place)]
    if name == "evaluate":
        size = f"dialogues.world.eval_comparisons={count}"
        return ["judgetrain", "stage=evaluate", FLOORS, size, f"output_dir={place / name}"]
    rng = random.Random(count)
    systems = [f"system{i}" for i in range(20)]
    battles = place / "battles.csv"
    with battles.open("w") as file:
        print("model_a,model_b,winner", file=file)
        for _ in range(count):
            print(*rng.sample(systems, 2), rng.choice(("model_a", "model_b", "tie")), sep=",", file=file)
    return ["judgetrain", "leaderboard", f"leaderboard.files=[{battles}]", f"output_dir={place / name}"]


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--label", type=Path, help="label as many trees as the first size in this directory, and end")
    options = parser.parse_args()
    if options.label:
        label(options.run, options.sizes[0], options.label)
        return
    base: dict[str, float] = {}
    print("| stage | size | CPU s | peak MiB | above MiB |\n| --- | --- | --- | --- | --- |")
    for count in [min(options.sizes) // 20, *options.sizes]:
        for name, each in EACH.items():
            with tempfile.TemporaryDirectory() as place:
                words = command(name, each * count, options.run, Path(place))
                child = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL)
                _, status, used = os.wait4(child.pid, 0)
            if status:
                raise SystemExit(f"{' '.join(words)} failed")
            seconds = used.ru_utime + used.ru_stime
            peak = used.ru_maxrss / 1024
            above = peak - base.setdefault(name, peak)
            print(f"| {name} | {each * count:,} | {seconds:.1f} | {peak:.0f} | {above:.0f} |", flush=True)


if __name__ == "__main__":
    main()
