"""Settings of judges and of trees, as recipes have them, and the one record that a judge is made with."""

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
from judgetrain.judges.deciding import DECIDED, Thresholds
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.keys import beside, did_you_mean, in_place, key, of_file, validate
from judgetrain.rubrics import Rubric
from judgetrain.schema import ORDERS, RESPONSES, Order, Reads

if TYPE_CHECKING:
    from judgetrain.judges.kinds.aggregation import Fitted, Rule
    from judgetrain.scorers.config import ScorerConfig

C = TypeVar("C")
log = logging.getLogger(__name__)

SETTINGS = "judge.json"
"""The file of a trained judge's directory that says how it is asked, unless the run or the caller says otherwise."""
FITTED = "fitted.json"
"""The file of fitted weights, which users may put into a trained judge's directory."""
PLANS = ("shared", "independent")
BESIDES = ("branches", "plan", "prompts", "engine", "model")
"""The other arguments of a judge in Python, which a misspelt setting may have meant."""

LEVELS = ("criteria", "guideline", "judgment")
"""The levels of an evaluation tree, and the steps of a branch."""
# The ways to read a score; judge.score has "auto" besides.
SCORED = ("parsed", "expected")
TREE_READS: dict[str, tuple[Order, ...]] = {"two": ORDERS, "one": RESPONSES, "both": (*ORDERS, *RESPONSES)}
"""The orders of the judgments in trees, by ``tree.reads``."""
GIVEN = ("only", "first")
"""The roles of a given rubric: all the criteria that count, or the head of a list that the judge goes on with."""

Aggregation = Literal["vote", "mean", "fitted"]
"""The ways from branches to a verdict (``judges/kinds/aggregation.py``).

``vote``: the side that more of them prefer; ``mean``: the side with the larger weighted mean of scores; ``fitted``: the
side that fitted weights make the likelier one.
"""


def _member_directory(text: str, owner: object) -> str | list[str | None] | None:
    """Return the directory of the model that a member's name holds, as of other judges' names."""
    # Imported at use, as methods read kinds, which read this module.
    from judgetrain.judges.method import method_directory

    return method_directory(text, owner)


def changed(config: C, changes: Mapping[str, Any], prefix: str, besides: Sequence[str] = ()) -> C:
    """Return a configuration with some keys changed.

    Args:
        config: a configuration's dataclass.
        changes: new values, by key.
        prefix: where its keys stand in the whole configuration (``judge.``), for messages.
        besides: other names that a misspelt key may have meant.

    Raises:
        ConfigError: no such key, or a value out of range.
    """
    keys = [item.name for item in fields(cast(Any, config))]
    for name in changes:
        if name not in keys:
            hint = did_you_mean(name, [*keys, *besides])
            raise ConfigError(f"{name}: there is no such setting here; there are {', '.join(keys)}{hint}")
    result: C = replace(cast(Any, config), **changes)
    validate(result, prefix)
    return result


@dataclass
class ReadingConfig:
    """Settings of how judgments are written and read, which trees and judges share."""

    score: str = key("parsed", "parsed, as written; expected, the mean of 1 to 5 by probabilities", choices=SCORED)
    constrained: bool = key(False, "enforce the judgment's form while decoding (needs the extra 'constrained')")
    reference: bool = key(True, "show the reference answer in every step, where there is one")
    rubric: str = key("only", "given criteria are: only, all there is; first, the head of a list", choices=GIVEN)
    write_guidelines: bool = key(True, "write the guideline of a given criterion without one; false: judge without")


@dataclass
class StepsConfig(ReadingConfig):
    """Settings of a tree's growth: how many criteria the model is asked for, and the sampling of each step."""

    criteria: int = key(10, "k, criteria named per dialogue", low=1, high=100)
    criteria_sampling: SamplingConfig = key(SamplingConfig, "listing criteria")
    guideline_sampling: SamplingConfig = key(SamplingConfig, "guidelines")
    judgment_sampling: SamplingConfig = key(SamplingConfig, "judgments")

    @property
    def shown(self) -> str:
        """Return the sampling in a few words: ``greedy``, or the temperature, by step where steps differ.

        Scores that are not parsed and an enforced form are named behind it.
        """
        samplings = (self.criteria_sampling, self.guideline_sampling, self.judgment_sampling)
        steps = [sampling.shown for sampling in samplings]
        parts = []
        if len(set(steps)) == 1:
            parts.append(steps[0])
        else:
            parts.append(" / ".join(steps))
        if self.score != "parsed":
            parts.append(self.score)
        if self.constrained:
            parts.append("constrained")
        return ", ".join(parts)

    @property
    def sampled(self) -> Self:
        """Return the same settings, with greedy steps sampled at the model's own probabilities."""
        changes = {}
        for step in LEVELS:
            name = f"{step}_sampling"
            sampling = getattr(self, name)
            if sampling.temperature == 0:
                changes[name] = replace(sampling, temperature=1.0)
        return replace(self, **changes)


@dataclass
class JudgeConfig(ReadingConfig):
    """Settings of a branching judge (stages evaluate, judge, correct, studies; Python); training reads none of them."""

    reads: str = key("two", "responses that a judgment reads: two, in both orders, or one", choices=get_args(Reads))
    score: str = key(
        "auto", "parsed; expected, by probabilities; auto: expected if reads=one", choices=("auto", *SCORED)
    )
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
    least_read: float = key(
        1.0,
        "share of given criteria's weight that a verdict or a score must have read; below it is none; 1: all",
        low=0.0,
        high=1.0,
    )
    reasons: bool = key(
        True,
        "write judgments with their reasons; false: their scores alone, by probabilities, one pass of the model for "
        "each criterion of a response (judges that read one response)",
    )
    early_stop: bool = key(False, "judge only until the verdict can no longer change: fewer tokens in more steps")
    fitted: str | None = key(
        None,
        "fitted.json of stage calibrate: how much each criterion counts; None: the one in the judge's directory",
        content=of_file,
        active_if=lambda c: c.aggregation == "fitted",
    )
    decided: str | None = key(
        None,
        "decided.json of stage calibrate (calibrate.error): answers are decided or undecided by its thresholds; None: "
        "by the one in the judge's directory, if there is one",
        content=of_file,
        active_if=lambda c: c.decided is not None,
    )

    def asking(self, criteria: int) -> StepsConfig:
        """Return the settings that the judge's trees are grown with, which name so many criteria."""
        score = self.score
        if score == "auto":
            score = "parsed"
            # Judgments of one response tie often as whole numbers; probabilities tell them apart.
            if self.reads == "one":
                score = "expected"
        return StepsConfig(
            criteria=criteria,
            score=score,
            constrained=self.constrained,
            reference=self.reference,
            rubric=self.rubric,
            write_guidelines=self.write_guidelines,
            criteria_sampling=SamplingConfig(self.temperature, 1.0, self.criteria_tokens),
            guideline_sampling=SamplingConfig(self.temperature, 1.0, self.guideline_tokens),
            judgment_sampling=SamplingConfig(self.temperature, 1.0, self.judgment_tokens),
        )

    def changed(self, **changes: Any) -> Self:
        """Return the same settings with some keys changed; raises as :func:`changed`."""
        return changed(self, changes, "judge.", BESIDES)

    def save(self, directory: Path, criteria: int, learned: str = "both") -> None:
        """Write these settings as ``judge.json`` into a trained judge's directory.

        Args:
            directory: the judge's.
            criteria: how many criteria it was trained to name.
            learned: how many responses its judgments learned to read, as in ``tree.reads``.
        """
        # All settings, so that a later default changes nothing for a judge that is already trained.
        write_json_atomic(directory / SETTINGS, {"criteria": criteria, "learned": learned, **asdict(self)})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Return the settings of a judge's ``judge.json`` (ConfigError: names the file and the key)."""
        saved = dict(_saved(directory))
        # These two describe the trained model, not how it is asked.
        saved.pop("criteria", None)
        saved.pop("learned", None)
        return cls(**saved)

    def unlike(self, directory: Path) -> list[str]:
        """Return the settings of a judge's ``judge.json`` that these differ from, written as on the command line."""
        trained = asdict(type(self).load(directory))
        current = asdict(self)
        different = []
        for name, value in trained.items():
            if value != current[name]:
                text = value
                if value is None:
                    # As the command line writes it.
                    text = "null"
                different.append(f"judge.{name}={text}")
        return different


@dataclass
class OnceConfig:
    """Settings of a judge that is asked once."""

    prompts: str = key(
        "pairwise",
        "prompt set: a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    sampling: SamplingConfig = key(SamplingConfig(0.0, 1.0, 512), "of the reply")


@dataclass
class MemberConfig:
    """A member of a cascade or a jury."""

    judge: str = key("", "the member, as in verdicts.judge", content=beside(_member_directory))
    decided: str | None = key(
        None, "in a cascade, decided.json by which its answers are decided; None: the judge's own", content=of_file
    )


@dataclass
class PanelConfig:
    """Several judges that answer as one."""

    name: str = key("", "the judge is called cascade:NAME, or jury:NAME")
    members: list[MemberConfig] = key([], "its members; a cascade asks them in this order")


@dataclass
class PanelsConfig:
    """Judges that are made of several."""

    judges: list[PanelConfig] = key([], "each with a name and members")

    def named(self, name: str) -> PanelConfig | None:
        """Return the entry of this name; None where there is none."""
        for panel in self.judges:
            if panel.name == name:
                return panel
        return None


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """All about a judge but its model, its prompts and its name.

    One record for the command line, Python, evaluation, serving and rewards. A judge reads of it what its kind needs:
    a branching judge all but the last two, one that is asked once ``once``, a scorer ``scorer``.

    What is called as a key of ``judge.*`` means what the key says.

    Args:
        branches: k, at most ``steps.criteria``.
        steps: how many criteria are asked for, and the sampling of each step; greedy by default.
        fitted: the weights of aggregation ``fitted``.
        thresholds: by which answers are decided or undecided; None: nothing is said of that.
        plan: whether both orders are judged by one list of criteria and its guidelines (``shared``), or each by its own
            (``independent``). No key: it stands behind a judge's name (``dpo+independent``). Where these steps are
            greedy and their prompts do not show the responses, as in all shipped sets, the two plans are the same
            texts, and only the cost differs.
        rubric: the criteria of comparisons that bring none; None: the judge's own.
        once: prompts and sampling of a judge that is asked once.
        scorer: how a scorer computes its score.
        members: of a cascade or a jury.

    Raises:
        ConfigError: more branches than criteria, or none, an unknown plan or aggregation, fitted weights without
            aggregation ``fitted`` (or the other way round), or scores without reasons that cannot be read.
    """

    branches: int = 1
    # A factory, as an instance would be shared by all options.
    steps: StepsConfig = field(default_factory=lambda: JudgeConfig().asking(StepsConfig.criteria))
    aggregation: Aggregation = "vote"
    fitted: Fitted | None = None
    thresholds: Thresholds | None = None
    tie: float = 0.0
    least_read: float = 1.0
    early_stop: bool = False
    reasons: bool = True
    plan: str = "shared"
    reads: Reads = "two"
    rubric: Rubric | None = None
    retries: int = 0
    once: OnceConfig | None = None
    scorer: ScorerConfig | None = None
    members: Sequence[MemberConfig] = ()

    def __post_init__(self) -> None:
        check_branches(self.branches, self.steps.criteria)
        # Without weights there is nothing to aggregate by, and weights that nothing reads are a mistake.
        if (self.aggregation == "fitted") != (self.fitted is not None):
            raise ConfigError("aggregation='fitted' and the weights of stage calibrate (judge.fitted) go together")
        # Callers in Python set these two without the command line's check of choices.
        for name, allowed in (("plan", PLANS), ("aggregation", get_args(Aggregation))):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")
        self._check_thresholds()
        if self.reasons:
            return
        if self.reads != "one":
            raise ConfigError(
                "reasons=false needs a judge that reads one response (reads=one): where two are read, the second score "
                "follows from the text behind the first"
            )
        if self.steps.score != "expected":
            raise ConfigError("reasons=false reads scores by their probabilities: leave out score=parsed")

    def _check_thresholds(self) -> None:
        """Refuse thresholds of margins in other units than the judge's (ConfigError)."""
        if self.thresholds is None or self.thresholds.of_scores:
            return
        # Weights of single responses leave comparisons to the mean.
        by_weights = self.fitted is not None and not self.fitted.single
        if (self.thresholds.units == "log_odds") != by_weights:
            condition = "with"
            if by_weights:
                condition = "without"
            raise ConfigError(
                f"judge.decided: its thresholds are of margins in {self.thresholds.units}, as they are "
                f"{condition} weights fitted to pairs (judge.aggregation=fitted): run stage "
                "calibrate with the settings that the judge is now asked with"
            )

    @classmethod
    def of(cls, judge: JudgeConfig, criteria: int, directory: Path | None = None, **more: Any) -> Self:
        """Return the options of a branching judge.

        Args:
            judge: how it is asked.
            criteria: how many criteria it names.
            directory: the trained judge's, where fitted weights may lie; None: another model.
            more: fields of the class; they override what ``judge`` says.

        Raises:
            ConfigError: no fitted weights that can be read, or what the class refuses.
        """
        if directory is not None:
            learned = _saved(directory).get("learned", "both")
            if learned not in ("both", judge.reads):
                _warn_of_reads(directory, learned, judge.reads)

        values: dict[str, Any] = {
            "steps": judge.asking(criteria),
            "reads": judge.reads,
            "retries": judge.retries,
            "aggregation": judge.aggregation,
            "early_stop": judge.early_stop,
            "reasons": judge.reasons,
            "tie": judge.tie,
            "least_read": judge.least_read,
        }
        if judge.aggregation == "fitted":
            # Imported here: aggregation imports this module.
            from judgetrain.judges.kinds.aggregation import Fitted

            values["fitted"] = Fitted.load(judge.fitted or directory or "")
        # The file that the run names comes before the one that lies in the judge's directory.
        if judge.decided is not None:
            values["thresholds"] = Thresholds.load(judge.decided)
        elif directory is not None and (directory / DECIDED).is_file():
            values["thresholds"] = Thresholds.load(directory)
        # Last, as the caller's fields override.
        values.update(more)
        return cls(**values)

    @classmethod
    def of_directory(cls, directory: Path | None, changes: Mapping[str, Any], **more: Any) -> Self:
        """Return the options that a judge's directory holds, or the defaults without a directory.

        Args:
            directory: a trained judge's, or None.
            changes: keys of ``judge.*``, and ``plan``, that override them.
            more: other fields of the class.

        Raises:
            ConfigError: no such key, a value out of range, or a directory without a ``judge.json`` that can be read.
        """
        if directory is None:
            saved = JudgeConfig()
            criteria = StepsConfig.criteria
        else:
            saved = JudgeConfig.load(directory)
            criteria = criteria_of(directory)
        # The plan is no key of judge.*: it stands behind a judge's name.
        keys = dict(changes)
        plan = keys.pop("plan", "shared")
        return cls.of(saved.changed(**keys), criteria, directory, plan=plan, **more)

    @property
    def rule(self) -> Rule:
        """Return how branches become a verdict."""
        from judgetrain.judges.kinds.aggregation import Rule

        # Judgments of one response hold no preference that could vote: their scores decide.
        if self.reads == "one" or self.aggregation != "vote":
            return Rule(True, self.tie)
        # Votes are whole numbers: they tie where as many are for either, without a band.
        return Rule(False, 0.0)

    @property
    def stops_early(self) -> bool:
        """Return whether branches are judged only until the verdict is settled."""
        # Fitted weights need the margin of every criterion.
        return self.early_stop and self.aggregation != "fitted"

    @property
    def orders(self) -> tuple[Order, Order]:
        """Return the orders of its judgments: AB and BA, or A and B where each response is judged by itself."""
        if self.reads == "one":
            return RESPONSES
        return ORDERS

    @property
    def shown(self) -> str:
        """Return how a branching judge is asked, for tables: its sampling, then what differs from the default."""
        parts = [self.steps.shown]
        if self.reads == "one":
            parts.append("one response")
        if self.rubric:
            parts.append("given criteria")
        return ", ".join(parts)


def check_branches(branches: int, criteria: int) -> None:
    """Raise ConfigError unless ``branches`` is a number from 1 to the number of criteria that a judge names."""
    # NumPy's integers count, so that a number of branches may come from a range or a frame.
    if not isinstance(branches, Integral) or not 1 <= branches <= criteria:
        raise ConfigError(f"branches={branches!r}: allowed are 1 to the {criteria} criteria of this judge")


def criteria_of(directory: Path) -> int:
    """Return how many criteria a directory's judge was trained to name; raises as :meth:`JudgeConfig.load`."""
    return int(_saved(directory)["criteria"])


# Cached so that a run that makes the judge's options many times warns once.
@cache
def _warn_of_reads(directory: Path, learned: str, reads: str) -> None:
    """Warn that a judge is asked to read another number of responses than it was trained on."""
    log.warning(
        "%s: it learned to read %s, and judge.reads=%s asks for what it never learned: its scores mean little; "
        "train with tree.reads=both",
        directory,
        learned,
        reads,
    )


def _saved(directory: Path) -> dict[str, Any]:
    """Return the content of a directory's ``judge.json``, checked (ConfigError: names the file and the key)."""
    path = directory / SETTINGS
    defaults = {"criteria": StepsConfig.criteria, "learned": "both", **asdict(JudgeConfig())}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} is missing or cannot be opened: this is not a trained judge; "
            f'of another model write at least {{"criteria": {defaults["criteria"]}}}'
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error})") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: it is nested too deeply to be a judge's settings") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: expected an object, found {type(settings).__name__}")

    # By hand, since a judge may come from anywhere: an unknown or misspelt setting must not be passed over.
    for name, value in settings.items():
        if name not in defaults:
            raise ConfigError(f"{path}: {name}: a judge has no such setting{did_you_mean(name, defaults)}")
        default = defaults[name]
        allowed: tuple[type, ...] = (type(default),)
        if isinstance(default, float):
            # A hand-written 0 may stand for 0.0.
            allowed = (float, int)
        # A default of None tells nothing of the type.
        if default is not None and type(value) not in allowed:
            raise ConfigError(f"{path}: {name}: expected {type(default).__name__}, found {value!r}")
    if "criteria" not in settings:
        raise ConfigError(f"{path}: criteria is missing: the number of criteria that the judge was trained to name")
    return settings


@dataclass
class TreeConfig(StepsConfig):
    """Stage tree: what is sampled at each level."""

    reads: str = key("two", "responses a judgment reads: two, in both orders; one; both", choices=tuple(TREE_READS))
    guidelines: int = key(2, "guidelines per criterion", low=1)
    judgments: int = key(2, "judgments per guideline and order", low=1)
    max_comparisons: int | None = key(None, "grow at most this many trees", low=1)
    shard_size: int = key(32, "comparisons finished together; the unit of resume", low=1)
