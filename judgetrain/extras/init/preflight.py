"""``stage=preflight``: what is missing for a run, and how long it takes, found in a minute by playing it through.

Every stage before the first training runs as it is, in a directory of which nothing stays; of the first training a few
steps. Then trees are grown and judges measured by the stages' own code, with an engine that asks the model a few of the
requests and knows the rest (:mod:`judgetrain.extras.init.rehearsal`). What trains later is worked out from the first
training's pace.
"""

from __future__ import annotations

import io
import math
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

from rich.table import Table

from judgetrain.artifacts.console import Console, duration, quiet_libraries
from judgetrain.artifacts.shards import Rows, count_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.artifacts.tracker import Run
from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import Rejects, read
from judgetrain.engines.config import EngineConfig, LocalEngineConfig, TransformersEngineConfig, engines_in, model_files
from judgetrain.errors import TrainingError
from judgetrain.extras.init.rehearsal import STEADY, Ledger, PretendedConfig, RehearsedConfig
from judgetrain.judges.method import JUDGE_STAGES
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.config import TrainConfig

MOST = 60.0
"""Seconds that a preflight takes at most."""
ROWS = 400
"""Rows of a source, and of a benchmark, that are played through; what goes by rows is multiplied where there are
more."""
STEPS, FEW, SMALL = 12, 3, 50e6
"""Steps of the first training, and those of a model whose files have more bytes than this."""


class OutOfTime(BaseException):
    """The minute is over; no stage takes it for an error of its own."""


class Estimate(NamedTuple):
    """What a stage takes: seconds, and what of."""

    stage: str
    seconds: float
    of: str = ""


@dataclass
class Pace:
    """How fast the first training went: tokens a second, and the seconds of everything but its steps."""

    tokens: float
    rest: float

    @classmethod
    def of(cls, seen: Sequence[tuple[float, float]], seconds: float) -> Self:
        """By the times of steps with the tokens up to each; the first, which warms up, counts as the others do."""
        (first, before), (last, after) = seen[0], seen[-1]
        steps = len(seen) / (len(seen) - 1) * (last - first)
        return cls((after - before) / (last - first), max(0.0, seconds - steps))


def steps_of(config: TrainConfig, rows: int) -> int:
    """Optimizer steps of a training on so many rows."""
    step = config.per_device_train_batch_size * config.global_accumulation_steps
    least = math.ceil(config.min_steps * step / rows) if rows else 0
    epochs = max(config.num_train_epochs, least)
    return config.max_steps if config.max_steps > 0 else math.ceil(rows * epochs / step)


class Steps(Run):
    """A tracker that keeps the tokens trained on, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, float]] = []

    def log(self, numbers: Mapping[str, Any], step: int | None = None) -> None:
        """Keep the time of a training step."""
        if found := next((v for k, v in numbers.items() if k.endswith("/num_tokens")), None):
            self.seen.append((time.monotonic(), float(found)))


def preflight(pipeline: Pipeline) -> None:
    """Print what each stage of ``stage=evaluate`` takes, or of ``stage=dpo`` where there is no benchmark.

    Raises:
        JudgetrainError: something is missing or wrong; a line for each.
    """
    began, spent, console, config = time.monotonic(), time.process_time(), pipeline.console, pipeline.config
    target = "evaluate" if config.evaluate.benchmarks else "dpo"
    pipeline.check_all(target)
    quiet_libraries()
    console.line(f"preflight: all is there that stage={target} reads; it is now played through ({MOST:.0f} s)")
    with TemporaryDirectory(prefix="judgetrain-preflight-") as place:
        play = Play(config, target, Path(place))
        with _no_longer(MOST - (time.process_time() - spent)):
            play.run()
    console.plain([play.table(), *play.told(time.monotonic() - began)])


@contextmanager
def _no_longer(seconds: float) -> Iterator[None]:
    """Ends what runs inside after so many seconds of computing, or three times as many on a busy machine."""

    def end(*_: object) -> None:
        raise OutOfTime

    if not hasattr(signal, "setitimer"):
        yield
        return
    seconds = max(1.0, seconds)
    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, 3 * seconds))
    before = [signal.signal(number, end) for number, _, _ in timers]
    for _, timer, most in timers:
        signal.setitimer(timer, most)
    try:
        yield
    except OutOfTime:
        pass
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


class Play:
    """A run that is played through in ``home``; ``found`` are the estimates so far."""

    def __init__(self, config: Config, target: str, home: Path) -> None:
        self.config, self.target, self.home = config, target, home
        self.found, self.cut, self.left = list[Estimate](), Counter[str](), list[str]()
        self._more, self._pace = dict[str, float](), Pace(1.0, 0.0)
        engine, teacher = config.engine, config.teacher
        batch = engine.batch_size if isinstance(engine, TransformersEngineConfig) else 32
        model = engine.model if isinstance(engine, LocalEngineConfig) else config.train.base
        by_rule = teacher.engine.computes
        self.ledger = Ledger(config.train.base.path, batch, MOST / 5)
        sources = [replace(s, limit=min(s.limit or ROWS, ROWS)) for s in config.dialogues.sources]
        asked = [replace(b, limit=min(b.limit or ROWS, ROWS)) for b in config.evaluate.benchmarks]
        models = [replace(m, engine=_unpaid(m.engine)) for m in config.responses.models]
        external = replace(config.label.external, engine=_unpaid(config.label.external.engine))
        played = config.changed(
            output_dir=str(home),
            engine=RehearsedConfig(model=model, batch_size=batch, ledger=self.ledger),
            teacher=teacher if by_rule else replace(teacher, engine=PretendedConfig()),
            dialogues=replace(config.dialogues, sources=sources),
            responses=replace(config.responses, models=models),
            label=replace(config.label, external=external),
            evaluate=replace(config.evaluate, benchmarks=asked, external=_unpaid(config.evaluate.external)),
        )
        self._played, self._wanted = Pipeline(played, Console(silent=True)), Pipeline(config)

    def run(self) -> None:
        """Play every stage that a run would make, in order."""
        own = {"initial": self._first, "sft": self._later, "dpo": self._later, "reference": self._reference}
        self.left = [*self._wanted.needed(self.target)]
        while self.left:
            stage = self.left[0]
            own.get(stage, self._as_it_is)(stage)
            if self._wanted.plan(stage).finished:
                self.found[-1] = Estimate(stage, 0.0, "is there")
            self.left = self.left[1:]

    def _as_it_is(self, stage: str) -> None:
        """A stage by its own code."""
        pending, began = self.ledger.pending, time.monotonic()
        self._play(stage)
        waited = (self.ledger.pending - pending) / (self.config.executor.workers or 1)
        seconds = time.monotonic() - began + waited
        asked = {e.model_name for e in engines_in(self._wanted.settings(stage)) if e.paid and stage != "teacher"}
        of = ", and ".join(filter(None, (self._after(stage), *(f"what {name} takes" for name in sorted(asked)))))
        self.found.append(Estimate(stage, seconds * self._more.get(stage, 1.0), of))

    def _play(self, stage: str, **changes: Any) -> StageRun:
        """Run a stage's code on what was played before; the first judge stands for all."""
        settings = replace(self._played.settings(stage), **changes)
        names = STAGES[stage].inputs(settings)
        inputs = {name: self._place("initial" if name in JUDGE_STAGES else name) for name in names}
        out = StageRun(self._place(stage), stage, self.config.seed, Console(silent=True), home=self.home)
        out.track = Steps()
        with redirect_stdout(io.StringIO()):
            STAGES[stage].run(settings, inputs, out)
        return out

    def _place(self, stage: str) -> Path:
        return self.home / "artifacts" / stage / "played"

    def _count(self, stage: str, name: str) -> int:
        return count_rows(self._place(stage), name)

    def _after(self, stage: str) -> str:
        """Note what of a stage's result says how much more the next ones have to do than is played; says of what."""
        config, more = self.config, self._more
        if stage == "dialogues":
            sizes = [*map(rows_in, config.dialogues.sources)]
            self._rows = max(1, sum(sizes)) / max(1, sum(min(n, ROWS) for n in sizes))
            more["dialogues"] = more["cluster"] = self._rows
            return f"{sum(sizes):,} rows" if any(sizes) else ""
        if stage == "responses":
            kept, found = self._count("dialogues", "dialogues"), self._count("responses", "comparisons")
            sample = config.cluster.sample
            more["responses"] = min(sample, kept * self._rows) / max(1, min(sample, kept))
            self._comparisons = round(found * more["responses"])
            played, self._taught = (
                min(config.teacher.comparisons, math.ceil(config.teacher.share * n)) for n in (found, self._comparisons)
            )
            more["teacher"] = more["initial"] = self._taught / max(1, played)
            return f"{self._comparisons:,} comparisons"
        if stage == "teacher":
            most = config.tree.max_comparisons or sys.maxsize
            remaining = (self._comparisons - self._taught) or self._comparisons
            self._trees = min(most, remaining)
            times = self._trees / max(1, min(most, self._count("teacher", "remaining")))
            more |= dict.fromkeys(("tree", "label", "sft", "reference", "dpo"), times)
            by = "" if config.teacher.engine.computes else f", and what {config.teacher.engine.model_name} takes"
            return f"{self._taught:,} comparisons{by}"
        if stage == "evaluate":
            settings: list[Any] = [pipeline.settings("evaluate") for pipeline in (self._played, self._wanted)]
            played, whole = (sum(len(b.comparisons) for b in each.benchmarks) for each in settings)
            more["evaluate"] = whole / max(1, played)
            return f"{len(config.evaluate.methods)} methods on {whole:,} comparisons"
        return f"{self._trees:,} trees" if stage == "tree" else ""

    def _first(self, stage: str) -> None:
        """A few steps of the first training."""
        began = time.monotonic()
        from judgetrain.train import trainers  # noqa: F401

        imports, train = time.monotonic() - began, self.config.train.initial
        steps = FEW if weight(self.config.train.base.path) > SMALL else STEPS
        began = time.monotonic()
        few = replace(train, max_steps=steps, min_steps=0, save_steps=10**6, regional_compilation=False)
        out = self._play(stage, train=few)
        seen = out.track.seen if isinstance(out.track, Steps) else []
        self._pace = Pace.of(seen, time.monotonic() - began)
        if self.config.teacher.engine.computes:  # by rule: what it wrote is what the judge learns to write
            self._texts()
        self._trains(stage, train, "teacher", "examples", imports)

    def _texts(self) -> None:
        from judgetrain.engines.loading import load_tokenizer

        tokenizer, texts = load_tokenizer(self.config.train.base), dict[str, list[str]]()
        for row in Rows(self._place("teacher"), "examples"):
            texts.setdefault(row["level"], []).append(row["completion"][-1]["content"])
        for level, found in texts.items():
            ids = tokenizer(found, add_special_tokens=False)["input_ids"]
            self.ledger.lengths[level] = [len(each) + 1 for each in ids]

    def _later(self, stage: str) -> None:
        """A later training, at the first one's pace. A pair is read twice, with either side."""
        train, pairs = getattr(self.config.train, stage), stage == "dpo"
        self._trains(stage, train, "label", "pairs-train" if pairs else "sft-train", sides=2 if pairs else 1)

    def _trains(
        self, stage: str, train: TrainConfig, source: str, name: str, more: float = 0.0, sides: int = 1
    ) -> None:
        lengths = self._lengths(train, source, name, stage)
        rows = round(len(lengths) * self._more.get(stage, 1.0))
        steps, batch = steps_of(train, rows), train.per_device_train_batch_size * train.global_accumulation_steps
        tokens = sides * fmean(lengths) if lengths else 0.0
        seconds = self._pace.rest + more + steps * min(batch, rows) * tokens / self._pace.tokens if steps else 0.0
        self.found.append(Estimate(stage, seconds, f"{steps:,} steps of {batch}, {tokens:,.0f} tokens each"))

    def _reference(self, stage: str) -> None:
        """Pairs are read, and nothing is learned: a third of the work."""
        lengths = self._lengths(self.config.train.dpo, "label", "pairs-train")
        rows = len(lengths) * self._more.get(stage, 1.0)
        seconds = self.ledger.load + 2 * rows * (fmean(lengths) if lengths else 0.0) / self._pace.tokens / 3
        self.found.append(Estimate(stage, seconds, f"{rows:,.0f} pairs"))

    def _lengths(self, train: TrainConfig, source: str, name: str, cut: str = "") -> Sequence[int]:
        """The tokens of each example or pair that fits; notes how many do not."""
        from judgetrain.engines.loading import end_token_ids, load_tokenizer, own_context
        from judgetrain.train.data import fitting

        base = self.config.train.base
        tokenizer, most = load_tokenizer(base), min(train.max_length, own_context(base))
        try:
            found = fitting(Rows(self._place(source), name), tokenizer, most, name, end_token_ids(base, tokenizer))
        except TrainingError:  # there is none, or none fits
            return []
        if cut and (long := found.dropped.get("too_long")):
            self.cut[f"of {len(found) + long:,} examples of {cut} are longer than {most} tokens"] += long
        return found.lengths

    def table(self) -> Table:
        """A row a stage."""
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for column in ("stage", "about", "of"):
            table.add_column(column)
        for each in self.found:
            table.add_row(each.stage, duration(each.seconds), each.of)
        table.add_row("all", duration(sum(each.seconds for each in self.found)), "")
        return table

    def told(self, seconds: float) -> Iterator[str]:
        """What there is to say besides."""
        if self.left:
            yield f"the minute was over before {', '.join(self.left)}: at least as long as that"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6)
        torch = sys.modules.get("torch")
        gpu = f", {torch.cuda.max_memory_allocated() / 1e9:.1f} of a GPU" if torch and torch.cuda.is_available() else ""
        yield f"peak memory {memory:.1f} GB{gpu}; found in {seconds:.0f} s, nothing of it is kept"
        for told, number in (self.cut + self.ledger.cut).items():
            yield f"left out: {number:,} {told}"
        if {"sft", "dpo"} & {each.stage for each in self.found}:
            yield f"assumed: the judge keeps to the form, {STEADY:.0%} of its judgments are steady; sft, dpo hang on it"


def _unpaid(engine: EngineConfig) -> EngineConfig:
    """The engine, or in the place of one that may be paid for one that answers at once."""
    return PretendedConfig() if engine.paid else engine


def rows_in(source: SourceConfig) -> int:
    """The rows of a source's files; 0 of one that is elsewhere, or made up."""
    if not source.local:
        return 0
    return sum(1 for _ in read(source, "preflight", lambda row, number: None, Rejects(strict=False)))


def weight(path: str) -> float:
    """Bytes of a model's files here; a Hub id or a package counts as large."""
    files = model_files(path)
    if files is None or not Path(files).exists():
        return math.inf
    return sum(p.stat().st_size for p in [Path(files), *Path(files).rglob("*")] if p.is_file())
