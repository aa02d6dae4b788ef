"""Rows of ``verdicts.jsonl``, one a comparison, and of ``scores.jsonl``, one a response, and their summaries."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, TypeVar

from judgetrain.amounts import agree, amount
from judgetrain.data.config import SourceConfig
from judgetrain.data.intervals import FEWEST, bootstrap_interval
from judgetrain.data.labelled import OVERALL, Scale
from judgetrain.data.prompt_keys import PromptKey, conversation_starts, prompt_key
from judgetrain.data.sources import read
from judgetrain.engines.base import UNANSWERED
from judgetrain.errors import DataError
from judgetrain.judges.predictions import Prediction, Reason, Score, listed
from judgetrain.judges.settings import unread_hint
from judgetrain.judging.votes import THEIR_OWN, Labels
from judgetrain.rubrics import Criterion, Rubric, criterion_key, is_above, label_of_criterion
from judgetrain.schema import Candidates, Comparison, Dialogue, Verdict

Row = dict[str, Any]
T = TypeVar("T")

RESAMPLES = 2000
"""Resamples of the interval of agreement, as many as in stage evaluate by default."""

# The names of the rows of comparisons and of responses.
VERDICTS = "verdicts"
SCORES = "scores"


def row_of(comparison: Comparison, prediction: Prediction | None, judge: str, failure: str | None = None) -> Row:
    """Return the row of a comparison, with the prediction on it where it was judged.

    A row with a ``failure`` has no verdict. ``cost`` is that of one verdict in one order, as everywhere.

    Args:
        comparison: what was to be judged.
        prediction: on it; None: it was not judged.
        judge: the judge's name.
        failure: why it was not judged. Where the judge's model gave nothing at all (``too_long``, ``error``,
            ``no_content``), that is the reason.
    """
    if prediction is None:
        # Rows have the same columns, judged or not, for tools that read them as a table.
        prediction = Prediction(comparison_id=comparison.id, method=judge)
    elif failure is None:
        failure = _unanswered(prediction)
    # To whoever counts verdicts null is none; ``failure`` says why.
    verdict = None
    if not failure:
        verdict = prediction.verdict
    return {
        "id": comparison.id,
        **_dialogue_row(comparison.dialogue),
        "response_a": comparison.response_a,
        "response_b": comparison.response_b,
        "model_a": comparison.model_a,
        "model_b": comparison.model_b,
        "verdict": verdict,
        "verdict_ab": prediction.verdict_ab,
        "verdict_ba": prediction.verdict_ba,
        "decision": prediction.decision,
        "score_a": prediction.score_a,
        "score_b": prediction.score_b,
        "margin": prediction.margin,
        "share_read": prediction.share_read,
        "reasons": [asdict(reason) for reason in prediction.reasons],
        "not_judged": list(prediction.not_judged),
        "failures": dict(sorted(prediction.failures.items())),
        "judge": judge,
        "asked": prediction.asked,
        "plan": prediction.plan,
        "branches": prediction.branches,
        "cost": asdict(prediction.cost),
        "group": comparison.group,
        "label": comparison.label,
        "failure": failure,
    }


def score_rows(
    group: Candidates,
    scores: Sequence[Score],
    judge: str,
    failure: str | None = None,
    labels: Mapping[str, float | None] | None = None,
) -> Iterator[Row]:
    """Yield a row for each response of a group.

    ``score`` is 0 to 1, None where nothing could be read; ``rank`` counts from 1 among the group's responses, the best
    first, equal scores alike.

    Args:
        group: the responses.
        scores: of the responses; empty: they were not judged.
        judge: the judge's name.
        failure: why the group was not judged.
        labels: people's labels of the only response, 0 to 1, by criterion; of the response as a whole under
            :data:`~judgetrain.data.labelled.OVERALL`. None: no row of the source has any, and rows have no columns
            ``label`` and ``labels`` (by criterion, each beside the judge's score by it).
    """
    # Responses without a score have no rank, and count in no other's.
    values = [score.value for score in scores if score.value is not None]
    for place, response in enumerate(group.responses):
        score = Score(value=None)
        if scores:
            score = scores[place]
        rank = None
        if score.value is not None:
            rank = 1 + sum(is_above(value, score.value) for value in values)
        yield {
            "id": group.id,
            **_dialogue_row(group.dialogue),
            "place": place,
            "response": response,
            "score": score.value,
            "rank": rank,
            "decision": score.decision,
            "passes": score.passes,
            "passes_from": score.passes_from,
            **_label_columns(labels, score),
            "reasons": [_score_reason(reason) for reason in score.reasons],
            "failures": dict(sorted(score.failures.items())),
            "judge": judge,
            "cost": asdict(score.cost),
            "failure": failure,
        }


def _label_columns(labels: Mapping[str, float | None] | None, score: Score) -> Row:
    """Return the columns of a response's labels."""
    if labels is None:
        return {}
    by_criterion = {}
    for name, label in labels.items():
        if name != OVERALL:
            by_criterion[name] = {"label": label, "score": score.by_label(name)}
    return {"label": labels.get(OVERALL), "labels": by_criterion}


def _score_reason(reason: Reason) -> Row:
    """Return a reason of a single response's score, which is response A to its judge."""
    return {
        "name": reason.name,
        "criterion": reason.criterion,
        "weight": reason.weight,
        "source": reason.source,
        "guideline": reason.guideline,
        "score": reason.score_a,
        "text": reason.text,
        "failure": reason.failure,
    }


def _dialogue_row(dialogue: Dialogue) -> Row:
    """Return the columns of a dialogue."""
    return {"dialogue_id": dialogue.id, "messages": [asdict(message) for message in dialogue.messages]}


def rubric_of(row: Mapping[str, Any]) -> Rubric | None:
    """Return the criteria that were given for a row, their texts alone; None where there are none, or it has no reason.

    Labels of one pair by other criteria are about something else.
    """
    given = {reason["criterion"] for reason in row["reasons"] if reason.get("source") == "given"}
    if not given:
        return None
    if all(reason.get("source") == "given" for reason in row["reasons"]):
        # A judge that stops early has not judged by all that it was given.
        given.update(row.get("not_judged", ()))
    # Numbered, since a rubric refuses two names that differ in case alone.
    criteria = [Criterion(text=text, name=str(number)) for number, text in enumerate(sorted(given))]
    return Rubric(tuple(criteria))


def reason_of(failure: object) -> str:
    """Return a row's ``failure`` in a word."""
    return str(failure).partition(":")[0]


def dropped(row: Mapping[str, Any]) -> str | None:
    """Return why a row has no verdict or score, in a word; None where it has one."""
    if row["failure"]:
        return reason_of(row["failure"])
    # A row of single responses has a score, which is null where nothing could be read.
    if "score" in row:
        is_unreadable = row["score"] is None
    else:
        is_unreadable = row["verdict"] == "unreadable"
    if is_unreadable:
        return "unreadable"
    return None


def read_verdicts(files: Sequence[str | Path], key: str, take: Callable[[Any], T]) -> Iterator[T]:
    """Yield the result of ``take`` for each row of verdicts.

    Args:
        files: files and globs of verdicts, and directories of stage judge.
        key: the configuration key that names them, for messages.
        take: called with a row; refuses one by a RowError.

    Raises:
        ConfigError: no such file; names the key.
        DataError: a directory without verdicts, or a row that is refused; names its place.
    """
    for place, name in enumerate(files):
        path = Path(name).expanduser()
        if path.is_dir():
            path = path / f"{VERDICTS}.jsonl"
            if not path.is_file():
                raise DataError(f"{key}: {path.parent} holds no verdicts.jsonl; name the files in it")
        # The reader of sources knows globs and names the line of a bad row.
        source = SourceConfig(name=VERDICTS, type="jsonl", path=str(path))
        yield from read(source, f"{key}[{place}]", lambda row, number: take(row))


def _unanswered(prediction: Prediction) -> str | None:
    """Return the first reason of an unreadable verdict if its model gave no text at all; else None."""
    reasons = [reason.rpartition(":")[2] for reason in prediction.failures]
    if prediction.verdict != "unreadable" or not reasons or not UNANSWERED.issuperset(reasons):
        return None
    # In a table of reasons "error" would read like one of this program's.
    if reasons[0] == "error":
        return "refused"
    return reasons[0]


# In the order of the table.
READABLE = ("A", "B", "tie", "inconsistent")
"""The verdicts of rows whose both orders could be read."""
UNTRAINED = "no verdict: it keeps to no form; take recipe=untrained criteria=FILE or a tuned model, or train it"


@dataclass(frozen=True, kw_only=True)
class JudgingCost:
    """The cost of judging all rows, in both orders.

    Args:
        calls: requests to the judge's model.
        tokens: by kind.
        spent: what a paid model was sent, answers that were kept left out.
    """

    calls: float
    tokens: Mapping[str, int]
    spent: Mapping[str, int]


def summary_of(
    rows: Iterable[Mapping[str, Any]], judge: str, cost: JudgingCost, labels: Labels = THEIR_OWN
) -> dict[str, Any]:
    """Return the numbers of rows by verdict, and by the reason where there is none.

    ``consistency`` is the share of readable verdicts that both orders give, whatever decides between them
    (``judge.aggregation=fitted``); None where there is none. ``failures`` counts rows by their ``failure``,
    ``unreadable`` judgments by reason. ``agreement_ci`` is the 95% interval of the agreement over prompts, of which
    ``labelled_prompts`` have labels; None where they are too few. ``partly_read`` are comparisons without a verdict of
    which some of the given criteria were read (``judge.least_read``), ``stopped`` those that were settled before all
    criteria were judged (``judge.early_stop``). Of the ``labelled`` rows ``agreed`` have the
    label as their verdict, and the label of ``labelled_ties`` is a tie; ``labelled_differently`` are rows on pairs of
    responses that have several labels.

    Args:
        rows: of ``verdicts.jsonl``.
        judge: the judge's name.
        cost: of all rows.
        labels: those that count in place of the rows' own, where several rows label one pair of responses.
    """
    counts = _VerdictCounts()
    for row in rows:
        counts.add(row, labels.by_id.get(row.get("id", ""), row["label"]))
    return {
        "judge": judge,
        "consistency": counts.consistency,
        "rows": counts.total,
        "labelled": len(counts.agreed),
        "agreed": sum(counts.agreed),
        "labelled_ties": counts.labelled_ties,
        "labelled_differently": labels.differing,
        **_agreement(counts.agreed, counts.prompts),
        "calls": cost.calls,
        "verdicts": counts.verdicts,
        "tokens": cost.tokens,
        "spent": cost.spent,
        "failures": dict(counts.failures.most_common()),
        "partly_read": counts.partly_read,
        "stopped": counts.stopped,
        "unreadable": dict(counts.unreadable.most_common()),
        "decisions": counts.deciding.summary,
    }


def _no_verdicts() -> Counter[str]:
    """Return counts that name all verdicts, also those that no row will have."""
    return Counter(dict.fromkeys((*READABLE, "unreadable"), 0))


@dataclass
class DecisionCounts:
    """Counts how many rows a judge decides by its thresholds, and how many of those are wrong.

    Args:
        decided: rows that are decided.
        undecided: rows that are not.
        labelled: decided rows with a label.
        wrong: those of them that do not have it as their answer.
    """

    decided: int = 0
    undecided: int = 0
    labelled: int = 0
    wrong: int = 0

    def add(self, row: Mapping[str, Any], right: bool | None) -> None:
        """Count a row; ``right``: whether its answer is the label, None without one."""
        decision = row.get("decision")
        if decision == "undecided":
            self.undecided += 1
        if decision != "decided":
            return
        self.decided += 1
        if right is not None:
            self.labelled += 1
            self.wrong += not right

    @property
    def summary(self) -> dict[str, int] | None:
        """Return the counts; None where the judge has no thresholds."""
        if not self.decided and not self.undecided:
            return None
        return asdict(self)


@dataclass
class _VerdictCounts:
    """Counts rows of comparisons, for :func:`summary_of`.

    Args:
        total: all rows.
        verdicts: rows by verdict.
        failures: rows that were not judged, by reason.
        unreadable: judgments that could not be read, by reason.
        agreed: of each row with a label, whether it is the verdict.
        prompts: of these rows.
        labelled_ties: those of these rows whose label is a tie.
        in_both_orders: rows whose verdict comes from both orders.
        consistent: those of them of which both orders say the same.
        partly_read: comparisons without a verdict of which some criteria were read.
        stopped: comparisons that were settled before all criteria were judged.
        deciding: what was decided.
    """

    total: int = 0
    verdicts: Counter[str] = field(default_factory=_no_verdicts)
    failures: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    agreed: list[bool] = field(default_factory=list)
    prompts: list[PromptKey] = field(default_factory=list)
    labelled_ties: int = 0
    in_both_orders: int = 0
    consistent: int = 0
    partly_read: int = 0
    stopped: int = 0
    deciding: DecisionCounts = field(default_factory=DecisionCounts)

    def add(self, row: Mapping[str, Any], label: Verdict | None) -> None:
        """Count a row, whose label is the one that counts; None: it counts as one without."""
        self.total += 1
        self.unreadable.update(row["failures"])
        if label is not None:
            # A row that was not judged agrees with no label: leaving it out would flatter a judge that fails often.
            right = label == row["verdict"]
            self.agreed.append(right)
            self.labelled_ties += label == "tie"
            self.deciding.add(row, right)
            # A row that does not tell its prompt counts as one of its own.
            self.prompts.append(prompt_key(row) or ("row", str(self.total)))
        else:
            self.deciding.add(row, None)
        if row["failure"]:
            self.failures[reason_of(row["failure"])] += 1
            return
        self.verdicts[row["verdict"]] += 1
        self.partly_read += row["verdict"] == "unreadable" and bool(row.get("share_read"))
        # Rows of older versions do not tell.
        self.stopped += bool(row.get("not_judged"))
        # Without a plan no order was shown.
        if row["verdict"] in READABLE and row["plan"] is not None:
            self.in_both_orders += 1
            self.consistent += row["verdict_ab"] == row["verdict_ba"]

    @property
    def consistency(self) -> float | None:
        """Return the share of verdicts from both orders of which both say the same; None where there is none."""
        if not self.in_both_orders:
            return None
        return self.consistent / self.in_both_orders


def decision_lines(decisions: Mapping[str, int] | None) -> Iterator[str]:
    """Yield the line on what was decided, made of :attr:`DecisionCounts.summary`; none for None."""
    if decisions is None:
        return
    total = decisions["decided"] + decisions["undecided"]
    line = f"decided: {decisions['decided']} of {total} ({decisions['decided'] / total:.1%}); the others are undecided"
    if decisions["labelled"]:
        share = decisions["wrong"] / decisions["labelled"]
        line += f"; {decisions['wrong']} of {decisions['labelled']} decided labels are missed ({share:.1%})"
    yield line


def _agreement(agreed: Sequence[bool], prompts: Sequence[PromptKey]) -> dict[str, Any]:
    """Return the interval of the agreement, as stage evaluate computes it, and the number of labelled prompts."""
    # Rows on one prompt, as several annotators' on one comparison, say less than as many prompts.
    by_prompt = conversation_starts(prompts)
    interval = None
    if agreed:
        # With the same draws each time, so that a summary that is written again says the same.
        interval = bootstrap_interval(agreed, RESAMPLES, 0, by_prompt)
    return {"agreement_ci": interval, "labelled_prompts": len(set(by_prompt))}


CHANCE = 0.5
"""The share of labels that a coin agrees with, of those that name a side."""
_LONG_NAMES = {"A": "A is better", "B": "B is better", "inconsistent": "inconsistent: the orders differ"}


def verdict_report(summary: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the table and the lines at the end of judging, made of :func:`summary_of`."""
    rows = summary["rows"]
    cells = []
    for name, count in summary["verdicts"].items():
        # Responses that are read by themselves have no order that could differ.
        if name == "inconsistent" and summary["consistency"] is None and count == 0:
            continue
        cells.append((_LONG_NAMES.get(name, name), str(count), f"{100 * count / rows:.1f}"))
    for reason, count in summary["failures"].items():
        cells.append((f"not judged: {reason}", str(count), f"{100 * count / rows:.1f}"))
    yield table(f"Verdicts of {summary['judge']}", ("verdict", "comparisons", "%"), cells)

    if summary["consistency"] is not None:
        share = 100 * summary["consistency"]
        yield f"consistency: {share:.1f}% of the readable verdicts are the same in both orders"
    if summary.get("stopped"):
        yield (
            f"settled early: {summary['stopped']} of {amount(rows, 'comparison')} before all of their criteria "
            "were judged: "
            "no score could have changed the verdict (judge.early_stop=false judges all)"
        )
    if summary["labelled"]:
        yield _agreement_line(summary)
    yield from decision_lines(summary["decisions"])
    if summary["unreadable"]:
        yield f"judgments not read: {listed(summary['unreadable'])}"
        hint = unread_hint(summary["unreadable"])
        # One hint at most, of the likeliest cause first: the format, then criteria that were missed, then an untrained
        # model.
        if hint is None and summary["partly_read"]:
            hint = (
                f"{amount(summary['partly_read'], 'comparison')} {agree(summary['partly_read'], 'have')} no "
                "verdict since some of the given criteria were not read; "
                "judge.least_read=0.9 takes one from 0.9 of their weight"
            )
        if hint is None and summary["verdicts"]["unreadable"] == rows:
            hint = UNTRAINED
        if hint:
            yield hint
    if summary["calls"]:
        prompt = summary["tokens"]["prompt"]
        generated = summary["tokens"]["generated"]
        calls = summary["calls"]
        yield (
            f"cost: {calls:.0f} calls, {prompt} prompt and {generated} generated tokens for "
            f"{amount(rows, 'comparison')}"
        )
    # Beside the cost, as answers that were kept cost nothing again.
    if summary["spent"]:
        yield f"sent to the paid model: {listed(summary['spent'])}"


def _agreement_text(summary: Mapping[str, Any]) -> str:
    """Return in words the agreement with labels, with its 95% interval over prompts where there is one.

    Args:
        summary: of :func:`summary_of`, or of one name of :func:`summary_of_scores`.
    """
    agreed = summary["agreed"]
    labelled = summary["labelled"]
    prompts = summary["labelled_prompts"]
    text = f"agreement: {agreed} of {amount(labelled, 'label')}, {agreed / labelled:.1%}"
    if summary["agreement_ci"] is None:
        return f"{text} (no interval: {amount(prompts, 'prompt')}, and {FEWEST} are needed)"
    low, high = summary["agreement_ci"]
    return f"{text} (95%: {100 * low:.0f} to {100 * high:.0f}, over {amount(prompts, 'prompt')})"


def _is_above(summary: Mapping[str, Any], share: float) -> bool:
    """Return whether an agreement is above a share by its interval; without one, nothing is held against it."""
    interval = summary["agreement_ci"]
    return interval is None or interval[0] > share


def _agreement_line(summary: Mapping[str, Any]) -> str:
    """Return the line of the agreement of verdicts with labels, beside what a coin agrees with."""
    line = _agreement_text(summary)
    # Whoever tosses a coin never says that two responses are equally good.
    coin = CHANCE * (summary["labelled"] - summary.get("labelled_ties", 0)) / summary["labelled"]
    if not _is_above(summary, coin):
        line += f": not shown to be above chance, as a coin agrees with {coin:.0%}"
    return line


def summary_of_scores(
    rows: Iterable[Mapping[str, Any]],
    judge: str,
    scales: Mapping[str, Scale],
    labels_that_count: Mapping[str, Mapping[str, float | None]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return how often scores give the level of people's labels, as a whole and by criterion.

    ``agreement`` has for each name (:data:`~judgetrain.data.labelled.OVERALL` for responses as a whole) the labels that
    count, how many scores are at their level, the 95% interval of that over prompts, and the ``commonest`` level with
    its share, which whoever always says it agrees with. A score that could not be read agrees with none.
    ``not_judged_by`` are criteria with labels by which no response was judged, and ``without_label`` given ones that
    lack labels where others have some.

    Args:
        rows: of ``scores.jsonl``, all of one response each.
        judge: the judge's name.
        scales: of the labels.
        labels_that_count: in place of the rows' own, by row id and criterion, where several rows label one response.
    """
    total = 0
    agreed: dict[str, list[bool]] = {name: [] for name in scales}
    levels: dict[str, Counter[int]] = {name: Counter() for name in scales}
    prompts: dict[str, list[PromptKey]] = {name: [] for name in scales}
    criteria_judged_by: set[str] = set()
    labelled_criteria = {criterion_key(name) for name in scales if name != OVERALL}
    # A dictionary for its order: criteria come as rows bring them, and each once.
    without_label: dict[str, None] = {}
    for row in rows:
        total += 1
        if labelled_criteria:
            for reason in row["reasons"]:
                label_name = label_of_criterion(reason["name"], reason["criterion"], labelled_criteria)
                # Criteria that the judge named itself differ from row to row, and nobody could label them.
                if reason["source"] == "given" and label_name is None:
                    without_label[reason["name"] or reason["criterion"]] = None
        for name, scale in scales.items():
            label = row["label"]
            score = row["score"]
            if name != OVERALL:
                # Annotators need not have labelled every response by every criterion.
                of_criterion = row["labels"].get(name) or {}
                label = of_criterion.get("label")
                score = of_criterion.get("score")
                if score is not None:
                    criteria_judged_by.add(name)
            counting = labels_that_count.get(row["id"])
            if counting is not None:
                label = counting.get(name)
            if label is None:
                continue
            level = scale.level(label)
            levels[name][level] += 1
            # Levels are compared: judges' scores are finer than people's labels.
            agreed[name].append(score is not None and scale.level(score) == level)
            prompts[name].append(prompt_key(row) or ("row", str(total)))
    agreement = {}
    for name, scale in scales.items():
        if not agreed[name]:
            continue
        # What a judge that never looks would reach, to compare the agreement with; of several the better level, as in
        # stage evaluate.
        count, level = max((count, level) for level, count in levels[name].items())
        agreement[name] = {
            "labelled": len(agreed[name]),
            "agreed": sum(agreed[name]),
            **_agreement(agreed[name], prompts[name]),
            "commonest": scale.names[level],
            "commonest_share": count / len(agreed[name]),
        }
    not_judged_by = [name for name in agreement if name != OVERALL and name not in criteria_judged_by]
    return {
        "judge": judge,
        "rows": total,
        "agreement": agreement,
        "not_judged_by": not_judged_by,
        "without_label": list(without_label),
    }


def agreement_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines on the agreement of scores with labels, made of :func:`summary_of_scores`."""
    for name, figures in summary["agreement"].items():
        if name in summary["not_judged_by"]:
            yield (
                f"labels of {name!r} are compared with nothing: the judge went by no criterion of this name; "
                "give one with criteria=FILE"
            )
            continue
        line = _agreement_text(figures)
        if name != OVERALL:
            line = f"{name}: {line}"
        # Not beside a coin: labels may have five levels, or nine in ten of two may be a pass.
        rule = f"always {figures['commonest']}, the commonest label: {figures['commonest_share']:.1%}"
        if not _is_above(figures, figures["commonest_share"]):
            yield f"{line}: not shown to be above {rule}"
        else:
            yield f"{line}; {rule}"
    for name in summary["without_label"]:
        yield f"criterion {name!r} has no label, so that nothing is measured of it alone"


def _is_passed_rightly(
    row: Mapping[str, Any], scale: Scale | None, labels_that_count: Mapping[str, Mapping[str, float | None]]
) -> bool | None:
    """Return whether a response that is decided passes, or fails, as people say; None where that cannot be told.

    Args:
        row: of ``scores.jsonl``.
        scale: of the labels of responses as a whole; None: there are none.
        labels_that_count: as of :func:`summary_of_scores`.
    """
    # Labels of another scale than the one that thresholds were chosen on may lack the level that passes.
    if scale is None or row["passes"] is None or row.get("passes_from") not in scale.names:
        return None
    label = row["label"]
    if row["id"] in labels_that_count:
        label = labels_that_count[row["id"]].get(OVERALL)
    if label is None:
        return None
    people_pass = scale.level(label) >= scale.names.index(row["passes_from"])
    return bool(row["passes"] == people_pass)


def score_report(
    rows: Iterable[Mapping[str, Any]],
    judge: str,
    scale: Scale | None = None,
    labels_that_count: Mapping[str, Mapping[str, float | None]] = MappingProxyType({}),
) -> Iterator[Any]:
    """Yield the table and the lines at the end of scoring: the scores by criterion, and what could not be read.

    Args:
        rows: of ``scores.jsonl``.
        judge: the judge's name.
        scale: of the labels of responses as a whole, by which decided answers are checked; None: there are none.
        labels_that_count: as of :func:`summary_of_scores`.
    """
    total = 0
    scores: list[float] = []
    by_criterion: dict[str, list[float]] = {}
    unreadable: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    deciding = DecisionCounts()
    for row in rows:
        total += 1
        deciding.add(row, _is_passed_rightly(row, scale, labels_that_count))
        unreadable.update(row["failures"])
        if row["failure"]:
            failures[reason_of(row["failure"])] += 1
        if row["score"] is not None:
            scores.append(row["score"])
        for reason in row["reasons"]:
            # Criteria that the judge named itself differ from row to row.
            if reason["score"] is not None and reason["source"] == "given":
                by_criterion.setdefault(reason["name"] or reason["criterion"], []).append(reason["score"])

    cells = [(name, str(len(values)), f"{fmean(values):.2f} of 5") for name, values in by_criterion.items()]
    if scores:
        cells.append(("all, weighted", str(len(scores)), f"{fmean(scores):.2f} of 1"))
    for reason, count in failures.items():
        cells.append((f"not judged: {reason}", str(count), ""))
    yield table(f"Scores of {judge}", ("criterion", "responses", "mean"), cells)

    yield from decision_lines(deciding.summary)
    if len(scores) < total:
        yield f"{total - len(scores)} of {amount(total, 'response')} {agree(total - len(scores), 'have')} no score"
    if unreadable:
        hint = unread_hint(unreadable)
        if hint is None and not scores:
            hint = UNTRAINED
        line = f"judgments not read: {listed(unreadable)}"
        if hint:
            line = f"{line}; {hint}"
        yield line


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a table of the terminal: names on the left, figures on the right."""
    # Slow to import, and needed at the end of a run alone.
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # As texts: Rich would take a name in brackets, as "[/a]", for markup.
    rich_table = Table(title=Text(title), box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    first, *others = columns
    rich_table.add_column(Text(first), justify="left")
    for name in others:
        rich_table.add_column(Text(name), justify="right")
    for row in rows:
        rich_table.add_row(*map(Text, row))
    return rich_table
