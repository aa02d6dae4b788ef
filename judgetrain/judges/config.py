"""How a judge is asked, and how trees are sampled: what recipes say, and the one record that it comes to."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, get_args

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.engines.config import SamplingConfig
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import did_you_mean, in_place, key, of_file, validate
from judgetrain.rubrics import Rubric
from judgetrain.schema import ORDERS, RESPONSES, Order, Reads

if TYPE_CHECKING:
    from judgetrain.judges.kinds.aggregation import Fitted, Rule
    from judgetrain.scorers.config import ScorerConfig

C = TypeVar("C")
log = logging.getLogger(__name__)

SETTINGS, FITTED = "judge.json", "fitted.json"
"""In a trained judge's directory: how it is asked unless one says otherwise, and weights that users may put there."""
PLANS = ("shared", "independent")
BESIDES = ("branches", "plan", "prompts", "engine", "model")
"""What a judge in Python is given besides these settings, for messages."""

LEVELS = ("criteria", "guideline", "judgment")
"""The levels of an evaluation tree, and the steps of a branch."""
SCORED = ("parsed", "expected")
TREE_READS: dict[str, tuple[Order, ...]] = {"two": ORDERS, "one": RESPONSES, "both": (*ORDERS, *RESPONSES)}
"""What the judgments of trees are shown."""
GIVEN = ("only", "first")
"""What a given rubric is: all that is judged by, or the head of a list that the judge goes on with."""

Aggregation = Literal["vote", "mean", "fitted"]
"""How branches become a verdict: the side that more of them prefer, that with the larger weighted mean of scores,
or that which fitted weights make the likelier one (``judges/kinds/aggregation.py``)."""


def changed(config: C, changes: Mapping[str, Any], prefix: str, besides: Sequence[str] = ()) -> C:
    """A configuration but for some keys, which stand under ``prefix``; ``besides``: what may have been meant by one
    that there is not (ConfigError)."""
    known = [each.name for each in fields(cast(Any, config))]
    if wrong := next((name for name in changes if name not in known), None):
        meant = did_you_mean(wrong, [*known, *besides])
        raise ConfigError(f"{wrong}: there is no such setting here; there are {', '.join(known)}{meant}")
    found: C = replace(cast(Any, config), **changes)
    validate(found, prefix)
    return found


@dataclass
class ReadingConfig:
    """How judgments are written and read, in trees and by a judge alike."""

    score: str = key("parsed", "parsed, as written; expected, the mean of 1 to 5 by probabilities", choices=SCORED)
    constrained: bool = key(False, "enforce the judgment's form while decoding (needs the extra 'constrained')")
    reference: bool = key(True, "show the reference answer in every step, where there is one")
    rubric: str = key("only", "given criteria are: only, all there is; first, the head of a list", choices=GIVEN)
    write_guidelines: bool = key(True, "write the guideline of a given criterion without one; false: judge without")


@dataclass
class StepsConfig(ReadingConfig):
    """What a tree is grown with: how many criteria the model is asked for, and the sampling of each step."""

    criteria: int = key(10, "k, criteria named per dialogue", low=1, high=100)
    criteria_sampling: SamplingConfig = key(SamplingConfig, "listing criteria")
    guideline_sampling: SamplingConfig = key(SamplingConfig, "guidelines")
    judgment_sampling: SamplingConfig = key(SamplingConfig, "judgments")

    @property
    def shown(self) -> str:
        """In a word: ``greedy`` or the temperature, by step where they differ; how scores are read, if not parsed."""
        steps = [s.shown for s in (self.criteria_sampling, self.guideline_sampling, self.judgment_sampling)]
        parts = [steps[0] if len(set(steps)) == 1 else " / ".join(steps)]
        parts += [self.score] if self.score != "parsed" else []
        return ", ".join([*parts, "constrained"] if self.constrained else parts)

    @property
    def sampled(self) -> Self:
        """The same, but that what is greedy is sampled at the model's own probabilities."""
        names = [f"{step}_sampling" for step in LEVELS]
        greedy = {name: found for name in names if not (found := getattr(self, name)).temperature}
        return replace(self, **{name: replace(found, temperature=1.0) for name, found in greedy.items()})


@dataclass
class JudgeConfig(ReadingConfig):
    """How a branching judge is asked (stages evaluate, judge, correct, studies; Python); it concerns no training."""

    reads: str = key("two", "responses that a judgment reads: two, in both orders, or one", choices=get_args(Reads))
    score: str = key("auto", "parsed; expected, by probabilities; auto: so, if it reads one", choices=("auto", *SCORED))
    temperature: float = key(0.0, "of every step: criteria, guidelines, judgments; 0 is greedy", low=0.0, high=10.0)
    criteria_tokens: int = key(512, "longest list of criteria", low=1, unit="tokens")
    guideline_tokens: int = key(512, "longest guideline", low=1, unit="tokens")
    judgment_tokens: int = key(512, "longest judgment", low=1, unit="tokens")
    retries: int = key(1, "times to ask again, sampled, where the first branch cannot be read", low=0, high=10)
    aggregation: str = key(
        "vote",
        "how branches become a verdict: vote; mean, weighted; fitted, by judge.fitted (docs/asking.md)",
        choices=get_args(Aggregation),
    )
    tie: float = key(
        0.0, "how far apart means may be for a tie, as a share of the scale: 0.125 is half a level", low=0.0, high=1.0
    )
    early_stop: bool = key(False, "judge only until the verdict can no longer change: fewer tokens in more steps")
    fitted: str | None = key(
        None,
        "fitted.json of stage calibrate: how much each criterion counts; None: the one in the judge's directory",
        content=of_file,
        active_if=lambda c: c.aggregation == "fitted",
    )

    def asking(self, criteria: int) -> StepsConfig:
        """What its trees are grown with, where it is asked for so many criteria."""
        steps: dict[str, Any] = {
            f"{step}_sampling": SamplingConfig(self.temperature, 1.0, getattr(self, f"{step}_tokens"))
            for step in LEVELS
        }
        how = {name: getattr(self, name) for name in ("constrained", "reference", "rubric", "write_guidelines")}
        auto = "expected" if self.reads == "one" else "parsed"
        return StepsConfig(criteria=criteria, score=auto if self.score == "auto" else self.score, **how, **steps)

    def changed(self, **changes: Any) -> Self:
        """The same but for some keys; raises as :func:`changed`."""
        return changed(self, changes, "judge.", BESIDES)

    def save(self, directory: Path, criteria: int, learned: str = "both") -> None:
        """Write it as ``judge.json`` into a trained judge's directory.

        With it the number of criteria that it names, and what its judgments ``learned`` to read (``tree.reads``).
        """
        write_json_atomic(directory / SETTINGS, {"criteria": criteria, "learned": learned, **asdict(self)})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """What ``judge.json`` says of asking; a ConfigError names the file and the key."""
        return cls(**{name: value for name, value in _saved(directory).items() if name not in ("criteria", "learned")})

    def unlike(self, directory: Path) -> list[str]:
        """By which settings a judge was trained to be asked where this asks otherwise, as on the command line."""
        own, here = asdict(type(self).load(directory)), asdict(self)
        return [f"judge.{name}={'null' if own[name] is None else own[name]}" for name in own if own[name] != here[name]]


@dataclass
class OnceConfig:
    """How a judge that is asked once is asked."""

    prompts: str = key(
        "pairwise",
        "prompt set: a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.0, 1.0, 512), "of the reply")


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """How a judge is asked: all about it but its model, its prompts and its name.

    One record for the command line, Python, evaluation, serving and rewards. A judge reads of it what its kind needs:
    a branching judge all but the last two, one that is asked once ``once``, a scorer ``scorer``.

    What is called as a key of ``judge.*`` means what the key says.

    Args:
        branches: k, at most ``steps.criteria``.
        steps: how many criteria are asked for, and the sampling of each step; greedy by default.
        fitted: the weights of aggregation ``fitted``.
        plan: whether both orders are judged by one list of criteria and its guidelines (``shared``), or each by its own
            (``independent``). No key: it stands behind a judge's name (``dpo+independent``). Where these steps are
            greedy and their prompts do not show the responses, as in all shipped sets, the two plans are the same
            texts, and only the cost differs.
        rubric: the criteria of comparisons that bring none; None: the judge's own.
        once: prompts and sampling of a judge that is asked once.
        scorer: how a scorer computes its score.

    Raises:
        ConfigError: more branches than criteria, or none, or no such plan or aggregation.
    """

    branches: int = 1
    steps: StepsConfig = field(default_factory=lambda: JudgeConfig().asking(StepsConfig.criteria))
    aggregation: Aggregation = "vote"
    fitted: Fitted | None = None
    tie: float = 0.0
    early_stop: bool = False
    plan: str = "shared"
    reads: Reads = "two"
    rubric: Rubric | None = None
    retries: int = 0
    once: OnceConfig | None = None
    scorer: ScorerConfig | None = None

    def __post_init__(self) -> None:
        check_branches(self.branches, self.steps.criteria)
        if (self.aggregation == "fitted") != (self.fitted is not None):
            raise ConfigError("aggregation='fitted' and the weights of stage calibrate (judge.fitted) go together")
        for name, allowed in (("plan", PLANS), ("aggregation", get_args(Aggregation))):
            if (value := getattr(self, name)) not in allowed:
                raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")

    @classmethod
    def of(cls, judge: JudgeConfig, criteria: int, directory: Path | None = None, **more: Any) -> Self:
        """Those of a branching judge that ``judge.*`` says how to ask, and that names so many criteria.

        ``directory``: the judge's own, where fitted weights may lie beside it.
        """
        own = {name: getattr(judge, name) for name in ("reads", "retries", "aggregation", "early_stop", "tie")}
        if directory is not None and (learned := _saved(directory).get("learned", "both")) not in ("both", judge.reads):
            _warn_of_reads(directory, learned, judge.reads)
        if judge.aggregation == "fitted":
            from judgetrain.judges.kinds.aggregation import Fitted

            own |= {"fitted": Fitted.load(judge.fitted or directory or "")}
        return cls(steps=judge.asking(criteria), **own | more)  # type: ignore[arg-type]

    @classmethod
    def of_directory(cls, directory: Path | None, asked: Mapping[str, Any], **more: Any) -> Self:
        """As a trained judge's directory says, or the defaults where there is none, but for what is ``asked``."""
        saved, criteria = JudgeConfig(), StepsConfig.criteria
        if directory is not None:
            saved, criteria = JudgeConfig.load(directory), criteria_of(directory)
        judge = saved.changed(**{k: v for k, v in asked.items() if k != "plan"})
        return cls.of(judge, criteria, directory, plan=asked.get("plan", "shared"), **more)

    @property
    def rule(self) -> Rule:
        """How branches become a verdict: of judgments of one response by their scores, whatever else is said."""
        from judgetrain.judges.kinds.aggregation import Rule

        weighed = self.reads == "one" or self.aggregation != "vote"
        return Rule(weighed, self.tie if weighed else 0.0)

    @property
    def stops_early(self) -> bool:
        """Whether branches are judged only until the verdict is settled."""
        return self.early_stop and self.aggregation != "fitted"

    @property
    def orders(self) -> tuple[Order, Order]:
        """What its judgments are shown: both responses in either order, or each response by itself."""
        return RESPONSES if self.reads == "one" else ORDERS

    @property
    def shown(self) -> str:
        """How a branching judge is asked, for tables: its steps, then whatever differs from the default."""
        reads = "one response" if self.reads == "one" else ""
        given = "given criteria" if self.rubric else ""
        return ", ".join(filter(None, [self.steps.shown, reads, given]))


def check_branches(branches: int, criteria: int) -> None:
    """Raise ``ConfigError`` unless a judge that names so many criteria has that many branches."""
    if not isinstance(branches, Integral) or not 1 <= branches <= criteria:
        raise ConfigError(f"branches={branches!r}: allowed are 1 to the {criteria} criteria of this judge")


def criteria_of(directory: Path) -> int:
    """How many criteria the judge of a directory was trained to name; errors as of :meth:`JudgeConfig.load`."""
    return int(_saved(directory)["criteria"])


@cache  # said once
def _warn_of_reads(directory: Path, learned: str, asked: str) -> None:
    told = "%s: it learned to read %s, and judge.reads=%s asks for what it never learned: its scores mean little; "
    log.warning(f"{told}train with tree.reads=both", directory, learned, asked)


def _saved(directory: Path) -> dict[str, Any]:
    path, usual = directory / SETTINGS, {"criteria": StepsConfig.criteria, "learned": "both"} | asdict(JudgeConfig())
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        told = f"{path}: there is none that can be read, so that it is no trained judge"
        raise ConfigError(f'{told}; of another model write at least {{"criteria": {usual["criteria"]}}}') from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected an object, found {type(found).__name__}")
    for name, value in found.items():
        if name not in usual:
            raise ConfigError(f"{path}: {name}: a judge has no such setting{did_you_mean(name, usual)}")
        kind = type(usual[name])
        right = type(value) is kind or (kind is float and type(value) is int)
        if usual[name] is not None and not right:
            raise ConfigError(f"{path}: {name}: expected {kind.__name__}, found {value!r}")
    if "criteria" not in found:
        raise ConfigError(f"{path}: criteria is missing: the number of criteria that the judge was trained to name")
    return found


@dataclass
class TreeConfig(StepsConfig):
    """Stage tree: what is sampled at each level."""

    reads: str = key("two", "responses a judgment reads: two, in both orders; one; both", choices=tuple(TREE_READS))
    guidelines: int = key(2, "guidelines per criterion", low=1)
    judgments: int = key(2, "judgments per guideline and order", low=1)
    max_comparisons: int | None = key(None, "grow at most this many trees", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)
