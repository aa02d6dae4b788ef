"""The whole configuration, and what concerns every stage."""

from __future__ import annotations

from dataclasses import dataclass

from judgetrain.artifacts.config import ExecutorConfig, TrackConfig
from judgetrain.data.config import ClusterConfig, DialoguesConfig, ResponsesConfig
from judgetrain.engines.config import AnyEngine, TransformersEngineConfig, engine_key
from judgetrain.evaluate.config import CorrectConfig, EvaluateConfig, ScenariosConfig, StudiesConfig
from judgetrain.evaluate.correlate.config import CorrelateConfig
from judgetrain.judges.config import JudgeConfig, TreeConfig
from judgetrain.judges.prompting.prompts import prompt_path
from judgetrain.judges.rounds import RoundsConfig
from judgetrain.keys import in_place, key
from judgetrain.label.config import LabelConfig, TeacherConfig
from judgetrain.pipeline.graph import COMMANDS, STAGES
from judgetrain.scorers.config import ScorerConfig, SelfEvalConfig
from judgetrain.serving.config import VerdictsConfig
from judgetrain.serving.leaderboard.config import LeaderboardConfig
from judgetrain.serving.queue.config import LabelQueueConfig
from judgetrain.serving.server.config import ServeConfig
from judgetrain.serving.stress.config import StressConfig
from judgetrain.train.config import TrainStages


@dataclass
class HubConfig:
    """The Hugging Face Hub; the token is HF_TOKEN or that of ``hf auth login``."""

    push: bool = key(
        False,
        "upload the judge: with a stage that trains when made, with stage=evaluate measured",
        in_fingerprint=False,
    )
    repo_id: str | None = key(None, "OWNER/NAME", in_fingerprint=False)
    private: bool = key(True, "a repository that is created is private", in_fingerprint=False)


@dataclass
class StatusConfig:
    """stage=status: what there is."""

    detail: bool = key(False, "also seconds, size and date of what is done", in_fingerprint=False)


@dataclass
class CleanConfig:
    """stage=clean: artifacts that nothing refers to, or that are damaged."""

    yes: bool = key(False, "remove what is listed; without it nothing is removed", in_fingerprint=False)
    damaged: bool = key(
        False,
        "list what is damaged in place of what nothing refers to: artifacts, and kept answers of paid models",
        in_fingerprint=False,
    )
    evaluations: bool = key(
        False,
        "list results of other settings too (evaluations, verdicts, ...), with what only they are made from",
        in_fingerprint=False,
    )


@dataclass
class ReportConfig:
    """stage=report: one report of several evaluations."""

    runs: list[str] = key(
        [],
        "evaluations' directories, globs of them, or a sweep's directory; empty: all of output_dir",
        in_fingerprint=False,
    )
    name: str = key("all", "the report is written to output_dir/reports/NAME", in_fingerprint=False)


@dataclass
class Config:
    """The whole configuration."""

    stage: str = key("dpo", "what to make (with whatever it needs)", choices=(*STAGES, *COMMANDS))
    recipe_name: str = key("quickstart", "set by the recipe; shown in reports")
    seed: int = key(17, "every seed derives from it", low=0)
    output_dir: str = key(
        "outputs", "artifacts, answers of paid models, reports and tracking files", in_fingerprint=False
    )
    data_dir: str = key(
        "", "root that a recipe's source paths may refer to; fingerprints hold the content, not the place"
    )
    prompts: str = key(
        "multi_step",
        "prompt set: a name in judgetrain/judges/prompting/prompt_sets or a YAML file",
        content=in_place(prompt_path),
    )
    dialogues: DialoguesConfig = key(DialoguesConfig, "stage dialogues")
    cluster: ClusterConfig = key(ClusterConfig, "stage cluster")
    responses: ResponsesConfig = key(ResponsesConfig, "stage responses")
    teacher: TeacherConfig = key(TeacherConfig, "stage teacher")
    engine: AnyEngine = engine_key(
        TransformersEngineConfig(), "how trained judges generate; engine.model.path is set per stage"
    )
    tree: TreeConfig = key(TreeConfig, "evaluation trees, as judges are trained on them")
    judge: JudgeConfig = key(JudgeConfig, "how branching judges are asked, whatever they were trained on")
    label: LabelConfig = key(LabelConfig, "stage label")
    train: TrainStages = key(TrainStages, "stages initial, sft, dpo, rl")
    rounds: RoundsConfig = key(RoundsConfig, "rounds of tree, label, sft, dpo, rl, and stages anchors and gate")
    evaluate: EvaluateConfig = key(EvaluateConfig, "stage evaluate")
    correct: CorrectConfig = key(CorrectConfig, "stage correct")
    scorer: ScorerConfig = key(ScorerConfig, "scorers in stages evaluate and selfeval")
    selfeval: SelfEvalConfig = key(SelfEvalConfig, "stage selfeval")
    studies: StudiesConfig = key(StudiesConfig, "stage studies")
    correlate: CorrelateConfig = key(CorrelateConfig, "stage correlate")
    scenarios: ScenariosConfig = key(ScenariosConfig, "stage scenarios")
    verdicts: VerdictsConfig = key(VerdictsConfig, "stage judge")
    serve: ServeConfig = key(ServeConfig, "stage=serve")
    leaderboard: LeaderboardConfig = key(LeaderboardConfig, "stage leaderboard")
    stress: StressConfig = key(StressConfig, "stage stress")
    label_queue: LabelQueueConfig = key(LabelQueueConfig, "stage label_queue")
    executor: ExecutorConfig = key(ExecutorConfig, "where work that goes by shards is done")
    track: TrackConfig = key(TrackConfig, "tracking")
    status: StatusConfig = key(StatusConfig, "stage=status")
    report: ReportConfig = key(ReportConfig, "stage=report")
    clean: CleanConfig = key(CleanConfig, "stage=clean")
    hub: HubConfig = key(HubConfig, "the Hugging Face Hub")
    objective: str | None = key(
        None,
        "what a job of stage=evaluate gives to a sweeper, as in world/dpo@1/agreement: over the development split "
        "(evaluate.dev_share), without which a search is refused",
        in_fingerprint=False,
    )
