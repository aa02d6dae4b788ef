"""``stage=serve``: load a judge and answer over HTTP."""

import os
from collections.abc import Mapping
from pathlib import Path

from judgetrain.artifacts.files import using
from judgetrain.artifacts.fingerprint import check_package
from judgetrain.artifacts.heartbeat import beating, doing
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.data.config import SourceConfig
from judgetrain.errors import ConfigError
from judgetrain.extras.server.config import TOKEN
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.settings import check_directories
from judgetrain.judging.config import VerdictsConfig
from judgetrain.judging.stage import judge_of
from judgetrain.judging.stages import JudgeSettings, check_judge
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline


class ServedSettings(JudgeSettings):
    """Stage judge's settings for a judge behind HTTP."""

    reasons_key = "serve.reasons"


def serve(pipeline: Pipeline) -> None:
    """Answer until a signal ends it; the judge is loaded and asked as by ``stage=judge``.

    Raises:
        ConfigError: a judge that is not there, or an address that cannot be had.
    """
    config = pipeline.config
    # They come with an extra, and the import error would not say which.
    for package in ("fastapi", "uvicorn"):
        check_package(package, "stage=serve", extra="serving")
    from judgetrain.extras.server.run import bound, names_of, run
    from judgetrain.extras.server.service import Service

    pipeline.console.line(f"serve: loading {config.serve.judge}")
    settings = _settings(config)
    inputs = _inputs(pipeline, settings)
    token = os.environ.get(TOKEN, "").strip() or None
    # Before the model is loaded, which takes minutes: an address that is in use, or a host that is none, ends it at
    # once.
    names_of(config.serve)
    listener = bound(config.serve)
    home = Path(config.output_dir)
    # Answers of models that are paid for are kept below the home, beside those of stages.
    stage_run = StageRun(home / "served", "serve", config.seed, pipeline.console, RunOptions(home=home))
    models = Models(settings, inputs, stage_run)
    with using(home), judge_of(models, settings) as judge:
        # Once it serves, a server prints what it is asked and nothing else.
        with beating(pipeline.console.line), doing(f"serve: getting {config.serve.judge} ready"):
            service = Service(judge(), config.serve, config.seed)
        run(service, listener, token, pipeline.console)


def _settings(config: Config) -> JudgeSettings:
    """Return the settings with which stage judge would ask this judge."""
    served = config.serve
    # The source is never read; stage judge's settings must have one.
    verdicts = VerdictsConfig(judge=served.judge, source=SourceConfig(type="jsonl"), reasons=served.reasons)
    settings = ServedSettings.of(config.changed(verdicts=verdicts))
    check_judge(settings, served.judge, "serve.judge", alone=True)
    method = settings.method
    if served.reward == "score" and not kind_of(method).scores(settings, method):
        raise ConfigError(
            f"serve.reward=score: serve.judge={served.judge!r} gives one response no score as it is asked: set "
            "judge.reads=one, with a branching judge"
        )
    check_directories(settings.engine, settings.methods, "serve.judge")
    return settings


def _inputs(pipeline: Pipeline, settings: JudgeSettings) -> Mapping[str, Path]:
    """Return the directories of this run's judges that are named; they must be there, since serving makes nothing."""
    directories = {}
    for stage in settings.judges:
        plan = pipeline.plan(stage)
        if not plan.finished:
            raise ConfigError(
                f"serve.judge={settings.verdicts.judge!r}: none in {pipeline.root / stage} has these settings: run "
                f"`judgetrain stage={stage}` with them, or name a judge's directory"
            )
        directories[stage] = plan.directory
    return directories
