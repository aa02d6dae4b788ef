"""CPU seconds of the checks that models and prompts pass (docs/rules.md), of those that a whole run takes.

    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.self_checks recipe=debug
    OMP_NUM_THREADS=1 taskset -c 1 python -m tests.benchmarks.self_checks recipe=quickstart

Runs the command's stages in this process, in a directory that goes when it ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from judgetrain.engines import model_check
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.pipeline import cli
from judgetrain.train import checkpoints, data, run
from tests.benchmarks.common import parser_of

CHECKS: dict[str, tuple[Any, str]] = {
    "a written judge is loaded again and compared": (run, "check_saved"),
    "what the trained one says, for that": (run, "logprobs"),
    "DPO and RL begin at their reference": (checkpoints.AtReference, "on_log"),
    "answers are decoded and read by their frame": (data.Renderer, "check"),
    "decoding with a cache is a plain pass": (TransformersEngine, "_check_decoding"),
    "a model can be loaded and prompted": (model_check, "_check"),
}


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("overrides", nargs="*", default=["recipe=debug"])
    spent: dict[str, list[float]] = {name: [] for name in CHECKS}

    def timed(check: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return check(*args, **kwargs)
            finally:
                spent[name].append(time.process_time() - began)

        return call

    overrides = parser.parse_args().overrides
    for name, (owner, attribute) in CHECKS.items():
        setattr(owner, attribute, timed(getattr(owner, attribute), name))
    with TemporaryDirectory() as place:
        sys.argv = ["judgetrain", "stage=evaluate", "executor.workers=1", f"output_dir={place}", *overrides]
        if code := cli.main():
            sys.exit(code)
    whole = time.process_time()
    print(f"\n| check | times | CPU s |\n| --- | --- | --- |\n| the whole run | | {whole:.1f} |")
    print("\n".join(f"| {name} | {len(each)} | {sum(each):.2f} |" for name, each in spent.items()))
    checks = sum(map(sum, spent.values()))
    print(f"| all checks | | {checks:.2f} ({100 * checks / whole:.1f}% of this run) |")


if __name__ == "__main__":
    main()
