"""How long a run takes, found in a minute by playing it through, and what it will leave out.

Every stage before the first training runs as it is, in a directory of which nothing stays; of the first training a few
steps. Then trees are grown and judges measured by the stages' own code, with an engine that asks the model a few of the
requests and knows the rest (:mod:`judgetrain.extras.init.rehearsal`). What trains later is worked out from the first
training's pace, and from what the trees of two pretended judges leave. Seconds are those of an idle machine.
"""

import io
import math
import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import redirect_stdout, suppress
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
from judgetrain.engines.config import LocalEngineConfig, ModelConfig, TransformersEngineConfig, engines_in
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer, own_context
from judgetrain.errors import DataError, NothingToLearnError, TrainingError
from judgetrain.extras.init.rehearsal import Ledger, RehearsedConfig, lost, now
from judgetrain.judges.method import JUDGE_STAGES
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.data import WithReminders, fitting, pairs_of
from judgetrain.train.run import lasting
from judgetrain.train.stage import save_asking
from judgetrain.train.stages import InitialSettings

ROWS = 400
"""Rows of a source and of a benchmark that are played through; what goes by rows is multiplied for the others."""
STEPS, ENOUGH = 40, 8.0
"""Steps of the first training, and seconds after its first, which warms up: which of the two comes first."""
BUSY = 0.1
"""Share of the time that others may take of the cores before it is told."""


class EnoughError(Exception):
    """Enough training steps were seen."""


class Steps(Run):
    """A tracker that keeps the tokens trained on, and when, and ends the training after :data:`ENOUGH`."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def log(self, numbers: Mapping[str, Any], step: int | None = None) -> None:
        """Keep the time of a training step (EnoughError: it is enough)."""
        self.seen += (more := [(now(), float(v)) for k, v in numbers.items() if k.endswith("/num_tokens")])
        if more and more[0][0] - self.seen[0][0] > ENOUGH:
            raise EnoughError


class Play:
    """A run that is played through in ``home``.

    What follows the first training is played twice, with a judge that judges by chance and with one that is sure: how
    many examples and pairs their trees leave lies between the two, as a rule. ``seconds``: by stage what it would take,
    with either; ``counts``: the steps or pairs, likewise. ``more``: how much more there is than was played; ``of``:
    what there is. ``once``: the stages up to the first training.

    ``until``: when nothing more is asked that need not be, by ``time.monotonic``.
    """

    def __init__(self, config: Config, target: str, home: Path, until: float = math.inf) -> None:
        self.config, self.home, self._wanted = config, home, Pipeline(config)
        self.seconds, self.counts = defaultdict[str, list[float]](list), defaultdict[str, list[int]](list)
        self.more, self.of, self._busy = dict[str, float](), dict[str, str](), lost()
        self.cut, self._track, self._stages = Counter[str](), Steps(), [*self._wanted.needed(target)]
        last = self._stages.index("initial") if "initial" in self._stages else len(self._stages)
        self._once = self._stages[: last + 1]
        engine, evaluate, label, teacher = config.engine, config.evaluate, config.label, config.teacher
        batch = engine.batch_size if isinstance(engine, TransformersEngineConfig) else 32
        model = engine.model if isinstance(engine, LocalEngineConfig) else config.train.base
        self.ledger = Ledger(config.train.base.path, batch, until=until)
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
        for stage in self._stages:
            for steady in (False,) if stage in self._once else (False, True):
                cut, self.ledger.steady = self.ledger.cut.copy(), steady
                self.seconds[stage].append(self._seconds(stage))
                self.ledger.cut = cut if steady else self.ledger.cut

    def _seconds(self, stage: str) -> float:
        if stage in ("sft", "reference", "dpo"):
            return self._trained(stage)
        if stage == "initial":
            return self._first()
        began, pending = now(), self.ledger.pending
        with suppress(NothingToLearnError):  # of a few trees by chance nothing may be left
            self._play(stage)
        if not self.ledger.steady:
            self._sizes(stage)
        waited = (self.ledger.pending - pending) / (self.config.executor.workers or 1)
        return max(0.0, now() - began + waited) * self.more.get(stage, 1.0)  # what was lost is known with a delay

    def _play(self, stage: str, **changes: Any) -> None:
        """Run a stage's code on what was played before; the base, as the first judge, stands for all."""
        settings = replace(self._played.settings(stage), **changes)
        names = STAGES[stage].inputs(settings)
        inputs = {name: self._place("initial" if name in JUDGE_STAGES else name) for name in names}
        out = StageRun(self._place(stage), stage, self.config.seed, Console(silent=True), home=self.home)
        out.track = self._track
        with redirect_stdout(io.StringIO()):
            STAGES[stage].run(settings, inputs, out)

    def _place(self, stage: str) -> Path:
        own = self.ledger.steady and stage not in self._once  # apart, as stages take shards from artifacts beside
        return self.home / ("steady" if own else "chance") / "artifacts" / stage / "played"

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
        began, place = now(), self._place("initial") / "model"
        settings = self._played.settings("initial")
        assert isinstance(settings, InitialSettings)
        short = replace(settings.train, max_steps=STEPS, save_steps=10**6, regional_compilation=False)
        with suppress(EnoughError):
            self._play("initial", train=short)
        if not place.is_dir():
            load_model(settings.base).save_pretrained(place)  # from here it is read in no time, unlike a GGUF file
            load_tokenizer(settings.base).save_pretrained(place)
            save_asking(settings, place)
        self._judge = ModelConfig(str(place))
        self._tokenizer = load_tokenizer(self._judge)
        (first, before), *_, (last, after) = self._track.seen
        self._pace = (after - before) / (last - first)
        self._rest = max(0.0, first - began - before / self._pace)
        if self.config.teacher.engine.computes:  # what it wrote is what the judge learns to write
            for row in Rows(self._place("teacher"), "examples"):
                ids = self._tokenizer(row["completion"][-1]["content"], add_special_tokens=False)["input_ids"]
                self.ledger.lengths[row["level"]].append(len(ids) + 1)
        return self._trained("initial")

    def _trained(self, stage: str) -> float:
        """The seconds of a training, at the first one's pace. A pair is read twice, with either side."""
        config, pairs = self.config.train, stage in ("dpo", "reference")
        source, name = "label", "pairs-train" if pairs else "sft-train"
        source, name = ("teacher", "examples") if stage == "initial" else (source, name)
        train, tokenizer, place = config.dpo if pairs else getattr(config, stage), self._tokenizer, self._place(source)
        most, ends = min(train.max_length, own_context(self._judge)), end_token_ids(self._judge, tokenizer)
        try:
            kind = WithReminders if stage == "reference" else Rows
            given = pairs_of(place, train) if stage == "dpo" else kind(place, name)
            found = fitting(given, tokenizer, most, name, ends)
        except (DataError, TrainingError):  # there is none, or none fits
            self.counts[stage].append(0)
            return 0.0
        told = f"{name} longer than {most} tokens (train.*.max_length)"
        self.cut |= Counter({told: found.dropped.get("too_long", 0)})
        rows, tokens = round(len(found) * self.more[stage]), (1 + pairs) * fmean(found.lengths)
        batch = train.per_device_train_batch_size * train.global_accumulation_steps
        passes = lasting(train, rows).num_train_epochs
        steps = train.max_steps if train.max_steps > 0 else math.ceil(rows * passes / batch)
        self.of[stage] = f"steps of {batch}, {tokens:,.0f} tokens each"
        self.counts[stage].append(rows if stage == "reference" else steps)
        if stage == "reference":  # nothing is learned: a third of the work
            self.of[stage] = "pairs"
            return self.ledger.load + rows * tokens / self._pace / 3
        return self._rest + steps * min(batch, rows) * tokens / self._pace

    def told(self, passed: float) -> Iterator[Any]:
        """A table with a row a stage, and what there is to say besides."""
        table = Table("stage", "about", "of", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        made = {stage: not self._wanted.plan(stage).finished for stage in self.seconds}
        seconds = {stage: [made[stage] * s for s in each] for stage, each in self.seconds.items()}
        whole = [sum(each[-1 if sure else 0] for each in seconds.values()) for sure in (False, True)]
        for stage, each in (*seconds.items(), ("all", whole)):
            number = _between(self.counts.get(stage, []), "{:,}".format)
            of = f"{number} {self.of.get(stage, '')}".strip() if made.get(stage, True) else "is there"
            table.add_row(stage, _between(each, duration), of)
        yield table
        if self.ledger.late:
            yield "the time was over before all was asked: the last stages are reckoned from what was measured by then"
        if (busy := (lost() - self._busy) / passed) > BUSY:
            told = f"others used this machine for {busy:.0%} of the time, which is not counted"
            yield f"{told}: if they go on, a run takes {1 / (1 - busy):.1f} times as long"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6)
        torch = sys.modules.get("torch")
        gpu = f", {torch.cuda.max_memory_allocated() / 1e9:.1f} of a GPU" if torch and torch.cuda.is_available() else ""
        yield f"peak memory {memory:.1f} GB{gpu}; found in {duration(passed)}, nothing of it is kept"
        yield from (f"left out: {number:,} {told}" for told, number in (self.cut + self.ledger.cut).items())
        if "dpo" in seconds:
            yield "from - to: a judge by chance, as small models on hard rows, leaves few examples and many pairs,"
            yield "one that is sure the reverse; so all is a run with the one or the other, not the sum of the columns"


def _between(each: Collection[float], written: Callable[[float], str]) -> str:
    """The least and the greatest, or one of them where they read alike."""
    return " - ".join(dict.fromkeys(map(written, (min(each), max(each)) if each else ())))


def _unpaid(owner: Any, name: str = "engine") -> Any:
    """With an engine that answers at once in the place of one that may be paid for."""
    return replace(owner, **{name: RehearsedConfig()}) if getattr(owner, name).paid else owner


def _few(source: Any) -> Any:
    return replace(source, limit=min(source.limit or ROWS, ROWS))
