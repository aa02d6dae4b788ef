"""How long a run takes, found in a minute by playing it through, and what it will leave out.

Every stage before the first training runs as it is, in a directory of which nothing stays; of the first training a few
steps. Then trees are grown and judges measured by the stages' own code, with an engine that asks the model a few of the
requests and knows the rest (:mod:`judgetrain.extras.init.rehearsal`). What trains later is worked out from the first
training's pace.
"""

from __future__ import annotations

import io
import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.table import Table

from judgetrain.artifacts.console import Console, duration
from judgetrain.artifacts.shards import Rows, count_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.artifacts.tracker import Run
from judgetrain.data.sources import Rejects, read
from judgetrain.engines.config import LocalEngineConfig, ModelConfig, TransformersEngineConfig, engines_in, model_files
from judgetrain.engines.loading import end_token_ids, load_tokenizer, own_context
from judgetrain.errors import TrainingError
from judgetrain.extras.init.rehearsal import STEADY, Ledger, RehearsedConfig
from judgetrain.judges.method import JUDGE_STAGES
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.data import fitting
from judgetrain.train.run import lasting

ROWS = 400
"""Rows of a source and of a benchmark that are played through; what goes by rows is multiplied for the others."""
STEPS, FEW, SMALL = 40, 3, 50e6
"""Steps of the first training, the first of which warms up, and those of a model whose files have more bytes."""


class Steps(Run):
    """A tracker that keeps the tokens trained on, and when."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def log(self, numbers: Mapping[str, Any], step: int | None = None) -> None:
        """Keep the time of a training step."""
        self.seen += [(time.monotonic(), float(v)) for k, v in numbers.items() if k.endswith("/num_tokens")]


class Play:
    """A run that is played through in ``home``.

    ``seconds``: by stage how long what was played would take; ``more``: how much more than that there is; ``of``: what
    there is. ``left``: the stages that were not played yet.
    """

    def __init__(self, config: Config, target: str, home: Path) -> None:
        self.config, self.home, self._wanted = config, home, Pipeline(config)
        self.seconds, self.more, self.of = dict[str, float](), dict[str, float](), dict[str, str]()
        self.cut, self.left, self._track = Counter[str](), [*self._wanted.needed(target)], Steps()
        engine, evaluate, label, teacher = config.engine, config.evaluate, config.label, config.teacher
        batch = engine.batch_size if isinstance(engine, TransformersEngineConfig) else 32
        model = engine.model if isinstance(engine, LocalEngineConfig) else config.train.base
        self.ledger = Ledger(config.train.base.path, batch)
        played = config.changed(
            output_dir=str(home),
            engine=RehearsedConfig(model=model, batch_size=batch, ledger=self.ledger),
            teacher=teacher if teacher.engine.computes else replace(teacher, engine=RehearsedConfig()),
            dialogues=replace(config.dialogues, sources=[*map(_few, config.dialogues.sources)]),
            responses=replace(config.responses, models=[*map(_unpaid, config.responses.models)]),
            label=replace(label, external=_unpaid(label.external)),
            evaluate=_unpaid(replace(evaluate, benchmarks=[*map(_few, evaluate.benchmarks)]), "external"),
        )
        self._played = Pipeline(played, Console(silent=True))

    def run(self) -> None:
        """Play every stage that a run would make, in order."""
        while self.left:
            stage, began, pending = self.left[0], time.monotonic(), self.ledger.pending
            if stage in ("sft", "reference", "dpo"):
                self.seconds[stage] = self._trained(stage)
            elif stage == "initial":
                self.seconds[stage] = self._first()
            else:
                self._play(stage)
                self._sizes(stage)
                waited = (self.ledger.pending - pending) / (self.config.executor.workers or 1)
                self.seconds[stage] = time.monotonic() - began + waited
            self.left = self.left[1:]

    def _play(self, stage: str, **changes: Any) -> None:
        """Run a stage's code on what was played before; the first judge stands for all."""
        settings = replace(self._played.settings(stage), **changes)
        names = STAGES[stage].inputs(settings)
        inputs = {name: self._place("initial" if name in JUDGE_STAGES else name) for name in names}
        out = StageRun(self._place(stage), stage, self.config.seed, Console(silent=True), home=self.home)
        out.track = self._track
        with redirect_stdout(io.StringIO()):
            STAGES[stage].run(settings, inputs, out)

    def _place(self, stage: str) -> Path:
        return self.home / "artifacts" / stage / "played"

    def _sizes(self, stage: str) -> None:
        """Note how much more there is of what goes by rows, as soon as it is known."""
        config, more, of = self.config, self.more, self.of
        asked = {e.model_name for e in engines_in(self._wanted.settings(stage)) if e.paid and not e.computes}
        if stage == "dialogues":
            local = (source for source in config.dialogues.sources if source.local)
            sizes = [sum(1 for _ in read(s, stage, lambda row, n: None, Rejects(strict=False))) for s in local]
            more[stage] = more["cluster"] = max(1, sum(sizes)) / max(1, sum(min(n, ROWS) for n in sizes))
        elif stage == "responses":
            kept = count_rows(self._place("dialogues"), "dialogues")
            pairs = count_rows(self._place(stage), "comparisons")
            sample, most = config.cluster.sample, config.tree.max_comparisons or sys.maxsize
            more[stage] = min(sample, kept * more["dialogues"]) / max(1, min(sample, kept))
            counts = [round(pairs * more[stage]), pairs]  # of the run, and of what is played
            taught = [min(config.teacher.comparisons, math.ceil(config.teacher.share * n)) for n in counts]
            trees = [min(most, (n - t) or n) for n, t in zip(counts, taught, strict=True)]
            more |= dict.fromkeys(("teacher", "initial"), taught[0] / max(1, taught[1]))
            of |= {"teacher": f"{taught[0]:,} comparisons", "tree": f"{trees[0]:,} trees"}
            more |= dict.fromkeys(("tree", "label", "sft", "reference", "dpo"), trees[0] / max(1, trees[1]))
        elif stage == "evaluate":
            settings: list[Any] = [pipeline.settings(stage) for pipeline in (self._wanted, self._played)]
            whole, played = (sum(len(b.comparisons) for b in each.benchmarks) for each in settings)
            more[stage] = whole / max(1, played)
            of[stage] = f"{len(config.evaluate.methods)} methods, {whole:,} comparisons"
        known = [of.get(stage, ""), *(f"and what {name} takes" for name in sorted(asked))]
        of[stage] = ", ".join(filter(None, known))

    def _first(self) -> float:
        """A few steps of the first training; the seconds of all of them."""
        began, train = time.monotonic(), self.config.train.initial
        from judgetrain.train import trainers  # noqa: F401

        imported, steps = time.monotonic(), STEPS if _small(self.config.train.base.path) else FEW
        self._play("initial", train=replace(train, max_steps=steps, save_steps=10**6, regional_compilation=False))
        self._judge = ModelConfig(str(self._place("initial") / "model"))  # read in no time, unlike a GGUF file
        self._tokenizer = load_tokenizer(self._judge)
        (first, before), *_, (last, after) = self._track.seen
        self._pace = (after - before) / (last - first)
        self._rest, seconds = max(0.0, time.monotonic() - imported - after / self._pace), imported - began
        if self.config.teacher.engine.computes:  # what it wrote is what the judge learns to write
            for row in Rows(self._place("teacher"), "examples"):
                ids = self._tokenizer(row["completion"][-1]["content"], add_special_tokens=False)["input_ids"]
                self.ledger.lengths[row["level"]].append(len(ids) + 1)
        return seconds + self._trained("initial")

    def _trained(self, stage: str) -> float:
        """The seconds of a training, at the first one's pace. A pair is read twice, with either side."""
        config, pairs = self.config.train, stage in ("dpo", "reference")
        source, name = "label", "pairs-train" if pairs else "sft-train"
        source, name = ("teacher", "examples") if stage == "initial" else (source, name)
        train, tokenizer = config.dpo if pairs else getattr(config, stage), self._tokenizer
        most, ends = min(train.max_length, own_context(self._judge)), end_token_ids(self._judge, tokenizer)
        try:
            found = fitting(Rows(self._place(source), name), tokenizer, most, name, ends)
        except TrainingError:  # there is none, or none fits
            return 0.0
        if long := found.dropped.get("too_long"):
            self.cut[f"of {len(found) + long:,} {name} are longer than {most} tokens (train.*.max_length)"] = long
        rows, tokens = round(len(found) * self.more.pop(stage, 1.0)), (1 + pairs) * fmean(found.lengths)
        if stage == "reference":  # nothing is learned: a third of the work
            self.of[stage] = f"{rows:,} pairs"
            return self.ledger.load + rows * tokens / self._pace / 3
        batch = train.per_device_train_batch_size * train.global_accumulation_steps
        passes = lasting(train, rows).num_train_epochs
        steps = train.max_steps if train.max_steps > 0 else math.ceil(rows * passes / batch)
        self.of[stage] = f"{steps:,} steps of {batch}, {tokens:,.0f} tokens each"
        return self._rest + steps * min(batch, rows) * tokens / self._pace

    def told(self, passed: float) -> Iterator[Any]:
        """A table with a row a stage, and what there is to say besides."""
        table = Table("stage", "about", "of", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        made = {stage: not self._wanted.plan(stage).finished for stage in self.seconds}
        seconds = {stage: made[stage] * each * self.more.get(stage, 1.0) for stage, each in self.seconds.items()}
        for stage, each in (*seconds.items(), ("these" if self.left else "all", sum(seconds.values()))):
            table.add_row(stage, duration(each), self.of.get(stage, "") if made.get(stage, True) else "is there")
        yield table
        if self.left:
            told = f"{', '.join(self.left)} were not reached: this is no estimate of the run; try again on idle cores"
            yield f"out of time after {duration(passed)}: {told}"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6)
        torch = sys.modules.get("torch")
        gpu = f", {torch.cuda.max_memory_allocated() / 1e9:.1f} of a GPU" if torch and torch.cuda.is_available() else ""
        yield f"peak memory {memory:.1f} GB{gpu}; found in {duration(passed)}, nothing of it is kept"
        yield from (f"left out: {number:,} {told}" for told, number in (self.cut + self.ledger.cut).items())
        if "label" in seconds:
            yield f"assumed for sft and dpo: the judge keeps to its form, and {STEADY:.0%} of its judgments are steady"


def _small(path: str) -> bool:
    """Whether a model's directory has few bytes; a Hub id, a package or a file counts as large."""
    here = Path(model_files(path) or "-").expanduser()
    return here.is_dir() and sum(p.stat().st_size for p in here.rglob("*")) < SMALL


def _unpaid(owner: Any, name: str = "engine") -> Any:
    """With an engine that answers at once in the place of one that may be paid for."""
    return replace(owner, **{name: RehearsedConfig()}) if getattr(owner, name).paid else owner


def _few(source: Any) -> Any:
    return replace(source, limit=min(source.limit or ROWS, ROWS))
