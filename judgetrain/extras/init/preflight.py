"""Play a run through in a minute, to tell how long it takes and what it will leave out.

- Every stage before the first training runs as it is, in a directory of which nothing stays.
- Of the first training a few steps run.
- Trees are grown and judges measured by the stages' own code, with an engine that asks the model a few of the requests
  and makes up the other answers (:mod:`judgetrain.extras.init.rehearsal`).
- The time of later trainings follows from the first training's pace, and from what the trees of two pretended judges
  leave to train on.

Seconds are those of an idle machine.
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

from judgetrain.amounts import amount
from judgetrain.artifacts.console import Console, duration
from judgetrain.artifacts.heartbeat import doing
from judgetrain.artifacts.shards import Rows, count_rows
from judgetrain.artifacts.stage_run import RunOptions, StageRun
from judgetrain.artifacts.tracker import Run
from judgetrain.data.sources import Rejects, read
from judgetrain.engines.answer_tokens import token_ids
from judgetrain.engines.config import LocalEngineConfig, ModelConfig, TransformersEngineConfig, engines_in
from judgetrain.engines.loading import end_token_ids, load_model, load_tokenizer, own_context
from judgetrain.errors import DataError, NothingToLearnError, TrainingError
from judgetrain.extras.init.rehearsal import Ledger, RehearsedConfig, lost, now
from judgetrain.judges.method import JUDGE_STAGES
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.data import Renderer, WithReminders, fitting, pairs_of
from judgetrain.train.prefix_trees import in_prefix_trees
from judgetrain.train.run import lasting
from judgetrain.train.stage import save_asking, text_of_criteria
from judgetrain.train.stages import InitialSettings

ROWS = 400
"""Rows of a source and of a benchmark that are played through; what goes by rows is multiplied for the others."""
STEPS = 40
"""Steps of the first training at most."""
ENOUGH = 8.0
"""Seconds of the first training at most, after its first step, which warms up."""
BUSY = 0.1
"""Share of the time that others may take of the cores before the preflight says so."""
LATER_TRAININGS = ("sft", "reference", "dpo")
"""Stages whose time follows from the first training's pace."""
BATCH = 32
"""Requests asked together of an engine that names no batch size."""


class EnoughError(Exception):
    """Raised to end the training of which enough steps were seen."""


class Steps(Run):
    """A tracker that keeps when how many tokens were trained on, and ends the training after :data:`ENOUGH`."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        """The second of each step, and the tokens trained on up to it."""

    def log(self, numbers: Mapping[str, Any], step: int | None = None) -> None:
        """Keep the time of a training step.

        Raises:
            EnoughError: the training has gone on for long enough.
        """
        for name, value in numbers.items():
            if not name.endswith("/num_tokens"):
                continue
            second = now()
            self.seen.append((second, float(value)))
            first_second, _ = self.seen[0]
            if second - first_second > ENOUGH:
                raise EnoughError


class Play:
    """A run that is played through in a directory.

    What follows the first training is played twice, with a judge that judges by chance and with one that is steady: how
    many examples and pairs their trees leave lies between the two, as a rule.

    Args:
        config: of the run.
        target: the last stage.
        home: an empty directory.
        until: when nothing more is asked of the model that need not be, by ``time.monotonic``.
    """

    def __init__(self, config: Config, target: str, home: Path, until: float = math.inf) -> None:
        self.config = config
        self.home = home
        self.seconds = defaultdict[str, list[float]](list)
        """The seconds that each stage would take; two values where it is played twice."""
        self.counts = defaultdict[str, list[int]](list)
        """The steps of each stage that trains, or the pairs that it reads; two values where it is played twice."""
        self.more: dict[str, float] = {}
        """How many times more there is than was played, by stage."""
        self.of: dict[str, str] = {}
        """The things that a stage works on, in words, by stage."""
        self.cut = Counter[str]()
        """Rows that are left out, by the reason."""
        self._busy = lost()
        self._track = Steps()
        # What the user asked for, which is planned but not run; what is run is a small copy of it.
        self._wanted = Pipeline(config)
        self._stages = [*self._wanted.needed(target)]
        # Up to the first judge nobody judges yet: chance and steadiness make no difference there.
        self._played_once = self._stages
        if "initial" in self._stages:
            self._played_once = self._stages[: self._stages.index("initial") + 1]
        self.ledger, played = self._rehearsed(until)
        self._played = Pipeline(played, Console(silent=True))

    def _rehearsed(self, until: float) -> tuple[Ledger, Config]:
        """Return the ledger of the rehearsal, and the configuration of what is played."""
        config = self.config
        engine = config.engine
        batch = BATCH
        if isinstance(engine, TransformersEngineConfig):
            batch = engine.batch_size
        # A server's engine has no model of its own to measure: the base is the one that is trained.
        model = config.train.base
        if isinstance(engine, LocalEngineConfig):
            model = engine.model
        ledger = Ledger(config.train.base.path, batch, until=until)
        teacher = config.teacher
        # A teacher may be paid for, and a preflight sends nothing that costs.
        if not teacher.engine.computes:
            teacher = replace(teacher, engine=RehearsedConfig())
        evaluate = replace(config.evaluate, benchmarks=[*map(_few, config.evaluate.benchmarks)])
        played = config.changed(
            output_dir=str(self.home),
            engine=RehearsedConfig(model=model, batch_size=batch, ledger=ledger),
            teacher=teacher,
            dialogues=replace(config.dialogues, sources=[*map(_few, config.dialogues.sources)]),
            # Models that answer queries, labels and verdicts may be paid for as well.
            responses=replace(config.responses, models=[*map(_unpaid, config.responses.models)]),
            label=replace(config.label, external=_unpaid(config.label.external)),
            evaluate=_unpaid(evaluate, "external"),
        )
        return ledger, played

    def run(self) -> None:
        """Play every stage that a run would make, in order."""
        for stage in self._stages:
            self.ledger.steady = False
            self.seconds[stage].append(self._stage_seconds(stage))
            if stage not in self._played_once:
                # What is cut is the same for either judge, and is counted once.
                cut = self.ledger.cut.copy()
                self.ledger.steady = True
                self.seconds[stage].append(self._stage_seconds(stage))
                self.ledger.cut = cut

    def _stage_seconds(self, stage: str) -> float:
        """Play a stage, and return the seconds that all of it would take."""
        if stage in LATER_TRAININGS:
            return self._training_seconds(stage)
        if stage == "initial":
            return self._first_training()
        # Work that the model was spared is in the ledger; what passed here and what is pending are one stage's time.
        began = now()
        pending = self.ledger.pending
        # Of a few trees by a judge that judges by chance nothing may be left.
        with suppress(NothingToLearnError):
            self._play(stage)
        if not self.ledger.steady:
            self._note_sizes(stage)
        # Requests are spread over the run's workers, of which each has a model of its own.
        waited = (self.ledger.pending - pending) / (self.config.executor.workers or 1)
        # The system counts what was lost to others with a delay, so that the difference may be below 0.
        return max(0.0, now() - began + waited) * self.more.get(stage, 1.0)

    def _play(self, stage: str, **changes: Any) -> None:
        """Run a stage's code on what was played before; the base, as the first judge, stands for all.

        Args:
            stage: its name.
            changes: of its settings.
        """
        settings = replace(self._played.settings(stage), **changes)
        inputs = {}
        for name in STAGES[stage].inputs(settings):
            # Judges of later trainings are not there: no later training is played.
            if name in JUDGE_STAGES:
                inputs[name] = self._place("initial")
            else:
                inputs[name] = self._place(name)
        out = StageRun(self._place(stage), stage, self.config.seed, Console(silent=True), RunOptions(home=self.home))
        out.track = self._track
        # A stage's own lines would speak of figures that are made up.
        with redirect_stdout(io.StringIO()):
            STAGES[stage].run(settings, inputs, out)

    def _place(self, stage: str) -> Path:
        """Return the directory in which a stage is played."""
        judge = "chance"
        # The two judges' artifacts stand apart, since stages take finished shards from artifacts beside their own.
        if self.ledger.steady and stage not in self._played_once:
            judge = "steady"
        return self.home / judge / "artifacts" / stage / "played"

    def _note_sizes(self, stage: str) -> None:
        """Note how much more there is than is played, of what goes by rows, as soon as it is there to count."""
        if stage == "dialogues":
            self._note_dialogues()
        elif stage == "responses":
            self._note_comparisons()
        elif stage == "evaluate":
            self._note_benchmarks()
        # Engines that are paid for are not asked, so their time is not in the seconds.
        engines = engines_in(self._wanted.settings(stage))
        paid = {engine.model_name for engine in engines if engine.paid and not engine.computes}
        notes = [self.of.get(stage, "")]
        notes += [f"and what {name} takes" for name in sorted(paid)]
        self.of[stage] = ", ".join(note for note in notes if note)

    def _note_dialogues(self) -> None:
        """Count the rows of local sources; a source of the Hub is read up to its limit in either case."""
        rows = 0
        played = 0
        # Counting the rows of a file takes seconds; rows on the Hub cannot be counted without fetching them.
        for source in self.config.dialogues.sources:
            if source.local:
                size = sum(1 for _ in read(source, "dialogues", lambda row, number: None, Rejects(strict=False)))
                rows += size
                played += min(size, ROWS)
        self.more["dialogues"] = max(1, rows) / max(1, played)
        # Clustering embeds every dialogue.
        self.more["cluster"] = self.more["dialogues"]

    def _note_comparisons(self) -> None:
        """Work out how many comparisons the teacher and the trees get, of the run and of what is played."""
        config = self.config
        # At most so many dialogues get responses, however many there are.
        sample = config.cluster.sample
        kept = count_rows(self._place("dialogues"), "dialogues")
        self.more["responses"] = min(sample, kept * self.more["dialogues"]) / max(1, min(sample, kept))
        played = count_rows(self._place("responses"), "comparisons")
        taught, trees = self._shared_out(round(played * self.more["responses"]))
        taught_played, trees_played = self._shared_out(played)
        self.of["teacher"] = f"{amount(taught, 'comparison')}"
        self.of["tree"] = f"{amount(trees, 'tree')}"
        # The first judge learns from what the teacher wrote, and all later ones from trees.
        for stage in ("teacher", "initial"):
            self.more[stage] = taught / max(1, taught_played)
        for stage in ("tree", "label", *LATER_TRAININGS):
            self.more[stage] = trees / max(1, trees_played)

    def _shared_out(self, comparisons: int) -> tuple[int, int]:
        """Return how many comparisons the teacher evaluates, and of how many trees are grown."""
        config = self.config
        taught = min(config.teacher.comparisons, math.ceil(config.teacher.share * comparisons))
        # Where the teacher takes all, trees are grown of all.
        remaining = comparisons - taught or comparisons
        return taught, min(config.tree.max_comparisons or sys.maxsize, remaining)

    def _note_benchmarks(self) -> None:
        """Count the rows of the benchmarks, pairs and single responses, of the run and of what is played."""
        pairs = []
        responses = []
        for pipeline in (self._wanted, self._played):
            settings: Any = pipeline.settings("evaluate")
            pairs.append(sum(len(benchmark.comparisons) for benchmark in settings.benchmarks))
            responses.append(sum(len(benchmark.responses) for benchmark in settings.responses))
        whole = pairs[0] + responses[0]
        played = pairs[1] + responses[1]
        self.more["evaluate"] = whole / max(1, played)
        notes = [amount(len(self.config.evaluate.methods), "method")]
        for number, noun in ((pairs[0], "comparison"), (responses[0], "response")):
            if number:
                notes.append(amount(number, noun))
        self.of["evaluate"] = ", ".join(notes)

    def _first_training(self) -> float:
        """Train a few steps of stage initial, and return the seconds that all of them would take."""
        began = now()
        settings = self._played.settings("initial")
        assert isinstance(settings, InitialSettings)

        # Without checkpoints and compiled blocks, which would take most of the time of so few steps.
        short = replace(settings.train, max_steps=STEPS, save_steps=10**6, regional_compilation=False)
        # What the training began and did not end, as its steps, ends with this: lines would go on to tell of it.
        with doing("preflight: a few steps of training"), suppress(EnoughError):
            self._play("initial", train=short)
        model = self._place("initial") / "model"
        if not model.is_dir():
            # The training was ended. The base stands for the judge, and is read from here in no time, unlike a GGUF
            # file.
            load_model(settings.base).save_pretrained(model)
            load_tokenizer(settings.base).save_pretrained(model)
            save_asking(settings, text_of_criteria(settings), model)
        # The judge's own tokenizer and context decide what fits into later trainings.
        self._judge = ModelConfig(str(model))
        self._tokenizer = load_tokenizer(self._judge)
        first_second, tokens_before = self._track.seen[0]
        last_second, tokens_after = self._track.seen[-1]
        # Between the first and the last step that was seen: the first one also compiles, and is no measure of the
        # others.
        self._tokens_a_second = (tokens_after - tokens_before) / (last_second - first_second)
        # Besides the steps: loading, compiling, and what else comes before the first one.
        self._setup_seconds = max(0.0, first_second - began - tokens_before / self._tokens_a_second)
        # A teacher that was only rehearsed wrote made-up texts, whose length says nothing.
        if self.config.teacher.engine.computes:
            self._note_lengths()
        return self._training_seconds("initial")

    def _note_lengths(self) -> None:
        """Note how long the teacher's texts are: what it wrote is what the judge learns to write."""
        for row in Rows(self._place("teacher"), "examples"):
            ids = token_ids(self._tokenizer, row["completion"][-1]["content"])
            # With the end token.
            self.ledger.lengths[row["level"]].append(len(ids) + 1)

    def _training_seconds(self, stage: str) -> float:
        """Return the seconds of a training at the first one's pace, and note its steps."""
        train = self._train_settings(stage)
        # The smaller one decides, as in training itself.
        most_tokens = min(train.max_length, own_context(self._judge))
        name = "pairs-train"
        if stage == "initial":
            name = "examples"
        elif stage == "sft":
            name = "sft-train"
        ends = end_token_ids(self._judge, self._tokenizer)
        try:
            examples = fitting(self._training_rows(stage, name), Renderer(self._tokenizer, ends), most_tokens, name)
        except (DataError, TrainingError):
            # There is none, or none fits.
            self.counts[stage].append(0)
            return 0.0
        too_long = examples.dropped.get("too_long", 0)
        if getattr(train, "share_prefixes", False):
            # A row is a comparison with its examples, and beginnings that they share count once.
            examples = in_prefix_trees(examples, most_tokens)
        self.cut |= Counter({f"{name} longer than {amount(most_tokens, 'token')} (train.*.max_length)": too_long})
        # A share of the played rows is too long; the same share of the others is taken to be.
        rows = round(len(examples) * self.more[stage])
        tokens = fmean(examples.lengths)
        if stage in ("reference", "dpo"):
            # A pair is read twice, with either side.
            tokens *= 2
        if stage == "reference":
            self.of[stage] = "pairs"
            self.counts[stage].append(rows)
            # Nothing is learned, which is a third of the work.
            return self.ledger.load + rows * tokens / self._tokens_a_second / 3
        batch = train.per_device_train_batch_size * train.global_accumulation_steps
        steps = train.max_steps
        # TRL's sign that epochs count, not steps.
        if steps <= 0:
            steps = math.ceil(rows * lasting(train, rows).num_train_epochs / batch)
        self.of[stage] = f"steps of {batch}, {tokens:,.0f} tokens each"
        self.counts[stage].append(steps)
        return self._setup_seconds + steps * min(batch, rows) * tokens / self._tokens_a_second

    def _train_settings(self, stage: str) -> Any:
        """Return how a stage trains; stage reference reads the pairs as stage dpo does."""
        if stage == "reference":
            return self.config.train.dpo
        return getattr(self.config.train, stage)

    def _training_rows(self, stage: str, name: str) -> Collection[dict[str, Any]]:
        """Return the rows that a stage would train on, or read."""
        if stage == "initial":
            return Rows(self._place("teacher"), name)
        label = self._place("label")
        if stage == "reference":
            return WithReminders(label, name)
        if stage == "dpo":
            return pairs_of(label, self.config.train.dpo)
        return Rows(label, name)

    def lines(self, passed: float) -> Iterator[Any]:
        """Yield a table with a row a stage, and sentences on what else a user should know.

        Args:
            passed: seconds that the preflight took.
        """
        yield self._table()
        if self.ledger.late:
            yield "the time was over before all was asked: the last stages are reckoned from what was measured by then"
        busy = (lost() - self._busy) / passed
        if busy > BUSY:
            yield (
                f"others used this machine for {busy:.0%} of the time, which is not counted: if they go on, a run "
                f"takes {1 / (1 - busy):.1f} times as long"
            )
        yield f"peak memory {_peak_memory()}; found in {duration(passed)}, nothing of it is kept"
        for reason, number in (self.cut + self.ledger.cut).items():
            yield f"left out: {number:,} {reason}"
        if "dpo" in self.seconds:
            yield "range: from an unsure judge to a sure one. Small models on hard rows are unsure: they leave few"
            yield "examples and many pairs. A sure judge leaves the reverse, so 'all' is one of the two and no sum"

    def _table(self) -> Table:
        """Return the table of the stages' seconds and of what they are about."""
        table = Table("stage", "about", "of", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        by_chance = 0.0
        steady = 0.0
        for stage, seconds in self.seconds.items():
            # A finished stage takes no time, and what it holds is not what was played.
            if self._wanted.plan(stage).finished:
                seconds = [0.0] * len(seconds)
                about = "is there"
            else:
                number = _between(self.counts.get(stage, []), "{:,}".format)
                about = f"{number} {self.of.get(stage, '')}".strip()
            by_chance += seconds[0]
            steady += seconds[-1]
            table.add_row(stage, _between(seconds, duration), about)
        table.add_row("all", _between([by_chance, steady], duration), "")
        return table


def _peak_memory() -> str:
    """Return the most memory that this process had, and of a GPU."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    unit = 1e6
    if sys.platform == "darwin":
        unit = 1e9
    text = f"{peak / unit:.1f} GB"
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        text += f", {torch.cuda.max_memory_allocated() / 1e9:.1f} of a GPU"
    return text


def _between(values: Collection[float], written: Callable[[float], str]) -> str:
    """Return the least and the greatest value as text, or one of them where they read alike."""
    if not values:
        return ""
    least = written(min(values))
    greatest = written(max(values))
    if least == greatest:
        return least
    return f"{least} - {greatest}"


def _unpaid(owner: Any, name: str = "engine") -> Any:
    """Return the settings with an engine that answers at once in the place of one that may be paid for."""
    if not getattr(owner, name).paid:
        return owner
    return replace(owner, **{name: RehearsedConfig()})


def _few(source: Any) -> Any:
    """Return a source or benchmark of which :data:`ROWS` rows are read at most."""
    return replace(source, limit=min(source.limit or ROWS, ROWS))
