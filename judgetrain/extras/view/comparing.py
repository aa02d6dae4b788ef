"""What two judges said of the same comparisons, read from an evaluation or from two runs of stage judge."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import read_json
from judgetrain.artifacts.integrity import MANIFEST, checked
from judgetrain.artifacts.shards import read_rows, shards_of
from judgetrain.data.votes import repeats
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.rows import MethodKey
from judgetrain.judges.kinds.aggregation import used
from judgetrain.judges.kinds.tree_reasons import reasons_of
from judgetrain.judges.method import JUDGE_STAGES, asks_judge_of
from judgetrain.judges.predictions import Reason
from judgetrain.judges.trees.schema import trees_of
from judgetrain.judging.rows import VERDICTS, rubric_of
from judgetrain.schema import Comparison, Verdict

PREDICTIONS = "predictions.parquet"
INCONSISTENT = "inconsistent"
UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What one judge said of one comparison.

    Args:
        verdict: of both orders: A, B, tie, inconsistent or unreadable.
        verdict_ab: of order AB; None: it could not be read.
        verdict_ba: of order BA, likewise, in the comparison's own order.
        margin: how far A is ahead; None: there is no number.
        reasons: by criterion, guideline and order; empty for a judge that gives none.
    """

    verdict: str
    verdict_ab: str | None
    verdict_ba: str | None
    margin: float | None
    reasons: Sequence[Mapping[str, Any]] = ()

    @property
    def criteria(self) -> list[str]:
        """Return the names of the criteria that were judged by, in their order."""
        names = (reason["name"] or reason["criterion"].partition(":")[0] for reason in self.reasons)
        return list(dict.fromkeys(name for name in names if name))


@dataclass(frozen=True, kw_only=True)
class Item:
    """A comparison with two judges' opinions of it.

    Args:
        comparison: with its label, if it has one.
        left: the first judge's opinion.
        right: the second one's.
    """

    comparison: Comparison
    left: Opinion
    right: Opinion

    @property
    def differ(self) -> bool:
        """Return whether the judges give different verdicts."""
        return self.left.verdict != self.right.verdict

    @property
    def better(self) -> str:
        """Return whether the response that the label names is the longer or the shorter one; empty: neither."""
        label = self.comparison.label
        longer = self.comparison.longer
        if label not in ("A", "B") or longer == "tie":
            return ""
        return "longer" if label == longer else "shorter"

    @property
    def characters(self) -> int:
        """Return the number of characters of both responses."""
        return len(self.comparison.response_a) + len(self.comparison.response_b)

    @property
    def criteria(self) -> list[str]:
        """Return the names of the criteria that either judge went by."""
        return list(dict.fromkeys([*self.left.criteria, *self.right.criteria]))


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Two judges and what they said.

    Args:
        title: of what was judged.
        left: the first judge's name.
        right: the second one's.
        items: a comparison each.
        total: how many comparisons there are; the page may have fewer.
    """

    title: str
    left: str
    right: str
    items: Sequence[Item] = field(default=())
    total: int = 0


def place_of(directory: Path) -> Path:
    """Return the finished evaluation, or the run of stage judge, that a directory is or holds.

    Args:
        directory: an artifact's, or a run's ``output_dir``, of which the newest evaluation is taken.

    Raises:
        ConfigError: there is none.
    """
    if not directory.is_dir():
        raise ConfigError(f"view.of={str(directory)!r}: there is no such directory; give a run's output_dir")
    if (directory / PREDICTIONS).is_file() or (directory / f"{VERDICTS}.jsonl").is_file():
        return directory
    finished = [path.parent for path in directory.glob(f"artifacts/evaluate/*/{MANIFEST}")]
    evaluations = [path for path in finished if (path / PREDICTIONS).is_file()]
    if finished and not evaluations:
        report = max(finished, key=lambda path: (path / MANIFEST).stat().st_mtime) / "report.html"
        raise ConfigError(
            f"view.of={str(directory)!r}: its evaluations are of single responses, and two judges are shown side by "
            f"side on comparisons; {report} has the figures, and stage=judge writes each response's scores"
        )
    if not evaluations:
        raise ConfigError(
            f"view.of={str(directory)!r}: it holds no finished evaluation of comparisons (artifacts/evaluate/*/"
            f"{PREDICTIONS}) and is no run of stage judge ({VERDICTS}.jsonl): run stage=evaluate first"
        )
    return max(evaluations, key=lambda path: (path / MANIFEST).stat().st_mtime)


def of_evaluation(directory: Path, judges: Sequence[str], benchmark: str | None, most: int) -> Pairing:
    """Return two judges of an evaluation on one of its benchmarks.

    Args:
        directory: of the evaluation.
        judges: their names; empty: the last trained judge, and the best of the others that grow trees.
        benchmark: its name; None: the first one.
        most: comparisons at most.

    Raises:
        ConfigError: there are no such judges, no such benchmark, or no texts.
        DataError: the artifact is damaged.
    """
    import pyarrow.parquet as parquet

    checked(directory)
    rows = parquet.read_table(directory / PREDICTIONS).to_pylist()
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    if benchmark is None:
        benchmark = benchmarks[0]
    if benchmark not in benchmarks:
        raise ConfigError(f"view.benchmark={benchmark!r}: the evaluation has {', '.join(benchmarks)}")

    by_key: dict[MethodKey, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        if row["benchmark"] == benchmark:
            by_key.setdefault(MethodKey(row["method"], row["branches"]), {})[row["comparison_id"]] = row
    methods = sorted({key.method for key in by_key})
    # Methods without branches, such as ``longer``, have no trees.
    methods_with_trees = [name for name in methods if shards_of(directory, _trees_name(benchmark, name))]
    if not methods_with_trees:
        raise ConfigError(
            f"view.of={str(directory)!r}: the texts of {benchmark} stand in the trees of branching judges, and none "
            "was evaluated on it: add one to evaluate.methods"
        )
    first, second = _chosen(by_key, judges, methods_with_trees, benchmark)

    # Trees are most of an evaluation: a method's are read once, however many numbers of branches it was asked with.
    trees: dict[str, dict[str, list[Any]]] = {first.method: {}, second.method: {}}
    for name in trees:
        if name in methods_with_trees:
            trees[name] = _trees(directory, benchmark, name)
    with_texts = trees[first.method] or trees[second.method]
    if not with_texts:
        with_texts = _trees(directory, benchmark, methods_with_trees[0])
    comparisons = {name: of_comparison[0].comparison for name, of_comparison in with_texts.items()}
    items = []
    for name, comparison in comparisons.items():
        of_first = by_key[first].get(name)
        of_second = by_key[second].get(name)
        # Rows that an extra made of the benchmark's, as attacked ones, have names of their own.
        if of_first is None or of_second is None:
            continue
        labelled = replace(comparison, label=of_first["label"])
        left = _opinion(of_first, trees[first.method].get(name, ()), first.branches)
        right = _opinion(of_second, trees[second.method].get(name, ()), second.branches)
        items.append(Item(comparison=labelled, left=left, right=right))
    recipe = (read_json(directory / MANIFEST) or {}).get("recipe")
    title = f"{benchmark}, recipe {recipe}"
    return Pairing(title=title, left=str(first), right=str(second), items=items[:most], total=len(items))


def _chosen(
    by_key: Mapping[MethodKey, Mapping[str, Mapping[str, Any]]],
    judges: Sequence[str],
    methods_with_trees: Collection[str],
    benchmark: str,
) -> tuple[MethodKey, MethodKey]:
    """Return the two judges that are named, or those to look at first.

    Args:
        by_key: the predictions of each judge.
        judges: their names; empty: none is named.
        methods_with_trees: those that branch.
        benchmark: its name, for messages.
    """
    names = {str(key): key for key in by_key}
    # Of a method without a number its largest one.
    for key in sorted(by_key, key=lambda key: key.branches):
        names[key.method] = key
    if judges:
        if len(judges) != 2:
            raise ConfigError(f"view.judges={[*judges]}: name two judges, as [dpo@3,initial@1]")
        for name in judges:
            if name not in names:
                raise ConfigError(
                    f"view.judges: {name!r} was not evaluated on {benchmark}; there are {', '.join(names)}"
                )
        return names[judges[0]], names[judges[1]]

    def agreement(key: MethodKey) -> float:
        right = [row["verdict_ab"] == row["verdict_ba"] == row["label"] for row in by_key[key].values()]
        return sum(right) / len(right)

    with_trees = [key for key in by_key if key.method in methods_with_trees]
    ordered = sorted(with_trees, key=agreement, reverse=True)
    trained = [key for stage in reversed(JUDGE_STAGES) for key in ordered if asks_judge_of(key.method, stage)]
    first = next(iter([*trained, *ordered]))
    others = [key for key in ordered if key.method != first.method] or [key for key in by_key if key != first]
    if not others:
        raise ConfigError(f"view: {first} is the only judge of the evaluation; add another one to evaluate.methods")
    return first, others[0]


def _trees_name(benchmark: str, method: str) -> str:
    """Return the name of the files of a method's trees."""
    return f"trees-{benchmark}-{method}"


def _trees(directory: Path, benchmark: str, method: str) -> dict[str, list[Any]]:
    """Return a method's trees by the comparison's id: one of both orders, or one for each."""
    trees: dict[str, list[Any]] = {}
    for row in read_rows(directory, _trees_name(benchmark, method)):
        of_row = trees_of(row)
        trees[of_row[0].comparison.id] = of_row
    return trees


def _opinion(row: Mapping[str, Any], trees: Sequence[Any], branches: int) -> Opinion:
    """Return a judge's opinion by its row of predictions and its trees."""
    reasons: list[Reason] = []
    for tree in trees:
        reasons.extend(reasons_of(used(tree, branches)))
    first = row["summed"] or row["verdict_ab"]
    second = row["summed"] or row["verdict_ba"]
    return Opinion(
        verdict=_of_both(first, second),
        verdict_ab=row["verdict_ab"],
        verdict_ba=row["verdict_ba"],
        margin=row["margin"],
        reasons=[asdict(reason) for reason in reasons],
    )


def _of_both(first: str | None, second: str | None) -> str:
    """Return the verdict over both orders."""
    if first is None or second is None:
        return UNREADABLE
    return first if first == second else INCONSISTENT


def of_verdicts(directory: Path, beside: Path, most: int) -> Pairing:
    """Return the judges of two runs of stage judge on the comparisons that both judged, matched by their texts.

    Where several rows label one pair of responses, the first has the majority of their labels and the others have none,
    as in stage judge.

    Raises:
        ConfigError: one of them holds no verdicts, or they have no comparison in common.
    """
    left = list(_verdicts_in(directory))
    right_by_text = {_texts(row): row for row in _verdicts_in(beside)}
    items = []
    for row, comparison in zip(left, _with_labels_that_count(left), strict=True):
        other = right_by_text.get(_texts(row))
        if other is not None:
            items.append(Item(comparison=comparison, left=_stored(row), right=_stored(other)))
    if not items:
        raise ConfigError(f"view: {directory} and {beside} have no comparison in common, by their texts")
    names = (left[0]["judge"], next(iter(right_by_text.values()))["judge"])
    title = f"comparisons of {directory.name}"
    return Pairing(title=title, left=names[0], right=names[1], items=items[:most], total=len(items))


def _with_labels_that_count(rows: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """Return the comparisons of rows, each with the label that counts."""
    comparisons = [Comparison.from_row(_comparison_row(row)) for row in rows]
    asked = [replace(comparison, rubric=rubric_of(row)) for comparison, row in zip(comparisons, rows, strict=True)]
    votes: list[list[Verdict]] = []
    for comparison in comparisons:
        votes.append([comparison.label] if comparison.label is not None else [])
    for pair in repeats(asked, votes):
        first, *others = pair.places
        comparisons[first] = replace(comparisons[first], label=pair.label)
        for place in others:
            comparisons[place] = replace(comparisons[place], label=None)
    return comparisons


def _verdicts_in(directory: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of ``verdicts.jsonl`` of a run of stage judge."""
    if not (directory / f"{VERDICTS}.jsonl").is_file():
        raise ConfigError(f"view: {directory} holds no {VERDICTS}.jsonl; give the directory of a run of stage judge")
    yield from read_rows(directory, VERDICTS)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts by which a row is matched."""
    messages = "\0".join(message["content"] for message in row["messages"])
    return messages, row["response_a"], row["response_b"]


def _comparison_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a comparison of a row of verdicts."""
    dialogue = {
        "id": row["dialogue_id"],
        "source": "",
        "messages": row["messages"],
        "reference": None,
        "category": None,
    }
    names = ("id", "response_a", "response_b", "model_a", "model_b", "label", "group")
    return {**{name: row[name] for name in names}, "dialogue": dialogue}


def _stored(row: Mapping[str, Any]) -> Opinion:
    """Return the opinion of a row of verdicts."""
    return Opinion(
        verdict=row["verdict"] or UNREADABLE,
        verdict_ab=row["verdict_ab"],
        verdict_ba=row["verdict_ba"],
        margin=row["margin"],
        reasons=row["reasons"],
    )
