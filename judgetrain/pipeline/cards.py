"""Cards of judges, filled from what later stages found, and judges on the Hub: neither weights nor fingerprints change.

A card is written when its judge is trained, and is no part of the artifact (``artifacts/integrity.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import yaml

from judgetrain import rooms
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
"""Stages whose figures may stand in cards."""


def fill_cards(pipeline: Pipeline) -> list[str]:
    """Put what was found into the cards of the judges that it is about; gives these, in the order of their stages."""
    config = pipeline.config
    judges = [name for name in JUDGE_STAGES if name == config.stage]
    if config.stage in MEASURING:
        judges = [name for name in JUDGE_STAGES if name in pipeline.plan(config.stage).upstream]
    newest = pipeline.plan(config.stage).directory
    for directory in (pipeline.plan(name).directory for name in judges):
        card, found = directory / "model" / "README.md", newest / MANIFEST
        if pipeline.made or config.hub or (card.is_file() and card.stat().st_mtime < found.stat().st_mtime):
            fill(directory, newest)
    return judges


def fill(judge: Path, newest: Path | None = None) -> None:
    """Fill a judge's card: each section from the last finished evaluation that measured it.

    ``newest``: an artifact that counts as the last of its stage, whatever its date.
    """
    from judgetrain.train.card import add_results

    name, found = judge.parent.name, _measuring(judge, newest)
    parts: dict[str, Callable[[Path, str], str]] = {}
    for room in rooms.rooms():
        parts |= resolve_name(room.card) if room.card else {}
    sections = {}
    for title, tell in parts.items():
        if said := next(((d, text) for d in found if (text := tell(d, name))), None):
            sections[title] = f"By {_source(said[0])}:\n\n{said[1]}"
    rows, evaluation = _evaluated(judge, found)
    source = _source(evaluation) if evaluation else ""
    if evaluation and (seed := _manifest(evaluation).get("seed")) is not None:
        source += f", seed {seed}"
    dialogues = ((_manifest(directory).get("config") or {}).get("dialogues") or {} for directory in lineage(judge))
    data_sets = [place["path"] for d in dialogues for s in d.get("sources", ()) if (place := _place(s))]
    more: dict[str, Any] = {"sections": sections, "made": [*_made(judge)], "data_sets": [*dict.fromkeys(data_sets)]}
    add_results(judge / "model", name, rows, source, **more)


def _evaluated(judge: Path, found: Sequence[Path]) -> tuple[list[Mapping[str, Any]], Path | None]:
    """The rows of the first artifact that measured a judge, and where it is."""
    from judgetrain.train.card import own_rows

    read = ((read_json(d / "metrics.json") or [], d) for d in found)
    return next(((rows, d) for rows, d in read if own_rows(rows, judge.parent.name)), ([], None))


def _measuring(judge: Path, newest: Path | None) -> list[Path]:
    """The finished artifacts of measuring stages that a judge was part of, the last first."""
    found = [path.parent for stage in MEASURING for path in (judge.parents[1] / stage).glob(f"*/{MANIFEST}")]
    of = [d for d in found if _manifest(d).get("upstream", {}).get(judge.parent.name) == judge.name and d != newest]
    return [*([newest] if newest else []), *sorted(of, key=lambda d: (d / MANIFEST).stat().st_mtime, reverse=True)]


def _source(directory: Path) -> str:
    """An artifact's stage and fingerprint, and the day on which it was finished."""
    day = f", {_day(directory)}" if (directory / MANIFEST).is_file() else ""
    stage = "evaluation" if directory.parent.name == "evaluate" else f"stage {directory.parent.name},"
    return f"{stage} `{directory.name}`{day}"


def _day(directory: Path) -> date:
    return date.fromtimestamp((directory / MANIFEST).stat().st_mtime)


def _manifest(directory: Path) -> Mapping[str, Any]:
    """The manifest of a finished artifact; empty where there is none that can be read, which is said elsewhere."""
    try:
        return read_manifest(directory) or {}
    except DataError:
        return {}


def _made(judge: Path) -> Iterator[tuple[str, str]]:
    """How many a stage took and gave, by the stages that a judge was made of, in the order of the pipeline."""
    manifests = {directory.parent.name: _manifest(directory) for directory in lineage(judge)}
    for stage in rooms.stages():
        if own := manifests.get(stage):
            told = TOLD.format(**own["counts"])
            if stage == judge.parent.name:
                steps = own.get("notes", {}).get("training", {}).get("steps")
                told += f"; recipe {own['recipe']}, seed {own['seed']}" + (f", {steps} steps" if steps else "")
            yield stage, told


def _place(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where on the Hub a source's rows are: ``path``, and where it is said ``name`` and ``revision``; else empty."""
    known: Mapping[str, Any] = {"path": source["path"]} if source["path"] and source["type"] == "hub" else {}
    if not source["path"] and source.get("dataset"):
        known = catalogue()[source["dataset"]].get("hub", {})
    elif not source["path"] and source["type"] == "hub" and source["adapter"]:
        known = load_adapter(source["adapter"]).hub
    return {**known, **source["hub"]} if "/" in known.get("path", "") else {}


def eval_results(judge: Path) -> list[Any]:
    """A judge's agreement by the benchmarks that are on the Hub, for ``.eval_results/`` beside its card.

    Of each benchmark it is the row with the most branches of the last evaluation.
    """
    from huggingface_hub import EvalResultEntry

    from judgetrain.train.card import own_rows

    rows, evaluation = _evaluated(judge, _measuring(judge, None))
    if evaluation is None:
        return []
    found = []
    for benchmark in _manifest(evaluation).get("config", {}).get("evaluate", {}).get("benchmarks", ()):
        own = [row for row in own_rows(rows, judge.parent.name) if row["benchmark"] == benchmark["name"]]
        if own and (place := _place(benchmark["source"])):
            row = max(own, key=lambda row: int(row["branches"]))
            told = f"share of {row['n']} comparisons with the right verdict in both orders, {row['branches']} branches"
            entry = {"dataset_id": place["path"], "task_id": place.get("name", "default")}
            entry |= {"dataset_revision": place.get("revision"), "date": str(_day(evaluation)), "notes": told}
            found.append(EvalResultEntry(value=round(row["agreement"], 4), **entry))
    return found


def check_hub(config: Config) -> None:
    """Refuse (ConfigError), before any stage runs, a ``hub`` without name, token, network or a judge to push."""
    if config.hub is None:
        return
    if config.stage not in (*JUDGE_STAGES, "evaluate"):
        raise ConfigError(f"hub: stage={config.stage} makes no judge; allowed are {', '.join(JUDGE_STAGES)}, evaluate")
    if config.hub.count("/") != 1:
        raise ConfigError(f"hub={config.hub!r}: expected OWNER/NAME")
    if config.stage == "evaluate" and not any(name in config.evaluate.methods for name in JUDGE_STAGES):
        raise ConfigError("hub: evaluate.methods lists none of this run's judges (initial, sft, dpo, rl)")
    from huggingface_hub import constants, get_token

    if constants.is_offline_mode():
        raise ConfigError("hub: HF_HUB_OFFLINE is set: unset it")
    if not get_token():
        raise ConfigError("hub needs a token that may write: set HF_TOKEN, or run `hf auth login`")


def push_last(pipeline: Pipeline, judges: Sequence[str]) -> None:
    """Push the last of the judges where ``hub`` says so; one that fails its gate is not to get here."""
    if repo_id := pipeline.config.hub:
        url = push(pipeline.plan(judges[-1]).directory / "model", repo_id)
        pipeline.console.line(f"hub: pushed the {judges[-1]} judge: {url}")


def push(directory: Path, repo_id: str) -> str:
    """Upload a model directory to the Hub, to a new private repository if there is none; returns the commit's URL."""
    from huggingface_hub import CommitOperationAdd, HfApi, constants, eval_result_entries_to_yaml
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    from judgetrain.train.card import name_on_hub

    name_on_hub(directory, repo_id)
    api, files = HfApi(), [path for path in sorted(directory.rglob("*")) if path.is_file()]
    adds = [CommitOperationAdd(path.relative_to(directory).as_posix(), path) for path in files]
    if results := eval_results(directory.parent):
        text = yaml.safe_dump(eval_result_entries_to_yaml(results), sort_keys=False)
        adds.append(CommitOperationAdd(f"{constants.EVAL_RESULTS_FOLDER}/judgetrain.yaml", text.encode()))
    try:
        api.create_repo(repo_id, private=True, exist_ok=True)
        return str(api.create_commit(repo_id, adds, commit_message="judgetrain").commit_url)
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        why = " ".join(str(error).split())[:300]
        told = f"hub={repo_id}: the Hub did not take the model: {why}; it is whole in {directory}"
        raise EngineError(f"{told}: run the same command again") from error
