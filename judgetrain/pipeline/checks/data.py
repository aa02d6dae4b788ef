"""Stages dialogues, responses and label."""

from __future__ import annotations

from judgetrain.engines.abilities import check_step
from judgetrain.errors import ConfigError
from judgetrain.pipeline.checks.models import check_engine, check_revision_prompt, check_source
from judgetrain.pipeline.config import Config


def check_dialogues(config: Config) -> None:
    """The sources of dialogues."""
    if not config.dialogues.sources:
        raise ConfigError("dialogues.sources is empty: name a recipe (recipe=quickstart) or a source")
    for i, source in enumerate(config.dialogues.sources):
        check_source(f"dialogues.sources[{i}]", source)


def check_responses(config: Config) -> None:
    """The models that respond, and what their dialogues must be like."""
    for i, source in enumerate(config.dialogues.sources):
        if source.format == "questions" and source.turns != "first":
            raise ConfigError(
                f"dialogues.sources[{i}].turns={source.turns}: rows of format questions have turns without answers, "
                "which only stage=selfeval fills in; set turns: first"
            )
    for i, model in enumerate(config.responses.models):
        check_step(f"responses.models[{i}]", model, "response")
        check_engine(f"responses.models[{i}]", model)


def check_label(config: Config) -> None:
    """Who labels, and by which signals."""
    if config.label.source == "external":
        from judgetrain.judges.prompting.prompts import DIALECTS
        from judgetrain.label.external import load_external_prompts

        check_engine("label.external.engine", config.label.external.engine)
        for step in DIALECTS[load_external_prompts(config.label.external)[1]]:
            check_step("label.external.engine", config.label.external.engine, step)
    reward = config.label.reward
    if reward.break_ties and not reward.signals:
        raise ConfigError(
            "label.reward.break_ties=true: without label.reward.signals there is nothing to break ties by; set "
            "reward=glassbox, probdiff or both"
        )
    if reward.signals:
        from judgetrain.scorers.methods import OF_RESPONSES, check_scorers

        if "glassbox" in reward.signals:
            check_scorers(
                [reward.glassbox], [name for name in OF_RESPONSES if name != "probdiff"], "label.reward.glassbox"
            )
        check_revision_prompt(config)
    if not reward.ensemble_weight and not any(getattr(reward, f"{signal}_weight") for signal in reward.signals):
        raise ConfigError("label.reward: every weight is 0; give ensemble_weight or that of a signal that is on")
