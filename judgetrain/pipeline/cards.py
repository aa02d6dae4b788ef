"""Cards of judges, filled with the results of later stages, and the push of judges to the Hub.

A card is written when its judge is trained. It is no part of the artifact (``artifacts/integrity.py``): neither weights
nor fingerprints change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import yaml

from judgetrain import rooms
from judgetrain.amounts import amount
from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.integrity import MANIFEST, lineage, read_manifest
from judgetrain.artifacts.shards import TOLD
from judgetrain.data.benchmarks.adapter import load_adapter
from judgetrain.data.config import catalogue
from judgetrain.errors import ConfigError, DataError, EngineError
from judgetrain.judges.method import JUDGE_STAGES
from judgetrain.pipeline.config import Config

if TYPE_CHECKING:
    from judgetrain.pipeline.run import Pipeline

MEASURING = tuple(name for name, stage in rooms.stages().items() if stage.result)
"""The stages whose figures may stand in cards."""


def fill_cards(pipeline: Pipeline) -> list[str]:
    """Fill the cards of the judges that the run's stage trained or measured.

    Returns:
        The judges' stages, in the order of the pipeline.
    """
    config = pipeline.config
    plan = pipeline.plan(config.stage)
    judges = [name for name in JUDGE_STAGES if name == config.stage]
    if config.stage in MEASURING:
        judges = [name for name in JUDGE_STAGES if name in plan.upstream]
    manifest = plan.directory / MANIFEST
    for name in judges:
        directory = pipeline.plan(name).directory
        card = directory / "model" / "README.md"
        # A card that holds these results already stays as it is.
        if pipeline.made or config.hub or _is_older(card, manifest):
            fill(directory, plan.directory)
    return judges


def _is_older(card: Path, manifest: Path) -> bool:
    """Return whether a card was written before an artifact was finished; a judge without a card has none to fill."""
    return card.is_file() and card.stat().st_mtime < manifest.stat().st_mtime


def fill(judge: Path, newest: Path | None = None) -> None:
    """Fill a judge's card: each section from the last finished artifact that measured it.

    Args:
        judge: the artifact of a stage that trains a judge.
        newest: an artifact that counts as the last of its stage, whatever its date.
    """
    from judgetrain.train.card import JudgeFigures, TrainedOn, add_results

    measuring = _measuring(judge, newest)
    rows, evaluation = _evaluated(judge, measuring)
    source = ""
    if evaluation is not None:
        source = _source(evaluation)
        seed = _manifest(evaluation).get("seed")
        if seed is not None:
            source = f"{source}, seed {seed}"
    measured = JudgeFigures(rows, source, _sections(judge, measuring))
    trained_on = TrainedOn(list(_stages_of(judge)), _data_sets(judge))
    add_results(judge / "model", judge.parent.name, measured, trained_on)


def _sections(judge: Path, measuring: Sequence[Path]) -> dict[str, str]:
    """Return the sections that rooms add to a card, by title.

    Args:
        judge: the judge's artifact.
        measuring: the artifacts that may tell of it, the last first.
    """
    writers: dict[str, Callable[[Path, str], str]] = {}
    for room in rooms.rooms():
        if room.card:
            writers |= resolve_name(room.card)
    sections = {}
    # Each section is the newest that there is: a judge may be measured by several stages, at different times.
    for title, write in writers.items():
        for directory in measuring:
            text = write(directory, judge.parent.name)
            if text:
                sections[title] = f"By {_source(directory)}:\n\n{text}"
                break
    return sections


def _data_sets(judge: Path) -> list[str]:
    """Return the data sets of the Hub that a judge's dialogues come from."""
    # A dictionary keeps the order in which data sets are named, which a set would not.
    names: dict[str, None] = {}
    # Not the judge's own manifest alone: the sources stand in that of stage dialogues, far above it.
    for directory in lineage(judge):
        config = _manifest(directory).get("config") or {}
        dialogues = config.get("dialogues") or {}
        for source in dialogues.get("sources", ()):
            place = _place(source)
            if place:
                names[place["path"]] = None
    return list(names)


def _evaluated(judge: Path, measuring: Sequence[Path]) -> tuple[list[Mapping[str, Any]], Path | None]:
    """Return the rows of the first artifact that evaluated a judge, and its directory, or None without any."""
    from judgetrain.train.card import own_rows

    for directory in measuring:
        rows = read_json(directory / "metrics.json") or []
        if own_rows(rows, judge.parent.name):
            return rows, directory
    return [], None


def _measuring(judge: Path, newest: Path | None) -> list[Path]:
    """Return the finished artifacts of measuring stages that a judge is an input of, the last first.

    Args:
        judge: the judge's artifact.
        newest: an artifact that comes first, whatever its date.
    """
    directories = []
    for stage in MEASURING:
        for path in (judge.parents[1] / stage).glob(f"*/{MANIFEST}"):
            upstream = _manifest(path.parent).get("upstream", {})
            # The directory of an artifact is called by its fingerprint.
            if upstream.get(judge.parent.name) == judge.name and path.parent != newest:
                directories.append(path.parent)
    directories.sort(key=lambda directory: (directory / MANIFEST).stat().st_mtime, reverse=True)
    if newest is None:
        return directories
    return [newest, *directories]


def _source(directory: Path) -> str:
    """Return an artifact's stage and fingerprint, and the day on which it was finished, in words."""
    stage = directory.parent.name
    source = f"stage {stage}, `{directory.name}`"
    if stage == "evaluate":
        source = f"evaluation `{directory.name}`"
    if (directory / MANIFEST).is_file():
        return f"{source}, {_day(directory)}"
    return source


def _day(directory: Path) -> date:
    """Return the day on which an artifact was finished."""
    return date.fromtimestamp((directory / MANIFEST).stat().st_mtime)


def _manifest(directory: Path) -> Mapping[str, Any]:
    """Return the manifest of a finished artifact, or an empty one where there is none that can be read."""
    try:
        return read_manifest(directory) or {}
    except DataError:
        # A run that reads the artifact, or status, reports the damage.
        return {}


def _stages_of(judge: Path) -> Iterator[tuple[str, str]]:
    """Yield the stages that a judge was made by, in the order of the pipeline, with their counts in words."""
    manifests = {directory.parent.name: _manifest(directory) for directory in lineage(judge)}
    for stage in rooms.stages():
        manifest = manifests.get(stage)
        if not manifest:
            continue
        text = TOLD.format(**manifest["counts"])
        if stage == judge.parent.name:
            text = f"{text}; recipe {manifest['recipe']}, seed {manifest['seed']}"
            steps = manifest.get("notes", {}).get("training", {}).get("steps")
            if steps:
                text = f"{text}, {amount(steps, 'step')}"
        yield stage, text


def _place(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the place of a source's rows on the Hub: ``path``, and perhaps ``name`` and ``revision``.

    Empty for rows that are not there.
    """
    on_hub = source["type"] == "hub"
    place: Mapping[str, Any] = {}
    if source["path"]:
        if on_hub:
            place = {"path": source["path"]}
    elif source.get("dataset"):
        place = catalogue()[source["dataset"]].get("hub", {})
    elif on_hub and source["adapter"]:
        place = load_adapter(source["adapter"]).hub
    # The Hub's id has an owner; a path without one is a folder. A manifest may name a variable in its place.
    path = place.get("path", "")
    if "/" not in path or "${" in path:
        return {}
    return {**place, **source["hub"]}


def eval_results(judge: Path) -> list[Any]:
    """Return a judge's agreement on the benchmarks that are on the Hub, for ``.eval_results/`` beside its card.

    Of each benchmark it is the row with the most branches of the last evaluation.
    """
    from huggingface_hub import EvalResultEntry

    from judgetrain.train.card import own_rows

    rows, evaluation = _evaluated(judge, _measuring(judge, None))
    if evaluation is None:
        return []
    entries = []
    for benchmark in _manifest(evaluation).get("config", {}).get("evaluate", {}).get("benchmarks", ()):
        of_judge = [row for row in own_rows(rows, judge.parent.name) if row["benchmark"] == benchmark["name"]]
        place = _place(benchmark["source"])
        if not of_judge or not place:
            continue
        # Most branches are how the judge is meant to be used.
        row = max(of_judge, key=lambda row: int(row["branches"]))
        notes = (
            f"share of {amount(row['n'], 'comparison')} with the right verdict in both orders, "
            f"{amount(row['branches'], 'branch')}"
        )
        entries.append(
            EvalResultEntry(
                value=round(row["agreement"], 4),
                dataset_id=place["path"],
                task_id=place.get("name", "default"),
                dataset_revision=place.get("revision"),
                date=str(_day(evaluation)),
                notes=notes,
            )
        )
    return entries


def check_hub(config: Config) -> None:
    """Refuse (ConfigError) a ``hub`` without name, token, network or a judge to push, before any stage runs."""
    if config.hub is None:
        return
    if config.stage not in (*JUDGE_STAGES, "evaluate"):
        raise ConfigError(f"hub: stage={config.stage} makes no judge; allowed are {', '.join(JUDGE_STAGES)}, evaluate")
    if config.hub.count("/") != 1:
        raise ConfigError(f"hub={config.hub!r}: expected OWNER/NAME")
    if config.stage == "evaluate" and not any(name in config.evaluate.methods for name in JUDGE_STAGES):
        raise ConfigError("hub: evaluate.methods lists none of this run's judges (initial, sft, dpo, rl)")
    from huggingface_hub import constants, get_token

    # Training takes hours: whatever would stop the push is looked for before.
    if constants.is_offline_mode():
        raise ConfigError("hub: HF_HUB_OFFLINE is set: unset it")
    if not get_token():
        raise ConfigError("hub needs a token that may write: set HF_TOKEN, or run `hf auth login`")


def push_last(pipeline: Pipeline, judges: Sequence[str]) -> None:
    """Push the last of some judges to the Hub, if the configuration names a place there.

    Args:
        pipeline: the run, which has passed the gate of its stage.
        judges: the judges' stages, as :func:`fill_cards` returns them.
    """
    repo_id = pipeline.config.hub
    if repo_id:
        url = push(pipeline.plan(judges[-1]).directory / "model", repo_id)
        pipeline.console.line(f"hub: pushed the {judges[-1]} judge: {url}")


def push(directory: Path, repo_id: str) -> str:
    """Upload a model directory to the Hub in one commit, and return the commit's URL.

    Args:
        directory: of the model.
        repo_id: ``OWNER/NAME``; a new repository is private.

    Raises:
        EngineError: the Hub refuses it, or cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, constants, eval_result_entries_to_yaml
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    from judgetrain.train.card import name_on_hub

    # The card's example loads the judge by this name.
    name_on_hub(directory, repo_id)
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    additions = [CommitOperationAdd(path.relative_to(directory).as_posix(), path) for path in files]
    results = eval_results(directory.parent)
    if results:
        # Sent from memory: a file in the model's directory would change the artifact.
        text = yaml.safe_dump(eval_result_entries_to_yaml(results), sort_keys=False)
        additions.append(CommitOperationAdd(f"{constants.EVAL_RESULTS_FOLDER}/judgetrain.yaml", text.encode()))
    api = HfApi()
    try:
        # Private: what was trained on a user's data becomes public by the user's own decision alone.
        api.create_repo(repo_id, private=True, exist_ok=True)
        return str(api.create_commit(repo_id, additions, commit_message="judgetrain").commit_url)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise EngineError(
            f"hub={repo_id}: the Hub did not take the model: {reason}; it is whole in {directory}: "
            "run the same command again"
        ) from error
