"""Cards with what was measured, and judges on the Hugging Face Hub: what comes after a stage is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.errors import ConfigError, EngineError
from judgetrain.judges.method import JUDGE_STAGES
from judgetrain.pipeline.cards import MEASURING, fill
from judgetrain.pipeline.config import Config

if TYPE_CHECKING:
    from judgetrain.pipeline.run import Pipeline


def check_hub(config: Config) -> None:
    """Check, before any stage runs, that what ``hub.push`` asks for can be done.

    Raises:
        ConfigError: no name, no token, no network, or a stage that makes no judge.
    """
    if not config.hub.push:
        return
    if config.stage not in (*JUDGE_STAGES, "evaluate"):
        allowed = ", ".join((*JUDGE_STAGES, "evaluate"))
        raise ConfigError(f"hub.push=true: stage={config.stage} makes no judge; allowed are {allowed}")
    if not config.hub.repo_id or config.hub.repo_id.count("/") != 1:
        raise ConfigError(f"hub.repo_id={config.hub.repo_id!r}: hub.push=true needs OWNER/NAME")
    if config.stage == "evaluate" and not any(name in config.evaluate.methods for name in JUDGE_STAGES):
        raise ConfigError("hub.push=true: evaluate.methods lists none of this run's judges (initial, sft, dpo, rl)")
    from huggingface_hub import constants, get_token

    if constants.is_offline_mode():
        raise ConfigError("hub.push=true, and HF_HUB_OFFLINE is set: unset it")
    if not get_token():
        raise ConfigError("hub.push=true needs a token that may write: set HF_TOKEN, or run `hf auth login`")


def fill_cards(pipeline: Pipeline) -> list[str]:
    """Put what was found into the cards of the judges that it is about; gives these, in the order of their stages."""
    config = pipeline.config
    judges = [name for name in JUDGE_STAGES if name == config.stage]
    if config.stage in MEASURING:
        judges = [name for name in JUDGE_STAGES if name in pipeline.plan(config.stage).upstream]
    for name in judges:
        fill(pipeline.plan(name).directory, pipeline.plan(config.stage).directory)
    return judges


def push_last(pipeline: Pipeline, judges: Sequence[str]) -> None:
    """Push the last of the judges where ``hub.push`` says so; one that fails its gate is not to get here."""
    hub = pipeline.config.hub
    if hub.push:
        url = push(pipeline.plan(judges[-1]).directory / "model", str(hub.repo_id))
        pipeline.console.line(f"hub: pushed the {judges[-1]} judge: {url}")


def push(directory: Path, repo_id: str) -> str:
    """Upload a model directory to the Hub, to a new private repository where there is none; returns the commit's URL.

    Raises:
        EngineError: the Hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    from judgetrain.train.card import name_on_hub

    name_on_hub(directory, repo_id)
    api = HfApi()
    try:
        api.create_repo(repo_id, private=True, exist_ok=True)
        return str(api.upload_folder(repo_id=repo_id, folder_path=directory, commit_message="judgetrain").commit_url)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        why = " ".join(str(error).split())[:300]
        raise EngineError(
            f"hub.repo_id={repo_id}: the Hub did not take the model: {why}; the model is whole in {directory}: run the "
            "same command again"
        ) from error
