"""Rows of ``verdicts.jsonl``, one a comparison, and of ``scores.jsonl``, one a response; and what they come to."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from judgetrain.data.config import SourceConfig
from judgetrain.data.sources import read
from judgetrain.engines.base import UNANSWERED
from judgetrain.errors import DataError
from judgetrain.judges.base import Prediction, Score, listed
from judgetrain.judges.settings import too_long_hint
from judgetrain.schema import Candidates, Comparison, Dialogue

Row = dict[str, Any]
T = TypeVar("T")

VERDICTS, SCORES = "verdicts", "scores"
"""The names of the rows of comparisons and of responses."""
_TEXTS = ("response_a", "response_b", "model_a", "model_b")
_SAID = ("verdict_ab", "verdict_ba", "score_a", "score_b", "margin")
_ASKED = ("asked", "plan", "branches")


def row_of(comparison: Comparison, prediction: Prediction | None, judge: str, failure: str | None = None) -> Row:
    """The row of a comparison, and of the prediction on it where it was judged.

    ``failure`` is why it was not; where the judge's model gave nothing at all (``too_long``, ``error``,
    ``no_content``), that is the reason. A row with a ``failure`` has no verdict. ``cost`` is that of one verdict in one
    order, as everywhere.
    """
    if prediction is not None and failure is None:
        failure = _unanswered(prediction)
    found = prediction or Prediction(comparison_id=comparison.id, method=judge)
    return {
        "id": comparison.id,
        **_shown(comparison.dialogue),
        **{name: getattr(comparison, name) for name in _TEXTS},
        "verdict": None if failure else found.verdict,
        **{name: getattr(found, name) for name in _SAID},
        "reasons": [asdict(reason) for reason in found.reasons],
        "failures": dict(sorted(found.failures.items())),
        "judge": judge,
        **{name: getattr(found, name) for name in _ASKED},
        "cost": asdict(found.cost),
        "group": comparison.group,
        "label": comparison.label,
        "failure": failure,
    }


def score_rows(
    group: Candidates, scores: Sequence[Score], judge: str, failure: str | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each response of a group.

    ``score`` is 0 to 1, None where nothing could be read; ``rank`` counts from 1 among the group's responses, the best
    first, equal scores alike. ``failure``: why the group was not judged.
    """
    known = [score.value for score in scores if score.value is not None]
    for place, response in enumerate(group.responses):
        score = scores[place] if scores else Score(value=None)
        yield {
            "id": group.id,
            **_shown(group.dialogue),
            "place": place,
            "response": response,
            "score": score.value,
            "rank": None if score.value is None else 1 + sum(other > score.value for other in known),
            "reasons": [
                {
                    **{name: getattr(reason, name) for name in ("name", "criterion", "weight", "source", "guideline")},
                    "score": reason.score_a,
                    "text": reason.text,
                    "failure": reason.failure,
                }
                for reason in score.reasons
            ],
            "failures": dict(sorted(score.failures.items())),
            "judge": judge,
            "cost": asdict(score.cost),
            "failure": failure,
        }


def _shown(dialogue: Dialogue) -> Row:
    return {"dialogue_id": dialogue.id, "messages": [asdict(message) for message in dialogue.messages]}


def reason_of(failure: object) -> str:
    """A row's ``failure`` in a word."""
    return str(failure).partition(":")[0]


def dropped(row: Mapping[str, Any]) -> str | None:
    """Why a row has no verdict or score, in a word; None where it has one."""
    if row["failure"]:
        return reason_of(row["failure"])
    unread = row["score"] is None if "score" in row else row["verdict"] == "unreadable"
    return "unreadable" if unread else None


def read_verdicts(files: Sequence[str | Path], key: str, take: Callable[[Any], T]) -> Iterator[T]:
    """What ``take`` makes of each row in files and globs of verdicts and directories of stage judge (ConfigError: no
    such file; names the ``key``; DataError: a directory without verdicts, or a row that ``take`` refuses (RowError);
    names its place)."""
    for i, name in enumerate(files):
        path = Path(name).expanduser()
        if path.is_dir():
            path = path / f"{VERDICTS}.jsonl"
            if not path.is_file():
                raise DataError(f"{key}: {path.parent} holds no verdicts.jsonl; name the files in it")
        source = SourceConfig(name=VERDICTS, type="jsonl", path=str(path))
        yield from read(source, f"{key}[{i}]", lambda row, number: take(row))


def _unanswered(prediction: Prediction) -> str | None:
    """The first reason of an unreadable verdict if its model gave no text at all; else None."""
    reasons = [reason.rpartition(":")[2] for reason in prediction.failures]
    if prediction.verdict != "unreadable" or not reasons or not UNANSWERED.issuperset(reasons):
        return None
    return {"error": "refused"}.get(reasons[0], reasons[0])


READABLE = ("A", "B", "tie", "inconsistent")
UNTRAINED = "no verdict: it keeps to no form; take recipe=untrained criteria=FILE or a tuned model, or train it"


def summary_of(
    rows: Iterable[Mapping[str, Any]], judge: str, calls: float, tokens: Mapping[str, int], spent: Mapping[str, int]
) -> dict[str, Any]:
    """Numbers of rows by verdict, and by the reason where there is none.

    ``consistency`` is the share of readable verdicts that both orders give, whatever decides between them
    (``judge.aggregation=fitted``); None where there is none. ``failures`` counts rows by their ``failure``,
    ``unreadable`` judgments by reason. ``tokens`` and ``calls`` are those of all rows, both orders; ``spent`` is what a
    paid model was sent, answers that were kept left out. Of the ``labelled`` rows ``agreed`` have the label as their
    verdict.
    """
    verdicts = Counter[str](dict.fromkeys((*READABLE, "unreadable"), 0))
    failures, unreadable = Counter[str](), Counter[str]()
    total = labelled = agreed = same = ordered = 0
    for row in rows:
        total += 1
        labelled += row["label"] is not None
        agreed += row["label"] is not None and row["label"] == row["verdict"]
        unreadable.update(row["failures"])
        if row["failure"]:
            failures[reason_of(row["failure"])] += 1
        else:
            verdicts[row["verdict"]] += 1
            shown = row["verdict"] in READABLE and row["plan"] is not None  # in one order and the other
            ordered, same = ordered + shown, same + (shown and row["verdict_ab"] == row["verdict_ba"])
    counts = {"rows": total, "labelled": labelled, "agreed": agreed, "calls": calls}
    named = {"verdicts": verdicts, "tokens": tokens, "spent": spent}
    named |= {"failures": dict(failures.most_common()), "unreadable": dict(unreadable.most_common())}
    return {"judge": judge, "consistency": same / ordered if ordered else None, **counts, **named}


def verdicts_told(summary: Mapping[str, Any]) -> Iterator[Any]:
    """The table and the lines at the end of judging."""
    rows, labelled, agreed = summary["rows"], summary["labelled"], summary["agreed"]
    names = {"A": "A is better", "B": "B is better", "inconsistent": "inconsistent: the orders differ"}
    counts = [(names.get(name, name), n) for name, n in summary["verdicts"].items()]
    if summary["consistency"] is None:  # responses that are read by themselves have no order
        counts = [(name, n) for name, n in counts if n or name != names["inconsistent"]]
    counts += [(f"not judged: {reason}", n) for reason, n in summary["failures"].items()]
    cells = ((name, str(n), f"{100 * n / rows:.1f}") for name, n in counts)
    yield table(f"Verdicts of {summary['judge']}", ("verdict", "comparisons", "%"), cells)
    if (share := summary["consistency"]) is not None:
        yield f"consistency: {100 * share:.1f}% of the readable verdicts are the same in both orders"
    if labelled:
        from scipy.stats import binomtest

        low, high = (100 * end for end in binomtest(agreed, labelled).proportion_ci(method="wilson"))
        yield f"agreement: {agreed} of {labelled} labels, {agreed / labelled:.1%} (95%: {low:.0f} to {high:.0f})"
    if unread := summary["unreadable"]:
        yield f"judgments not read: {listed(unread)}"
        if told := too_long_hint(unread) or (UNTRAINED if summary["verdicts"]["unreadable"] == rows else None):
            yield told
    if summary["calls"]:
        tokens = "{prompt} prompt and {generated} generated tokens".format(**summary["tokens"])
        yield f"cost: {summary['calls']:.0f} calls, {tokens} for {rows} comparisons"
    if summary["spent"]:
        yield f"sent to the paid model: {listed(summary['spent'])}"


def scores_told(rows: Iterable[Mapping[str, Any]], judge: str) -> Iterator[Any]:
    """The table and the lines at the end of scoring: the scores by criterion, and what could not be read."""
    scores: list[float] = []
    by_criterion: dict[str, list[float]] = {}
    unreadable, failures, total = Counter[str](), Counter[str](), 0
    for row in rows:
        total += 1
        unreadable.update(row["failures"])
        failures.update([reason_of(row["failure"])] if row["failure"] else [])
        scores += [] if row["score"] is None else [row["score"]]
        for reason in row["reasons"]:
            if reason["score"] is not None and reason["source"] == "given":
                by_criterion.setdefault(reason["name"] or reason["criterion"], []).append(reason["score"])
    found = [(name, str(len(each)), f"{fmean(each):.2f} of 5") for name, each in by_criterion.items()]
    found += [("all, weighted", str(len(scores)), f"{fmean(scores):.2f} of 1")] if scores else []
    found += [(f"not judged: {name}", str(number), "") for name, number in failures.items()]
    yield table(f"Scores of {judge}", ("criterion", "responses", "mean"), found)
    if len(scores) < total:
        yield f"{total - len(scores)} of {total} responses have no score"
    if unreadable:
        told = too_long_hint(unreadable) or ("" if scores else UNTRAINED)
        yield f"judgments not read: {listed(unreadable)}{told and f'; {told}'}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """A table of the terminal: names on the left, figures on the right."""
    from rich import box
    from rich.table import Table

    found = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for i, name in enumerate(columns):
        found.add_column(name, justify="right" if i else "left")
    for row in rows:
        found.add_row(*row)
    return found
