"""How each kind of method is run on benchmarks. A new kind is a file here, and a line in :data:`RUNNERS`."""

from judgetrain.errors import ConfigError
from judgetrain.evaluate.runners.asked import PromptedRunner
from judgetrain.evaluate.runners.base import Runner
from judgetrain.evaluate.runners.baselines import BaselineRunner
from judgetrain.evaluate.runners.branching import BranchingRunner
from judgetrain.evaluate.runners.scorers import ScorerRunner
from judgetrain.evaluate.runners.stored import StoredRunner
from judgetrain.judges.method import BASELINE, BRANCHING, Method

RUNNERS: dict[str, Runner] = {
    BRANCHING: BranchingRunner(),
    "one_step": PromptedRunner(),
    "at_once": PromptedRunner(),
    "rating": PromptedRunner(),
    "scorer": ScorerRunner(),
    "stored": StoredRunner(),
    BASELINE: BaselineRunner(),
}
"""By the kind of a method, which is its prefix where it has one."""


def known_methods() -> str:
    """What a method may be, for messages."""
    return ", ".join(dict.fromkeys(runner.forms for runner in RUNNERS.values()))


def runner_of(method: Method) -> Runner:
    """What runs a method.

    Raises:
        ConfigError: no such kind.
    """
    if method.kind not in RUNNERS:
        raise ConfigError(f"evaluate.methods: {method.text!r} is none of {known_methods()}")
    return RUNNERS[method.kind]
