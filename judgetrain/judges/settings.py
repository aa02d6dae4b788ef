"""The settings of stages whose methods name judges, and checks of those judges before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from judgetrain.artifacts.fingerprint import check_package
from judgetrain.artifacts.stages import StageSettings, at
from judgetrain.data.config import WorldConfig
from judgetrain.data.rubrics import read_rubric
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, ModelConfig, TransformersEngineConfig
from judgetrain.engines.hub import check_on_hub, hub_id
from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.deciding import DECIDED
from judgetrain.judges.kinds.aggregation import FITTED
from judgetrain.judges.kinds.kind import find_kind, kind_of
from judgetrain.judges.method import JUDGE_STAGES, TARGETS, Method
from judgetrain.judges.once_config import OnceConfig
from judgetrain.judges.panels_config import PanelsConfig
from judgetrain.judges.prompting.prompts import FILE as PROMPTS
from judgetrain.judges.prompting.prompts import load_prompt_set, prompt_path
from judgetrain.judges.saved import criteria_of
from judgetrain.judges.trees.config import LEVELS
from judgetrain.keys import in_place, of_file
from judgetrain.scorers.config import ScorerConfig

EXTERNAL = {"teacher": "teacher.engine", "external": "evaluate.external"}
"""Targets that are no model of this run: the keys of their engines."""


def names_target(target: str) -> Callable[[ModelSettings], bool]:
    """Return a function of settings that returns whether one of their methods names this model."""
    return lambda settings: any(method.target == target for method in settings.methods if method.names_model)


def is_read(field: str) -> Callable[[ModelSettings], bool]:
    """Return a function of settings that returns whether the kind of one of their methods reads this field."""
    return lambda settings: any(field in fields_read(method) for method in settings.methods)


def fields_read(method: Method) -> Sequence[str]:
    """Return the fields of :class:`ModelSettings` that a method's kind reads; none where there is no such kind."""
    kind = find_kind(method.kind)
    if kind is None:
        return ()
    return kind.setup.settings


def _uses_engine(settings: ModelSettings) -> bool:
    """Return whether the run's engine generates for a method: external models have engines of their own."""
    # With an external judge alone, another engine must not change the fingerprint.
    targets = {method.target for method in settings.methods if method.names_model}
    return not targets <= set(EXTERNAL)


def _uses_base(settings: ModelSettings) -> bool:
    """Return whether a method names the base model, or scorers read it for want of a model of their own."""
    if names_target("base")(settings):
        return True
    # A scorer without a model of its own reads the base model.
    return is_read("scorer")(settings) and settings.scorer is not None and not settings.scorer.model.path


def _uses_prompts(settings: ModelSettings) -> bool:
    """Return whether answers depend on the run's prompts: a trained judge has its own, which its weights stand for."""
    promptless = ("base", *EXTERNAL)
    return any("prompts" in fields_read(method) and method.target in promptless for method in settings.methods)


@dataclass(frozen=True, kw_only=True)
class ModelSettings(StageSettings):
    """The models that methods may name and how judges are asked; the fingerprint leaves out what no method uses.

    Judges are asked alike in all stages: as ``judge.*`` says, and ``evaluate.*`` where that says it already.
    """

    judge: JudgeConfig | None = at("judge", active_if=is_read("judge"))
    criteria: int | None = at("tree.criteria", active_if=is_read("criteria"))
    rubric: str | None = at("criteria", content=of_file, active_if=is_read("rubric"))
    engine: EngineConfig | None = at("engine", active_if=_uses_engine)
    prompts: str | None = at(
        "prompts", content=in_place(prompt_path), active_if=is_read("prompts"), counted_if=_uses_prompts
    )
    base: ModelConfig | None = at("train.base", active_if=_uses_base)
    teacher: EngineConfig | None = at("teacher.engine", active_if=names_target("teacher"))
    external: EngineConfig | None = at("evaluate.external", active_if=names_target("external"))
    pairwise: OnceConfig | None = at("evaluate.pairwise", active_if=is_read("pairwise"))
    pointwise: OnceConfig | None = at("evaluate.pointwise", active_if=is_read("pointwise"))
    scorer: ScorerConfig | None = at("scorer", active_if=is_read("scorer"))
    cascade: PanelsConfig | None = at("cascade", active_if=is_read("cascade"))
    jury: PanelsConfig | None = at("jury", active_if=is_read("jury"))
    world: WorldConfig | None = at("dialogues.world", active_if=lambda settings: settings.uses_world)
    eval_comparisons: int | None = at(
        "dialogues.world.eval_comparisons", active_if=lambda settings: settings.uses_world
    )

    own_criteria: ClassVar[bool] = False
    """True: judges go by their own criteria, also where a file of others is set (``criteria``)."""
    reasons_key: ClassVar[str] = "judge.reasons"
    """The key by which the stage says whether judges write reasons (:attr:`writes_reasons`)."""

    @property
    def whole_trees(self) -> bool:
        """Return whether every branch is judged, also where ``judge.early_stop`` would do with fewer."""
        return False

    @property
    def writes_reasons(self) -> bool | None:
        """Return whether judges write reasons, where the stage says so itself; None: as ``judge.reasons`` says."""
        return None

    @property
    def judge_asked(self) -> JudgeConfig:
        """Return ``judge.*``, or its defaults where no method reads them, with what the stage says itself."""
        judge = self.judge or JudgeConfig()
        if self.writes_reasons is None:
            return judge
        return replace(judge, reasons=self.writes_reasons)

    @property
    def methods(self) -> Sequence[Method]:
        """Return the methods whose models the stage may load."""
        return ()

    def with_members(self, methods: Iterable[Method]) -> list[Method]:
        """Return methods, each followed by the members of a cascade or jury, without repeats."""
        listed: list[Method] = []
        for method in methods:
            listed.append(method)
            kind = find_kind(method.kind)
            if kind is None or not kind.target.panel:
                continue
            # None where the settings leave the section out, since no method of the stage reads it.
            panels: PanelsConfig = getattr(self, method.kind) or PanelsConfig()
            panel = panels.named(method.target)
            if panel is not None:
                listed.extend(Method.parse(member.judge) for member in panel.members)
        return list(dict.fromkeys(listed))

    @property
    def uses_world(self) -> bool:
        """Return whether the stage reads the held-out split of the generated world."""
        return False

    @property
    def judges(self) -> Sequence[str]:
        """Return the stages whose judges are among the methods, in the order of the pipeline: the stage's inputs."""
        targets = {method.target for method in self.methods if method.names_model}
        return [name for name in JUDGE_STAGES if name in targets]

    @property
    def beside_inputs(self) -> Sequence[str]:
        """Return the files of a judge's directory that count although its stage did not make them.

        These are fitted weights, and thresholds of what is decided.
        """
        if self.judge is None:
            return []
        files = []
        # Files that the configuration names are part of the settings.
        if self.judge.aggregation == "fitted" and not self.judge.fitted:
            files.append(f"model/{FITTED}")
        if not self.judge.decided:
            files.append(f"model/{DECIDED}")
        return files

    @property
    def asked_engines(self) -> tuple[EngineConfig | None, ...]:
        """Return the engines that may be paid for."""
        return self.teacher, self.external


def check_model(settings: ModelSettings, method: Method, key: str) -> None:
    """Check that the model which a method names is there, and can do what the method asks of it.

    Args:
        settings: the stage's.
        method: the method.
        key: where the method stands in the configuration.

    Raises:
        ConfigError: it names the key, its value and the remedy.
    """
    # As in ``pairwise:bse``.
    if method.target not in TARGETS and not method.is_directory:
        targets = ", ".join(TARGETS)
        raise ConfigError(f"{key}={method.text!r}: allowed are {targets} or a model's directory (./NAME)")
    if method.is_directory:
        _check_directory(method, key)
    if method.target == "base":
        # train.base is part of the settings where a method names it.
        assert settings.base is not None
        settings.base.check("train.base")
    # Read for its errors alone: each judge reads it again.
    if "rubric" in fields_read(method) and settings.rubric:
        read_rubric(settings.rubric)
    if "prompts" in fields_read(method) and method.target in ("base", *EXTERNAL):
        load_prompt_set(settings.prompts or "")

    if method.target in EXTERNAL:
        engine_key = EXTERNAL[method.target]
        engine: EngineConfig = getattr(settings, method.target)
        if engine.type == "given":
            raise ConfigError(
                f"{key}={method.text!r}: {engine_key}.type=given knows training labels alone; leave it out"
            )
        # Else a server without an address would be found out at the first request.
        engine.check(engine_key)
        judge = settings.judge_asked.changed(**method.asking)
    else:
        engine_key = "engine"
        assert settings.engine is not None
        engine = settings.engine
        judge = settings.judge_asked.changed(**method.asking)
        constrained_by = ""
        if judge.constrained:
            constrained_by = "judge.constrained=true, +constrained"
        check_asking(engine, constrained_by)
    # Other kinds of judges do not read judge.reasons.
    if not judge.reasons and "judge" in fields_read(method):
        _check_scores_alone(settings, method, judge, engine, f"{engine_key}.type={engine.type}", key)
    # Asked for by name: judge.score=auto falls back to parsed scores by itself.
    if engine.computes and "expected" in method.options:
        raise ConfigError(
            f"{engine_key}.type={engine.type}: gives no probabilities of tokens, which {method.text!r} reads; "
            "leave out +expected or choose transformers, vllm or openai"
        )


def _check_scores_alone(
    settings: ModelSettings, method: Method, judge: JudgeConfig, engine: EngineConfig, engine_at: str, key: str
) -> None:
    """Refuse (ConfigError) scores without text of a judge that would be refused when it is loaded.

    Args:
        settings: the stage's.
        method: of the judge.
        judge: how it is asked.
        engine: that runs its model.
        engine_at: the key and value of the engine's type.
        key: where the method stands in the configuration.
    """
    reasons_key = "judge.reasons"
    if settings.writes_reasons is not None:
        reasons_key = settings.reasons_key
    asked_by = f"{key}={method.text!r}, {reasons_key}=false"
    if "scores" in method.options:
        asked_by = f"{key}={method.text!r}, +scores"
    if not engine.continues:
        raise ConfigError(
            f"{asked_by}: {engine_at} cannot have its model go on from the beginning of a reply, which scores without "
            "text need; leave it out or choose transformers or vllm"
        )
    if judge.reads != "one":
        raise ConfigError(
            f"{asked_by}: needs a judge that reads one response; set judge.reads=one, or put +one behind its name"
        )
    if judge.score == "parsed":
        raise ConfigError(f"{asked_by}: reads scores by their probabilities; leave out judge.score=parsed and +parsed")

    # A judge on the Hub says what its prompts are when it is loaded.
    if method.on_hub:
        return
    # The run's own prompts are those of the base, of external models and of the judges that the run trains.
    prompts_at: str | Path = settings.prompts or ""
    if method.is_directory:
        prompts_at = Path(method.target).expanduser() / PROMPTS
    prompts = load_prompt_set(prompts_at)
    if prompts.words_before_score("score") is None:
        raise ConfigError(
            f"{asked_by}: judgments of the prompt set {prompts.name!r} give reasons before the score, which follows "
            "from them; leave it out or choose a prompt set whose judgments begin with the score"
        )


def _check_directory(method: Method, key: str) -> None:
    """Check that a directory is there, and where the kind needs a trained judge, that it holds one."""
    # What is on the Hub check_directories looks at: one request for all that it needs to know.
    if method.on_hub:
        return
    directory = Path(method.target).expanduser()
    if not directory.is_dir():
        raise ConfigError(f"{key}={method.target!r}: there is no such directory; stage=status shows where judges are")
    if not kind_of(method).target.trained:
        return
    if not (directory / PROMPTS).is_file():
        raise ConfigError(f"{key}={method.text!r}: {no_judge(directory)}")
    # Read for its errors alone: a prompt set may have been edited since the training.
    load_prompt_set(directory / PROMPTS)


def no_judge(directory: Path) -> str:
    """Return the message about a directory that holds no trained judge, with the first judge that lies inside it."""
    # An artifact holds its judge as "model". Of an output_dir the first by name is the one by DPO.
    for pattern in ("model", "artifacts/*/*/model"):
        for path in sorted(directory.glob(f"{pattern}/{PROMPTS}")):
            return f"it holds no {PROMPTS}, so that it is no trained judge; did you mean {path.parent}?"
    return f"it holds no {PROMPTS}, so that it is no trained judge: a model that is asked once is pairwise:DIRECTORY"


def check_criteria(criteria: int, method: Method, branches: int, key: str) -> None:
    """Refuse (ConfigError) more branches than the criteria that a judge in a directory was trained to name."""
    # A judge on the Hub is asked when it is fetched.
    if method.is_directory and not method.on_hub:
        criteria = criteria_of(Path(method.target).expanduser())
        if branches > criteria:
            raise ConfigError(f"{key}={branches}: at most {criteria}, the criteria {method.text} was trained to name")


def check_directories(engine: EngineConfig | None, methods: Iterable[Method], key: str) -> None:
    """Check that the models in the directories, or on the Hub, that methods name can be loaded (ConfigError)."""
    from judgetrain.engines.model_check import check_loadable

    for method in methods:
        if method.on_hub and kind_of(method).target.trained:
            try:
                names = check_on_hub(*hub_id(method.target), PROMPTS)
            except EngineError as error:
                raise ConfigError(f"{key}={method.text!r}: {error}") from error
            # None: the Hub cannot be reached, and what was fetched before may do.
            if names is not None and PROMPTS not in names:
                raise ConfigError(f"{key}={method.text!r}: it holds no {PROMPTS}, so that it is no trained judge")
        if method.is_directory and isinstance(engine, LocalEngineConfig):
            if method.on_hub:
                path, revision = hub_id(method.target)
                model = replace(engine.model.at(path), revision=revision)
            else:
                model = replace(engine.model.at(Path(method.target).expanduser()), revision=None)
            check_loadable(model, f"{key}={method.text!r}")


def check_asking(engine: EngineConfig, constrained: str = "") -> None:
    """Check the engine that this run's judges generate with, and the package that an enforced form needs.

    Args:
        engine: the engine.
        constrained: the settings that ask for an enforced form, for the message; empty where none does.
    """
    # The judges are not made yet: the name of a model that is there stands for them.
    engine.with_model("world").check("engine")
    if constrained and isinstance(engine, TransformersEngineConfig):
        check_package("xgrammar", f"an enforced form ({constrained})")


def unread_hint(failures: Mapping[str, int]) -> str | None:
    """Return what to do where judgments have no text to read, in a line each; None where all have.

    Args:
        failures: how many judgments of predictions could not be read, by reason.
    """
    hints = [hint for hint in (reasoning_hint(failures), too_long_hint(failures)) if hint]
    return "\n".join(hints) or None


def reasoning_hint(failures: Mapping[str, int]) -> str | None:
    """Return a hint where all of an answer stands in the reasoning; None without such answers. ``failures`` as above.

    The judge did keep to its form, perhaps, and the server put what it said elsewhere.
    """
    count = sum(number for reason, number in failures.items() if reason.rpartition(":")[2] == "reasoning_alone")
    if not count:
        return None
    return (
        f"{count} reasoning_alone: all of the answer stands in the reasoning (reasoning_content), which is not read: "
        "start the server without its reasoning parser, have the model not think, or raise max_new_tokens"
    )


def too_long_hint(failures: Mapping[str, int]) -> str | None:
    """Return a hint where comparisons did not fit into the context; None where all did.

    A server's and a scorer's failures name no step, and get no hint.

    Args:
        failures: how many judgments of predictions could not be read, by reason.
    """
    counts = []
    keys = []
    for step in LEVELS:
        count = failures.get(f"{step}:too_long", 0)
        if count:
            counts.append(f"{count} {step}:too_long")
            keys.append(f"judge.{step}_tokens")
    if not keys:
        return None
    joined = " and ".join(keys)
    return (
        f"{', '.join(counts)}: a prompt and {joined} together exceed the model's context, so that it was not asked: "
        f"lower {joined}"
    )
