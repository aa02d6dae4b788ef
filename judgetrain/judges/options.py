"""The one record that a judge is made with, whoever asks for it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from judgetrain.amounts import amount
from judgetrain.data.rubric_kinds import RubricByKind
from judgetrain.engines.config import EngineConfig, OpenAIEngineConfig
from judgetrain.engines.digests import DIGESTS
from judgetrain.errors import ConfigError
from judgetrain.judges.config import BESIDES, Aggregation, JudgeConfig
from judgetrain.judges.deciding import BRANCHES, DECIDED, Thresholds
from judgetrain.judges.kinds.aggregation import FITTED, Fitted, Rule
from judgetrain.judges.once_config import OnceConfig
from judgetrain.judges.panels_config import MemberConfig
from judgetrain.judges.saved import check_learned, criteria_of, learned_rubric, saved_settings
from judgetrain.judges.trees.config import StepsConfig
from judgetrain.keys import changed
from judgetrain.rubrics import Rubric
from judgetrain.schema import ORDERS, RESPONSES, Order, Reads

if TYPE_CHECKING:
    from judgetrain.scorers.config import ScorerConfig

log = logging.getLogger(__name__)

PLANS = ("shared", "independent")


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
        rubric: the criteria of comparisons that bring none; None: the judge names its own.
        once: prompts and sampling of a judge that is asked once.
        scorer: how a scorer computes its score.
        members: of a cascade or a jury.
        model: a mark of the model (:func:`model_mark`), to tell it from others; empty: it is not known.
        prefix: what stands before the names of settings in messages: ``judge.`` before keys of the configuration,
            nothing before arguments in Python.

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
    model: str = ""
    prefix: str = field(default="judge.", compare=False, repr=False)

    def __post_init__(self) -> None:
        check_branches(self.branches, self.steps.criteria)
        # Without weights there is nothing to aggregate by, and weights that nothing reads are a mistake.
        if (self.aggregation == "fitted") != (self.fitted is not None):
            raise ConfigError(
                f"aggregation='fitted' and the weights of stage calibrate ({self.prefix}fitted) go together"
            )
        # Callers in Python set these two without the command line's check of choices.
        for name, allowed in (("plan", PLANS), ("aggregation", get_args(Aggregation))):
            value = getattr(self, name)
            if value not in allowed:
                raise ConfigError(f"{name}={value!r}: allowed are {', '.join(allowed)}")
        self._check_fitted()
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

    def _check_fitted(self) -> None:
        """Refuse weights that were fitted to none of the given criteria (ConfigError)."""
        if self.fitted is None or self.rubric is None or not self.fitted.weights:
            return
        rubrics = [self.rubric]
        if isinstance(self.rubric, RubricByKind):
            rubrics.extend(kind.rubric for kind in self.rubric.kinds)
        given = [criterion.name or criterion.text for rubric in rubrics for criterion in rubric.criteria]
        if self.fitted.weights.keys().isdisjoint(given):
            raise ConfigError(
                f"{self.prefix}fitted: its weights are of {', '.join(self.fitted.weights)}, and none of these is among "
                f"the given criteria ({', '.join(given)}): run stage calibrate with these criteria"
            )

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
                f"{self.prefix}decided: its thresholds are of margins in {self.thresholds.units}, as they are "
                f"{condition} weights fitted to pairs ({self.prefix}aggregation=fitted): run stage "
                "calibrate with the settings that the judge is now asked with"
            )

    @classmethod
    def of(
        cls, judge: JudgeConfig, criteria: int, directory: Path | None = None, prefix: str = "judge.", **more: Any
    ) -> Self:
        """Return the options of a branching judge.

        Args:
            judge: how it is asked.
            criteria: how many criteria it names.
            directory: the trained judge's, where fitted weights may lie; None: another model.
            prefix: as of the class.
            more: fields of the class; they override what ``judge`` says.

        Raises:
            ConfigError: no fitted weights that can be read, or what the class refuses.
        """
        if directory is not None:
            check_learned(directory, judge.reads, prefix)

        values: dict[str, Any] = {
            "prefix": prefix,
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
            values["fitted"] = _fitted_weights(judge.fitted, directory, prefix)
        # The file that the run names comes before the one that lies in the judge's directory.
        if judge.decided is not None:
            values["thresholds"] = Thresholds.load(judge.decided, f"{prefix}decided")
        elif directory is not None and (directory / DECIDED).is_file():
            values["thresholds"] = Thresholds.load(directory, f"{prefix}decided")
        # Last, as the caller's fields override.
        values.update(more)
        if directory is not None and values.get("rubric") is None:
            # A judge that was taught by given criteria never learned to name any.
            values["rubric"] = learned_rubric(directory)
        options = cls(**values)
        if options.thresholds is None:
            return options
        by_setting = []
        for difference in options.thresholds.differences(options.way):
            # Files of thresholds name settings by their keys.
            if difference.startswith("judge."):
                difference = prefix + difference.removeprefix("judge.")
            by_setting.append(difference)
        differences = "; ".join(by_setting)
        if not differences:
            return options
        if judge.decided is not None:
            raise ConfigError(
                f"{prefix}decided={judge.decided}: what it promises was measured on a judge that was asked otherwise "
                f"({differences}): run stage calibrate with the settings that the judge is now asked with"
            )
        # The file lies beside the judge, and nobody asked for it here.
        log.warning(
            "%s: %s in it is for another way of asking (%s): it decides nothing", directory, DECIDED, differences
        )
        return replace(options, thresholds=None)

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
            saved = saved_settings(directory)
            criteria = criteria_of(directory)
        # The plan is no key of judge.*: it stands behind a judge's name.
        keys = dict(changes)
        plan = keys.pop("plan", "shared")
        # Messages name the caller's arguments, which are no keys of a configuration.
        asked = changed(saved, keys, "", BESIDES)
        # In a run a recipe may name weights that not every judge reads; who calls means this judge.
        if keys.get("fitted") is not None and asked.aggregation != "fitted":
            raise ConfigError(
                f"fitted={str(asked.fitted)!r}: these weights are read with aggregation='fitted' alone; found "
                f"aggregation={asked.aggregation!r}"
            )
        return cls.of(asked, criteria, directory, prefix="", plan=plan, **more)

    @property
    def rule(self) -> Rule:
        """Return how branches become a verdict."""
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
    def way(self) -> dict[str, str]:
        """Return by setting what a judge's margins and scores depend on; records by a hash of what they hold.

        What changes only the cost or the text beside the scores is left out, and so are limits on the length of texts.
        """
        way = {
            "judge.reads": self.reads,
            "judge.aggregation": self.aggregation,
            "judge.tie": f"{self.tie:g}",
            "judge.least_read": f"{self.least_read:g}",
            "judge.score": self.steps.score,
            "judge.temperature": f"{self.steps.judgment_sampling.temperature:g}",
            "judge.constrained": str(self.steps.constrained).lower(),
            "judge.reference": str(self.steps.reference).lower(),
            "judge.rubric": self.steps.rubric,
            "criteria named": str(self.steps.criteria),
            "criteria": _mark(self.rubric),
            "plan": self.plan,
            "judge.fitted": _mark(self.fitted),
            BRANCHES: str(self.branches),
        }
        if self.model:
            way["model"] = self.model
        return way

    @property
    def shown(self) -> str:
        """Return how a branching judge is asked, for tables: its sampling, then what differs from the default."""
        parts = [self.steps.shown]
        if self.reads == "one":
            parts.append("one response")
        if self.rubric:
            parts.append("given criteria")
        return ", ".join(parts)


def _fitted_weights(file: str | None, directory: Path | None, prefix: str) -> Fitted:
    """Return the weights of a file, or of the judge's directory where no file is named.

    Raises:
        ConfigError: there are none, or they cannot be read.
    """
    if file:
        return Fitted.load(file, f"{prefix}fitted")
    if directory is None or not (directory / FITTED).is_file():
        place = "the judge has no directory that holds one"
        if directory is not None:
            place = f"{directory} holds none"
        raise ConfigError(
            f"{prefix}aggregation=fitted needs the {FITTED} of stage calibrate, and {place}: name it by {prefix}fitted"
        )
    return Fitted.load(directory, f"{prefix}fitted")


def check_branches(branches: int, criteria: int) -> None:
    """Raise ConfigError unless ``branches`` is a number from 1 to the number of criteria that a judge names."""
    # NumPy's integers count, so that a number of branches may come from a range or a frame.
    if not isinstance(branches, Integral) or not 1 <= branches <= criteria:
        raise ConfigError(f"branches={branches!r}: allowed are 1 to the {amount(criteria, 'criterion')} of this judge")


def model_mark(directory: Path | None, engine: EngineConfig | None) -> str:
    """Return a mark of a judge's model: a hash of its weights' digests, or its name at a server; empty for others.

    Args:
        directory: the model's, if it is one that training wrote.
        engine: that runs a model which is no directory's.
    """
    if directory is not None and (directory / DIGESTS).is_file():
        return hashlib.sha256((directory / DIGESTS).read_bytes()).hexdigest()[:8]
    if directory is None and isinstance(engine, OpenAIEngineConfig):
        return engine.model
    return ""


def _mark(record: Any) -> str:
    """Return a short hash of a record's content; ``none`` for None."""
    if record is None:
        return "none"
    # What is not there has no part in it: a record that knows of a further field is still the one that was written.
    fields = {name: value for name, value in asdict(record).items() if value is not None}
    content = json.dumps(fields, sort_keys=True, default=str)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:8]
