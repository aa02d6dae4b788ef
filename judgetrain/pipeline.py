"""The stage graph: what each stage needs and reads, and running whatever is missing."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from judgetrain.artifacts import MANIFEST, StageRun, locked, shard_progress, write_json_atomic
from judgetrain.config import Config, ModelConfig, SourceConfig
from judgetrain.errors import ConfigError
from judgetrain.fingerprint import ContentHashes, fingerprint, slice_of
from judgetrain.track import Console, quiet_libraries, tracked

PACKAGES = ("judgetrain", "torch", "transformers", "trl", "peft", "datasets", "sentence-transformers", "scikit-learn")
JUDGE_STAGES = ("initial", "sft", "dpo")


@dataclass(frozen=True)
class Stage:
    """One stage: where its code is, which stages it needs, and which configuration keys it reads."""

    name: str
    function: str
    inputs: Callable[[Config], Sequence[str]]
    keys: tuple[str, ...]
    files: Callable[[Config], Sequence[tuple[str, str]]] = lambda config: ()
    """Local files or model directories read: (configuration key, path)."""
    format: int = 1
    """Raised when the stage's code changes what it writes."""


def _needs(*names: str) -> Callable[[Config], Sequence[str]]:
    return lambda config: names


def _judges(config: Config) -> Sequence[str]:
    return [name for name in JUDGE_STAGES if name in config.evaluate.methods]


def _source_files(config: Config) -> Sequence[tuple[str, str]]:
    return [(f"dialogues.sources[{i}].path", s.path) for i, s in enumerate(config.dialogues.sources) if _local(s)]


def _benchmark_files(config: Config) -> Sequence[tuple[str, str]]:
    files = [
        (f"evaluate.benchmarks[{i}].source.path", b.source.path)
        for i, b in enumerate(config.evaluate.benchmarks)
        if _local(b.source)
    ]
    files += [("evaluate.methods", m) for m in config.evaluate.methods if "/" in m]
    return files + (_model_files("train.base", config.train.base) if "base" in config.evaluate.methods else [])


def _response_files(config: Config) -> Sequence[tuple[str, str]]:
    models = enumerate(config.responses.models)
    return [f for i, m in models for f in _model_files(f"responses.models[{i}].model", m.model)]


def _local(source: SourceConfig) -> bool:
    return source.type in ("jsonl", "parquet", "comparisons")


def _model_files(key: str, model: ModelConfig) -> list[tuple[str, str]]:
    if model.path == "world":
        return [(f"{key}.path", str(Path(__file__).parent / "dialogues" / "world" / "base"))]
    return [(f"{key}.path", model.path)] if model.path and Path(model.path).is_dir() else []


def _prompt_files(config: Config) -> Sequence[tuple[str, str]]:
    packaged = Path(__file__).parent / "tree" / "prompt_sets" / f"{config.prompts}.yaml"
    return [("prompts", str(packaged) if packaged.exists() else config.prompts)]


def _and(*makers: Callable[[Config], Sequence[tuple[str, str]]]) -> Callable[[Config], Sequence[tuple[str, str]]]:
    return lambda config: [file for maker in makers for file in maker(config)]


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("dialogues", "judgetrain.dialogues.stage:run", _needs(), ("dialogues",), _source_files),
        Stage("cluster", "judgetrain.cluster.stage:run", _needs("dialogues"), ("cluster",)),
        Stage(
            "responses",
            "judgetrain.dialogues.respond:run",
            _needs("dialogues", "cluster"),
            ("responses",),
            _response_files,
        ),
        Stage(
            "teacher",
            "judgetrain.tree.teach:run",
            _needs("responses"),
            ("teacher", "tree.criteria", "prompts"),
            _prompt_files,
        ),
        Stage(
            "initial",
            "judgetrain.train.stage:run_initial",
            _needs("teacher"),
            ("train.base", "train.initial", "prompts"),
            _and(_prompt_files, lambda c: _model_files("train.base", c.train.base)),
        ),
        Stage(
            "tree",
            "judgetrain.tree.grow_stage:run",
            _needs("teacher", "initial"),
            ("tree", "engine", "prompts"),
            _prompt_files,
        ),
        Stage("label", "judgetrain.tree.label_stage:run", _needs("tree"), ("label", "prompts"), _prompt_files),
        Stage("sft", "judgetrain.train.stage:run_sft", _needs("initial", "label"), ("train.sft",)),
        Stage("dpo", "judgetrain.train.stage:run_dpo", _needs("sft", "label"), ("train.dpo",)),
        Stage(
            "evaluate",
            "judgetrain.evaluate.stage:run",
            _judges,
            ("evaluate", "tree", "engine", "prompts", "train.base", "teacher.engine", "dialogues.world"),
            _and(_prompt_files, _benchmark_files),
        ),
    )
}


@dataclass(frozen=True)
class Plan:
    """A stage's place on disk for one configuration."""

    stage: Stage
    fingerprint: str
    directory: Path
    parts: dict[str, Any]
    upstream: dict[str, str]

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the finished artifact, or None."""
        path = self.directory / MANIFEST
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


class Pipeline:
    """Runs stages for one configuration.

    Args:
        config: the whole, validated configuration.
        console: where lines go.
    """

    def __init__(self, config: Config, console: Console | None = None) -> None:
        self.config = config
        self.console = console or Console()
        self.root = Path(config.output_dir) / "artifacts"
        self._hashes = ContentHashes(Path(config.output_dir) / ".content-hashes.json")
        self._plans: dict[str, Plan] = {}

    def plan(self, name: str) -> Plan:
        """The plan of a stage: its fingerprint over configuration, upstream fingerprints and input files.

        Raises:
            ConfigError: an input file is missing; names its configuration key.
        """
        if name not in self._plans:
            stage = STAGES[name]
            upstream = {i: self.plan(i).fingerprint for i in stage.inputs(self.config)}
            parts = {
                "stage": name,
                "format": stage.format,
                "seed": self.config.seed,
                "config": slice_of(self.config, stage.keys),
                "upstream": upstream,
                "content": {key: self._content(key, path) for key, path in stage.files(self.config)},
            }
            mark = fingerprint(parts)
            self._plans[name] = Plan(stage, mark, self.root / name / mark, parts, upstream)
        return self._plans[name]

    def _content(self, key: str, path: str) -> dict[str, str]:
        found = self._hashes.of(path)
        if not found:
            raise ConfigError(f"{key}={path!r}: no such file; give an existing path")
        return found

    def needed(self, name: str) -> Iterator[str]:
        """The stage and everything it needs, inputs first."""
        seen: dict[str, None] = {}

        def visit(stage: str) -> None:
            for upstream in STAGES[stage].inputs(self.config):
                visit(upstream)
            seen.setdefault(stage)

        visit(name)
        return iter(seen)

    def run(self, name: str) -> Path:
        """Make a stage's artifact and whatever it needs that is missing; returns its directory."""
        self.plan(name)  # a missing input file anywhere upstream is reported before anything runs
        started, made = time.time(), 0
        for stage in self.needed(name):
            made += self._make(self.plan(stage))
        directory = self.plan(name).directory
        if made:
            self.console.line(f"{name}: done in {_duration(time.time() - started)}: {directory}")
        else:
            self.console.line(f"{name}: nothing to do, everything is there: {directory}")
        return directory

    def _make(self, plan: Plan) -> bool:
        if plan.manifest:
            return False
        with locked(plan.directory, self.console):
            if plan.manifest:
                return False
            self._execute(plan)
        return True

    def _execute(self, plan: Plan) -> None:
        name = plan.stage.name
        state = plan.directory / ".seconds.json"
        before = float(json.loads(state.read_text())) if state.exists() else 0.0
        resumed = any(p.name not in (".lock", ".seconds.json") for p in plan.directory.iterdir())
        self.console.line(f"{name}: {'resuming' if resumed else 'starting'} in {plan.directory}")
        quiet_libraries(self.console.terminal)
        module, function = plan.stage.function.split(":")
        run = getattr(importlib.import_module(module), function)
        out = StageRun(plan.directory, name, self.config.seed, self.console)
        inputs = {i: self.plan(i).directory for i in plan.stage.inputs(self.config)}
        started = time.time()
        tracking = tracked(
            self.config.track,
            stage=name,
            fingerprint=plan.fingerprint,
            recipe=self.config.recipe_name,
            settings=plan.parts["config"] | {"seed": self.config.seed, "upstream": plan.upstream},
            directory=Path(self.config.output_dir),
        )
        try:
            with tracking as track:
                out.track = track
                run(self.config, inputs, out)
                manifest = self._manifest(plan, out, before + time.time() - started)
                track.summary({"seconds": manifest["seconds"], **_numbers(manifest["counts"])})
        finally:
            write_json_atomic(state, before + time.time() - started)
        write_json_atomic(plan.directory / MANIFEST, manifest)
        self.console.line(f"{name}: {_summary(manifest)}")

    def _manifest(self, plan: Plan, out: StageRun, seconds: float) -> dict[str, Any]:
        totals = out.totals()
        return {
            "stage": plan.stage.name,
            "fingerprint": plan.fingerprint,
            "status": "complete",
            "recipe": self.config.recipe_name,
            "seed": self.config.seed,
            "config": plan.parts["config"],
            "upstream": plan.upstream,
            "content": plan.parts["content"],
            "versions": _versions(),
            "counts": totals["counts"],
            "tokens": totals["tokens"],
            "seconds": round(seconds, 2),
            "notes": out.notes,
        }

    def status(self, target: str) -> list[dict[str, str]]:
        """One row a stage: its state, how far it is, and what a run of ``target`` would do with it."""
        wanted = set(self.needed(target))
        return [self._status_row(self.plan(name), name in wanted) for name in STAGES]

    def _status_row(self, plan: Plan, wanted: bool) -> dict[str, str]:
        manifest = plan.manifest
        state, detail = "missing", ""
        if manifest:
            dropped = sum(manifest["counts"]["dropped"].values())
            detail = f"{manifest['counts']['out']} out, {dropped} dropped, {_duration(manifest['seconds'])}"
            state = "done"
        elif plan.directory.exists():
            state, detail = "partial", _partial(plan.directory)
        action = "reuse" if manifest else {"partial": "resume", "missing": "make"}[state]
        return {
            "stage": plan.stage.name,
            "fingerprint": plan.fingerprint,
            "state": state,
            "detail": detail,
            "a run would": action if wanted else "-",
        }


def _partial(directory: Path) -> str:
    shards = shard_progress(directory)
    if shards:
        return f"{shards[0]} of {shards[1]} shards"
    checkpoints = sorted(int(p.name.rsplit("-", 1)[1]) for p in directory.glob("**/checkpoint-*") if p.is_dir())
    return f"training step {checkpoints[-1]}" if checkpoints else "started"


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _numbers(counts: dict[str, Any]) -> dict[str, Any]:
    return {"in": counts["in"], "out": counts["out"], **{f"dropped/{k}": v for k, v in counts["dropped"].items()}}


def _summary(manifest: dict[str, Any]) -> str:
    counts, tokens = manifest["counts"], manifest["tokens"]
    parts = [f"{counts['in']} in, {counts['out']} out"]
    parts += [f"{number} {reason}" for reason, number in sorted(counts["dropped"].items())]
    if tokens["generated"]:
        parts.append(f"{tokens['generated']} tokens generated")
    return f"{', '.join(parts)}, {_duration(manifest['seconds'])}"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
