"""Stage ``stress``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.sources import read_dialogues
from judgetrain.errors import ConfigError
from judgetrain.extras.stress.config import TRUTH, StressConfig
from judgetrain.judges.checks import check_directories
from judgetrain.judges.method import BASELINE, Method
from judgetrain.judges.settings import ModelSettings
from judgetrain.judging.stages import check_judge

SCORED = ("longer", "random")
"""Baselines that score a response by itself."""


@dataclass(frozen=True, kw_only=True)
class StressSettings(ModelSettings):
    """Stage stress."""

    stress: StressConfig = at("stress")

    @property
    def methods(self) -> Sequence[Method]:
        """The proxies, and the gold standard where it is a method."""
        gold = [] if self.stress.gold == TRUTH else [self.stress.gold]
        return [Method.parse(text) for text in (*self.stress.methods, *gold)]

    @property
    def reads_world(self) -> bool:
        """Whether the prompts are the world's."""
        return self.stress.source.type == "world"


def shown(method: Method) -> str:
    """A proxy's name in tables: a branching judge's with its number of branches."""
    return f"{method.name}@{method.most or 1}" if method.has_branches else method.name


def _check(found: StressSettings) -> None:
    settings = found.stress
    if settings.source.type != "world" and not settings.source.path:
        raise ConfigError("stress.source.path is empty: name a file of prompts (query, or messages), or type: world")
    settings.source.check("stress.source")
    if settings.writer is None:
        raise ConfigError(
            "stress.writer: nobody is named to write the responses; name an engine, as in "
            "stress.writer={type: transformers, model: {path: DIR}} or {type: openai, model: NAME, base_url: URL}"
        )
    settings.writer.check("stress.writer")
    if settings.gold == TRUTH and settings.source.type != "world":
        raise ConfigError(
            "stress.gold=truth: only the generated world (stress.source.type=world) knows the truth; name a method "
            "that is much better than the proxies, as in stress.gold=pairwise:external"
        )
    if not settings.methods:
        raise ConfigError("stress.methods is empty: name a judge, scorer:NAME or longer")
    methods = found.methods
    names = [shown(m) for m in methods]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"stress.methods, stress.gold: {twice!r} is named twice; names must differ")
    for text, method in zip((*settings.methods, settings.gold), methods, strict=False):
        key = "stress.gold" if text == settings.gold else "stress.methods"
        if method.kind == BASELINE and method.target in ("first", "surface"):
            raise ConfigError(f"{key}={text!r}: it gives no score to a response; allowed are {', '.join(SCORED)}")
        check_judge(found, text, key)


def _check_here(found: StressSettings) -> None:
    """Read the prompts, and look at the judges' directories."""
    if found.stress.source.type not in ("world", "hub"):
        for _ in read_dialogues(found.stress.source, "stress.source"):
            pass
    check_directories(found.engine, found.methods, "stress.methods")


STRESS = Stage(name="stress", settings=StressSettings, artifact="evaluation", check=_check, check_here=_check_here)
"""Stage stress."""
