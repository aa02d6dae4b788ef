"""Stage ``stress``: what it reads, and what must hold before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from judgetrain.artifacts.stages import Stage, at
from judgetrain.errors import ConfigError
from judgetrain.extras.stress.config import StressConfig
from judgetrain.judges.method import BASELINE, Method
from judgetrain.judges.settings import ModelSettings, check_directories
from judgetrain.judging.stages import check_judge

SCORED = ("longer", "random")
"""Baselines that score a response by itself."""


@dataclass(frozen=True, kw_only=True)
class StressSettings(ModelSettings):
    """Stage stress."""

    stress: StressConfig = at("stress")
    reads_world: ClassVar[bool] = True  # type: ignore[misc]  # its prompts, and the truth about responses to them

    @property
    def methods(self) -> Sequence[Method]:
        """The proxies."""
        return [Method.parse(text) for text in self.stress.methods]


def shown(method: Method) -> str:
    """A proxy's name in tables: a branching judge's with its number of branches."""
    return f"{method.name}@{method.most or 1}" if method.has_branches else method.name


def _check(found: StressSettings) -> None:
    if found.stress.writer is None:
        raise ConfigError(
            "stress.writer: nobody is named to write the responses; name an engine, as in "
            "stress.writer={type: transformers, model: {path: DIR}} or {type: openai, model: NAME, base_url: URL}"
        )
    found.stress.writer.check("stress.writer")
    if not found.methods:
        raise ConfigError("stress.methods is empty: name a judge, scorer:NAME or longer")
    names = [shown(method) for method in found.methods]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"stress.methods: {twice!r} is named twice; names must differ")
    for method in found.methods:
        if method.kind == BASELINE and method.target in ("first", "surface"):
            raise ConfigError(
                f"stress.methods={method.text!r}: it gives no score to a response; allowed are {', '.join(SCORED)}"
            )
        check_judge(found, method.text, "stress.methods")


STRESS = Stage(
    name="stress",
    settings=StressSettings,
    artifact="evaluation",
    check=_check,
    check_here=lambda found: check_directories(found.engine, found.methods, "stress.methods"),
)
"""Stage stress."""
