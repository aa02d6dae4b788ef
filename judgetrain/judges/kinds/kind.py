"""The record of a kind of judge, and the registry of all kinds.

A kind is all that the rest of the package knows of how its judges are named, checked, made and asked. To add one, write
a :class:`Kind` and name it in the ``room.yaml`` of a room, of this package or of an installed one:

    kinds:
      words: judge_words.words:KIND

Nothing else needs an edit: the factory, the checks before a run, stages ``evaluate`` and ``judge``, the server and
rewards go through :func:`kind_of`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from judgetrain import rooms
from judgetrain.artifacts.stage_run import ShardResult
from judgetrain.errors import ConfigError
from judgetrain.judges.base import Given, Judge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Prediction, as_data
from judgetrain.keys import did_you_mean
from judgetrain.schema import Comparison

if TYPE_CHECKING:
    from judgetrain.artifacts.fingerprint import ContentHashes
    from judgetrain.engines.base import Engine
    from judgetrain.engines.config import EngineConfig, ModelConfig
    from judgetrain.judges.factory import Models
    from judgetrain.judges.method import Method
    from judgetrain.judges.prompting.prompts import PromptSet
    from judgetrain.judges.settings import ModelSettings
    from judgetrain.judges.trees.schema import EvaluationTree
    from judgetrain.scorers.config import ScorerConfig
    from judgetrain.scorers.statistics import TokenScorer


@dataclass(frozen=True, kw_only=True)
class Use:
    """The use that a method's judge is checked for, before a run.

    Args:
        key: the configuration key that names the method, for messages.
        branches: the numbers of branches of ``evaluate.branches``; None: the method's own number, or one branch.
        labelled: the comparisons have labels, and a benchmark's are all there at once (stage ``evaluate``).
        alone: every comparison is judged by itself, whatever else is asked (a server).
    """

    key: str
    branches: Sequence[int] | None = None
    labelled: bool = False
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of :func:`~judgetrain.judges.factory.load_judge`, by which a caller in Python asks a judge."""

    branches: int = 1
    engine: EngineConfig | None = None
    criteria: Given = None
    model: ModelConfig | None = None
    prompts: str | Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


def load_no_other(name: str) -> Judge:
    """Refuse to load another judge, for callers whose judges have no members."""
    raise ConfigError(f"{name!r}: judges with members cannot be loaded here")


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a judge besides its options; each is loaded when it is called for.

    Args:
        engine: returns the engine of the model that the method names.
        prompts: returns the judge's prompt set.
        scorer: returns a model whose probabilities are read, given the settings of scorers.
        judge: returns another judge, given its name.
    """

    engine: Callable[[], Engine]
    prompts: Callable[[], PromptSet]
    scorer: Callable[[ScorerConfig], TokenScorer]
    judge: Callable[[str], Judge] = load_no_other


@dataclass(frozen=True, kw_only=True)
class KindResults:
    """The results that stage ``evaluate`` reads off the rows of a judge on a benchmark.

    Args:
        predictions: by the number of branches, or under 0 for a judge without branches, one a comparison.
        trees: of a judge that grows trees, by comparison the tree and None, or the trees of order AB and of order BA.
        message: what the user should know, for the log; empty where there is nothing.
        lasting: the message is also shown to whoever asks for the finished stage again.
    """

    predictions: Mapping[int, list[Prediction]]
    trees: Sequence[tuple[EvaluationTree, EvaluationTree | None]] = ()
    message: str = ""
    lasting: bool = False


def compare(judge: Judge, comparisons: Sequence[Comparison], seed: int, branches: int) -> ShardResult:
    """Return a judge's predictions on comparisons as a finished shard."""
    predictions = judge.compare_batch(comparisons, seed)
    # Whole: a shard counts what both orders cost.
    spent = sum((prediction.whole_cost for prediction in predictions), Cost())
    failures: Counter[str] = Counter()
    for prediction in predictions:
        failures.update(prediction.failures)
    return ShardResult([as_data(prediction) for prediction in predictions], len(predictions), failures, **spent.tokens)


def read_predictions(
    rows: Sequence[Mapping[str, Any]],
    comparisons: Sequence[Comparison],
    options: JudgeOptions,
    name: str,
    branches: Sequence[int],
) -> KindResults:
    """Return the predictions that :func:`compare` left."""
    return KindResults(predictions={0: [Prediction.from_row(row) for row in rows]})


@dataclass(frozen=True, kw_only=True)
class Ask:
    """The way in which stage ``evaluate`` asks a kind's judges, keeps their answers in shards and reads them.

    Args:
        rows: what the rows are, the first part of the shards' names (``trees-BENCHMARK-METHOD``).
        process: makes a shard, given the judge, comparisons, a seed and the largest number of branches. It can be
            pickled.
        read: returns the :class:`KindResults`, given a benchmark's rows, its comparisons, how the judge was asked, the
            method's name and the numbers of branches.
        orders: into how many verdicts the seconds of a comparison fall: 2, one in either order, or 1 where no order is
            shown.
        progress: for the log, behind the number of comparisons; ``{branches}`` is the largest number of branches.
    """

    rows: str = "verdicts"
    process: Callable[[Any, Sequence[Comparison], int, int], ShardResult] = compare
    read: Callable[..., KindResults] = read_predictions
    orders: int = 2
    progress: str = ""


@dataclass(frozen=True, kw_only=True)
class Forms:
    """The forms in which the methods of a kind are written, for messages about an unknown one.

    Args:
        evaluate: in ``evaluate.methods``.
        unlabelled: where comparisons without labels are judged, as in ``verdicts.judge``; empty: as in ``evaluate``.
        python: in :func:`~judgetrain.judges.factory.load_judge`; empty: as in ``evaluate``.
    """

    evaluate: str
    unlabelled: str = ""
    python: str = ""


# Defaults of a kind's functions, for kinds that have nothing to say there.


def no_check(settings: ModelSettings, method: Method, use: Use) -> None:
    """Accept every method."""


def no_options(models: Models, method: Method, branches: int) -> JudgeOptions:
    """Return the defaults, for judges that can be asked in one way only."""
    return JudgeOptions()


def no_arguments(method: Method, directory: Path | None, arguments: Arguments) -> JudgeOptions:
    """Return the defaults (ConfigError: the caller sets something)."""
    # The first one is enough for a message.
    for name in arguments.changes:
        raise ConfigError(f"{method.text!r} has no setting {name}")
    return JudgeOptions()


def name_alone(models: Models, method: Method, hashes: ContentHashes, branches: int) -> dict[str, Any]:
    """Return the kind and, but for a model's directory, the method's name, for judges that these tell apart."""
    if method.names_files:
        # The content alone: a directory may be moved, or written anew under its name.
        return {"kind": method.kind, "name": None, "files": hashes.of(method.target)}
    name = None
    # A directory's name is no part of it: its model's content is.
    if not method.is_directory:
        name = method.text
    return {"kind": method.kind, "name": name}


def no_prompts(method: Method, options: JudgeOptions, directory: Path | None, others: str | Path) -> PromptSet:
    """Raise ConfigError, for judges that are not prompted."""
    raise ConfigError(f"{method.text!r} is not prompted, so that it has no prompt set")


def never(settings: ModelSettings, method: Method) -> bool:
    """Return False."""
    return False


@dataclass(frozen=True, kw_only=True)
class Target:
    """What stands behind the colon of a kind's methods, as the model of ``pairwise:base``; by default any text.

    Args:
        names: the targets that there are, where these are few.
        model: it is a model that generates text, on which a run then depends.
        trained: such a model, in a directory, must be a trained judge: it has ``prompts.yaml`` and ``judge.json``.
        learns: it says how many labelled pairs the method learns from, ``NAME:PAIRS`` or ``NAME:PAIRS:MODEL``.
        files: it is a path whose content a run depends on, of a model that generates no text.
        panel: it names an entry of the section of the kind's name, whose members are judges
            (:class:`~judgetrain.judges.panels_config.PanelsConfig`).
    """

    names: tuple[str, ...] = ()
    model: bool = False
    trained: bool = False
    learns: bool = False
    files: bool = False
    panel: bool = False


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a kind's judges are set up to be asked, for kinds that can be asked in more than one way.

    Args:
        settings: the fields of :class:`~judgetrain.judges.settings.ModelSettings` that are read. The others are no part
            of the fingerprint where no method reads them.
        options: returns how the judge is asked, by a run's settings.
        arguments: returns how it is asked by a caller in Python, given the judge's directory if it is a trained one.
        prompts: returns the judge's prompt set, given its directory, and the set for models that bring none.
        identity: returns, by name, what its verdicts depend on besides comparisons, seed, model and engine: part of the
            fingerprint by which an evaluation takes over what an earlier one asked.
    """

    settings: tuple[str, ...] = ()
    options: Callable[[Models, Method, int], JudgeOptions] = no_options
    arguments: Callable[[Method, Path | None, Arguments], JudgeOptions] = no_arguments
    prompts: Callable[[Method, JudgeOptions, Path | None, str | Path], PromptSet] = no_prompts
    identity: Callable[[Models, Method, ContentHashes, int], Mapping[str, Any]] = name_alone


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of judge. Of a simple one ``name``, ``forms``, ``check`` and ``build`` are all that is given.

    Args:
        name: in ``room.yaml``, and before the colon of its methods' names (``pairwise:base``). Two kinds have no
            prefix: :data:`~judgetrain.judges.method.BRANCHING`, and
            :data:`~judgetrain.judges.method.BASELINE`, which takes every name that no other kind has.
        forms: how its methods are written, for messages.
        target: what stands behind the colon.
        check: refuses, before anything runs, what the judge cannot do (ConfigError), given the stage's settings.
        build: makes the judge; None: there is none by itself, stage ``evaluate`` runs its methods.
        setup: how its judges are set up to be asked.
        ask: how stage ``evaluate`` asks it; None: it costs nothing, is asked at once about a whole benchmark, and
            nothing is kept.
        run: in place of ``ask``, what stage ``evaluate`` calls with the method and the evaluation
            (:class:`judgetrain.evaluate.runners.base.Evaluation`): yields each benchmark with the method's results.
        asked_as: the method whose judge such a method asks, with ``{}`` for its target: ``pairwise:{}``.
        scores: returns whether the judge gives a single response a score, as the settings say it is asked.
        rates: its judges have ``rate(comparisons, seed)``, which rates each comparison's first response.
        criteria: its judges grow a branch for each criterion: criteria may be given, ``+options`` and ``@BRANCHES`` may
            follow a method's name, and ``evaluate.branches`` counts.
        published: its verdicts are nothing that a user could have without training: somebody else's, read from a file,
            or those of a reader who knows the truth.
    """

    name: str
    forms: Forms
    target: Target = Target()
    check: Callable[[Any, Method, Use], None] = no_check
    build: Callable[[Method, JudgeOptions, Parts], Judge] | None = None
    setup: Setup = Setup()
    ask: Ask | None = Ask()
    run: Callable[[Method, Any], Iterator[Any]] | None = None
    asked_as: str = "{}"
    scores: Callable[[ModelSettings, Method], bool] = never
    rates: bool = False
    criteria: bool = False
    published: bool = False


def later(code: str) -> Callable[..., Any]:
    """Return a function that calls ``module:function``, which is imported at the first call.

    A kind whose code is heavy to import is a light record by it: parsing a method's name reads the record alone.
    """

    # By position alone, as all functions of a kind are called.
    def call(*arguments: Any) -> Any:
        return resolve_name(code)(*arguments)

    return call


def find_kind(name: str) -> Kind | None:
    """Return the kind of this name, or None."""
    # Resolved at use, since the modules of kinds import this one.
    code = rooms.kinds().get(name)
    if code is None:
        return None
    # A room's file names the record as "module:KIND".
    kind: Kind = resolve_name(code)
    return kind


def kinds() -> list[Kind]:
    """Return all kinds, the core's first."""
    all_kinds = []
    for name in rooms.kinds():
        kind = find_kind(name)
        if kind is not None:
            all_kinds.append(kind)
    return all_kinds


def kind_of(method: Method, use: Use | None = None) -> Kind:
    """Return the kind of a method (ConfigError: there is none); ``use``: where it stands; None: in Python."""
    kind = find_kind(method.kind)
    if kind is None:
        raise unknown(method, use)
    return kind


def judge_kind(method: Method, use: Use | None = None) -> Kind:
    """Return the kind of a method that has a judge by itself (ConfigError: it has none)."""
    kind = kind_of(method, use)
    if kind.build is None:
        raise unknown(method, use)
    return kind


def unknown(method: Method, use: Use | None = None) -> ConfigError:
    """Return the error for a method that is no judge there, with the forms that are and what may have been meant."""
    # Kinds without a judge of their own are run by stage evaluate alone, on labelled comparisons.
    built = [kind.forms for kind in kinds() if kind.build is not None]
    # A caller in Python has no configuration key to be named.
    if use is None:
        forms = ", ".join(form.python or form.evaluate for form in built)
        return ConfigError(f"{method.text!r} is no judge; there are {forms}{meant(method.text)}")
    # Stage evaluate also runs methods that have no judge of their own, and so names all forms.
    near = meant(method.text)
    if use.labelled:
        forms = ", ".join(kind.forms.evaluate for kind in kinds())
        return ConfigError(f"{use.key}: {method.text!r} is none of {forms}{near}")
    forms = ", ".join(form.unlabelled or form.evaluate for form in built)
    return ConfigError(f"{use.key}={method.text!r}: no judge of comparisons without labels; allowed are {forms}{near}")


def meant(text: str) -> str:
    """Return the end of a message about an unknown method: the likely name, or what may follow a judge's name."""
    from judgetrain.judges.method import OPTIONS, TARGETS

    head, plus, _ = text.partition("+")
    name = head.partition("@")[0]
    if plus and name in TARGETS:
        # The name is right, so that what stands behind it is not.
        options = ", ".join(f"+{option}" for option in OPTIONS)
        return f"; after a judge's name may stand {options}, and last @BRANCHES"
    names = list(TARGETS)
    for kind in kinds():
        names.extend(kind.target.names)
    return did_you_mean(name, names)
