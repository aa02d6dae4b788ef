"""Judges: how many branches they grow, and how they are asked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.engines.config import EngineConfig, SamplingConfig, engine_type
from judgetrain.keys import key

if TYPE_CHECKING:
    from judgetrain.engines.answers import AnswerStore, Budget
    from judgetrain.engines.base import Engine


SETTINGS = "judge.json"
"""Carried in a trained judge's directory: how it is asked unless one says otherwise."""

Aggregation = Literal["vote", "margin", "ranked"]
"""How branches become a verdict: the side that more of them prefer, that with the larger sum of scores, or that which
the first to see a difference prefers (``judges/kinds/aggregation.py``)."""


@engine_type("heuristic")
@dataclass
class HeuristicEngineConfig(EngineConfig):
    """Labelling functions over text statistics, in the teacher's place."""

    type: str = key("heuristic", "backend")
    error_rate: float = key(0.1, "share of judgments that carry random scores", low=0.0, high=1.0)

    computes = True
    steps = ("criteria", "guideline", "judgment")

    def make(self, answers: AnswerStore | None = None, budget: Budget | None = None) -> Engine:
        """The engine."""
        from judgetrain.judges.heuristic.engine import HeuristicEngine

        return HeuristicEngine(self)


@dataclass
class AskingConfig:
    """How a branching judge is asked; nothing of it but the number of criteria concerns how a judge is trained."""

    criteria: int = key(10, "k, criteria named per dialogue", low=1, high=100)
    criteria_sampling: SamplingConfig = key(SamplingConfig, "listing criteria")
    guideline_sampling: SamplingConfig = key(SamplingConfig, "guidelines")
    judgment_sampling: SamplingConfig = key(SamplingConfig, "judgments")
    readout: str = key(
        "parsed",
        "scores of a judgment: parsed, as written; expected, the mean of 1 to 5 weighted by the tokens' probabilities",
        choices=("parsed", "expected"),
    )
    constrained: bool = key(False, "enforce the judgment's form while decoding (needs the extra 'constrained')")
    tie: float = key(0.0, "scores at most so far apart are a tie", low=0.0, high=4.0, unit="points")

    def save(self, directory: Path) -> None:
        """Write it as ``judge.json`` into a trained judge's directory, for ``from_pretrained``."""
        write_json_atomic(directory / SETTINGS, asdict(self))

    @classmethod
    def load(cls, directory: Path, otherwise: AskingConfig | None = None) -> AskingConfig:
        """What ``judge.json`` says of asking; ``otherwise``, or the defaults, where there is none."""
        path = directory / SETTINGS
        if not path.is_file():
            return otherwise or cls()
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            k: SamplingConfig(**v) if k.endswith("_sampling") else v for k, v in raw.items() if k in known
        }
        return cls(**values)


@dataclass
class TreeConfig(AskingConfig):
    """Stages teacher and tree, and every branching judge: what is sampled at each level."""

    guidelines: int = key(2, "guidelines per criterion", low=1)
    judgments: int = key(2, "judgments per guideline and order", low=1)
    retries: int = key(
        0, "stage tree: times a judgment that cannot be read is sampled again, at a temperature above 0", low=0
    )
    max_comparisons: int | None = key(None, "grow at most this many trees", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)

    @property
    def asking(self) -> AskingConfig:
        """What of these settings a judge at inference has a use for."""
        return AskingConfig(**{field.name: getattr(self, field.name) for field in fields(AskingConfig)})
