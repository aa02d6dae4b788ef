"""Stage studies: what it reads, and what must hold before it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judgetrain.artifacts.stages import Stage, at
from judgetrain.data.cells import RowError
from judgetrain.data.config import ClusterConfig, SourceConfig
from judgetrain.data.sources import read
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.stages import check_branches
from judgetrain.extras.probdiff_studies.config import StudiesConfig
from judgetrain.extras.selfeval.config import SelfEvalConfig
from judgetrain.judges.kinds.kind import find_kind
from judgetrain.judges.method import JUDGE_STAGES, Method
from judgetrain.judges.settings import ModelSettings, check_directories, names_target
from judgetrain.judging.stages import check_judge
from judgetrain.scorers.config import ScorerConfig, check_scorer


@dataclass(frozen=True, kw_only=True)
class StudiesSettings(ModelSettings):
    """Stage studies."""

    studies: StudiesConfig = at("studies")
    scorer: ScorerConfig = at("scorer")
    selfeval: SelfEvalConfig = at("selfeval", in_fingerprint=False)
    # The base is read by the scorer where that names no model, and by a judge that is called base.
    base: ModelConfig | None = at("train.base", active_if=lambda s: not s.scorer.model.path or names_target("base")(s))
    cluster: ClusterConfig | None = at(
        "cluster", only=("encoder",), active_if=lambda settings: settings.studies.prompts
    )
    branches: list[int] | None = at(
        "evaluate.branches", active_if=lambda settings: any(method.goes_by_criteria for method in settings.methods)
    )

    @property
    def methods(self) -> Sequence[Method]:
        """Return the judges of revisions and of answers, if there are some."""
        # One judge may be named for both.
        names = dict.fromkeys((self.studies.judge, self.studies.duels))
        return [Method.parse(name) for name in names if name]


def _check(settings: StudiesSettings) -> None:
    """Refuse (ConfigError) what the stage cannot do."""
    studies = settings.studies
    if studies.engine:
        # It is asked for repeated answers alone, so that nothing else is needed.
        studies.engine.check("studies.engine")
        return
    if "probdiff" not in settings.selfeval.methods:
        raise ConfigError("selfeval.methods holds no probdiff, which stage=studies is about: add it")
    check_scorer(settings.scorer, settings.base)
    if studies.duels and not studies.against:
        raise ConfigError("studies.duels: name other models' finished stage selfeval in studies.against")
    for method in settings.methods:
        key = "studies.duels"
        if method.text == studies.judge:
            key = "studies.judge"
        kind = find_kind(method.kind)
        asks_model = kind is not None and kind.target.model and kind.build is not None
        # A judge of this run's stages is no input of this stage.
        if method.target in JUDGE_STAGES or not asks_model:
            raise ConfigError(f"{key}={method.text!r}: allowed are base, teacher, external or a judge's ./DIRECTORY")
        if method.goes_by_criteria:
            check_branches(settings.branches or (), settings.criteria or 0)
        check_judge(settings, method.text, key)


def read_verdicts(path: str, key: str, ids: Mapping[str, Any] | None = None) -> dict[str, dict[str, int]]:
    """Return verdicts of people or of another judge, by annotator and prompt id.

    A row has ``id``, ``verdict`` (1, 0 or -1) and maybe ``annotator``, which is ``file`` where rows name none.

    Args:
        path: of the file.
        key: the configuration key that names it, for messages.
        ids: of the run's prompts; None: they are not known yet, and any will do.

    Raises:
        DataError: a malformed row, or one about no prompt of the run; names file and line.
    """

    def read_row(row: Any, number: int) -> tuple[str, str, int]:
        if not isinstance(row, Mapping) or "id" not in row or row.get("verdict") not in (1, 0, -1):
            raise RowError("wrong_verdict", "expected an object with id and verdict, which is 1, 0 or -1")
        if ids is not None and str(row["id"]) not in ids:
            raise RowError("unknown_id", f"no prompt of this run (scores.jsonl) has the id {row['id']!r}")
        return str(row.get("annotator") or "file"), str(row["id"]), int(row["verdict"])

    verdicts: dict[str, dict[str, int]] = {}
    for annotator, prompt, verdict in read(SourceConfig(name=key, path=path), key, read_row):
        of_annotator = verdicts.setdefault(annotator, {})
        if prompt in of_annotator:
            raise DataError(
                f"{path}: id {prompt!r} has several verdicts of {annotator}; name each one's annotator, or give one"
            )
        of_annotator[prompt] = verdict
    return verdicts


def _check_here(settings: StudiesSettings) -> None:
    """Refuse (JudgetrainError) files and directories that cannot be used on this machine."""
    if settings.studies.verdicts:
        read_verdicts(settings.studies.verdicts, "studies.verdicts")
    check_directories(settings.engine, settings.methods, "studies.judge")


def _inputs(settings: StudiesSettings) -> Sequence[str]:
    """Return the stages that the studies read; an endpoint that answers repeatedly needs prompts alone."""
    if settings.studies.engine:
        return ("dialogues",)
    return ("dialogues", "selfeval")


STUDIES = Stage(name="studies", settings=StudiesSettings, inputs=_inputs, check=_check, check_here=_check_here)
