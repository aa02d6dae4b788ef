"""Judgments by criteria, as trees: this run's trees, verdicts and scores of stage judge, and evaluations in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.sources import read
from judgetrain.extras.rubric.pairing import ScoredCriterion, ScoredResponse, judged_tree, pairs_of
from judgetrain.extras.rubric.united import PairRow, ResponseRow, standing_pairs, standing_responses
from judgetrain.judges.trees.schema import NOT_SAMPLED, CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.judging.rows import SCORES, VERDICTS, rubric_of
from judgetrain.label.teacher_stage import evaluation_of
from judgetrain.rubrics import SCALE, Criterion, Level, Rubric
from judgetrain.schema import Comparison, Dialogue, Message, Verdict

KEY = "rubric.files"
KNOWN = ("given", "external")
"""Sources of a label of stage label that are not the tree's own judgments."""
Row = Mapping[str, Any]


def trees_in(
    inputs: Mapping[str, Path], files: Sequence[str], say: Callable[[str], object] = lambda line: None
) -> Iterator[EvaluationTree]:
    """Yield what was judged by criteria; ``label`` of a comparison is a known label, or None.

    Args:
        inputs: the directories of stages tree and label, or of stage judge; none with files.
        files: files or globs that are read in place of stages.
        say: takes sentences about pairs and responses that several rows label.
    """
    if files:
        yield from read_judged(files, say)
    elif "judge" in inputs:
        yield from read_judged([str(inputs["judge"])], say)
    else:
        labels = _known_labels(inputs["label"])
        for row in read_rows(inputs["tree"], "trees"):
            tree = EvaluationTree.from_row(row)
            # The comparison's own label may be there to measure with, and is not to be learned from.
            comparison = replace(tree.comparison, label=labels.get(tree.comparison.id))
            yield replace(tree, comparison=comparison)


def _known_labels(directory: Path) -> dict[str, Verdict]:
    """Return the labels of a finished stage label that come from people, from data or from an external judge."""
    labels: dict[str, Verdict] = {}
    for row in read_rows(directory, "labels"):
        if row["source"] in KNOWN and row["verdict"] is not None:
            labels[row["comparison_id"]] = row["verdict"]
    return labels


def read_judged(files: Sequence[str], say: Callable[[str], object] = lambda line: None) -> Iterator[EvaluationTree]:
    """Yield the trees of files: verdicts of stage judge with their reasons, or evaluations; or scores of its in pairs.

    Rows without a reason that names a criterion are left out: they failed, or the judge names none. Rows of one judge
    on one pair of responses are one tree, with the label that all rows on the pair give together. Scores of single
    responses become pairs (:func:`~judgetrain.extras.rubric.pairing.pairs_of`) when all files have been read.

    Args:
        files: files or globs.
        say: takes sentences about pairs and responses that several rows label.

    Raises:
        ConfigError: there is no such file.
        DataError: a row is none of these; names file and line.
    """
    pairs: list[PairRow] = []
    responses: list[ResponseRow] = []
    holds_trees = False
    for number, row in enumerate(_rows(files)):
        if isinstance(row.item, ScoredResponse):
            responses.append(ResponseRow(response=row.item, judge=row.judge, rubric=row.rubric, file=row.file))
            continue
        holds_trees = True
        comparison = row.item.comparison
        if comparison.label is not None:
            asked = replace(comparison, rubric=row.rubric)
            has_criteria = bool(row.item.criteria)
            pairs.append(PairRow(number=number, comparison=asked, judge=row.judge, has_criteria=has_criteria))
    if holds_trees:
        standing = standing_pairs(pairs, say)
        # Read again: trees are many times as large as the labels that have to be known before the first one.
        for number, row in enumerate(_rows(files)):
            if isinstance(row.item, ScoredResponse) or not row.item.criteria or number in standing.left_out:
                continue
            comparison = row.item.comparison
            label = standing.labels.get(number, comparison.label)
            yield replace(row.item, comparison=replace(comparison, label=label))
    yield from pairs_of(standing_responses(responses, say))


@dataclass(frozen=True, kw_only=True)
class _JudgedRow:
    """A row that was judged.

    Args:
        item: what was said of it.
        judge: who judged it: the judge's name, or where the row has none its file.
        rubric: the criteria that were given for it; None: there are none.
        file: that it stands in.
    """

    item: EvaluationTree | ScoredResponse
    judge: str
    rubric: Rubric | None
    file: str


def _rows(files: Sequence[str]) -> Iterator[_JudgedRow]:
    """Yield the rows of files."""
    for place, name in enumerate(files):
        path = _file_in(Path(name).expanduser())
        source = SourceConfig(name=VERDICTS, path=str(path), fields={"criteria": ""})
        reader = RowReader(source, key=f"{KEY}[{place}]")
        take = partial(_judged_row, reader=reader, file=str(path))
        yield from read(source, f"{KEY}[{place}]", take)


def _file_in(path: Path) -> Path:
    """Return the file of a directory that stage judge wrote, and any other path as it is."""
    if not path.is_dir():
        return path
    # Single responses have scores, and nothing has both.
    scores = path / f"{SCORES}.jsonl"
    return scores if scores.exists() else path / f"{VERDICTS}.jsonl"


def _judged_row(row: Any, number: int, reader: RowReader, file: str) -> _JudgedRow:
    """Return what a row says (RowError: it is no verdict, score or evaluation)."""
    if not isinstance(row, Mapping) or "reasons" not in row:
        tree = evaluation_of(row, number, reader, labelled=True)
        return _JudgedRow(item=tree, judge=file, rubric=tree.comparison.rubric, file=file)
    kind = VERDICTS
    make: Callable[[Row], EvaluationTree | ScoredResponse] = tree_of_verdict
    if "response" in row:
        kind = SCORES
        make = scored_response
    try:
        return _JudgedRow(item=make(row), judge=row.get("judge") or file, rubric=rubric_of(row), file=file)
    except (KeyError, TypeError) as error:
        raise RowError("malformed", f"not a row of {kind}.jsonl as stage judge writes it ({error})") from error


def scored_response(row: Row) -> ScoredResponse:
    """Return the response of a row of stage judge, with its level by each criterion that could be read."""
    messages = tuple(Message(message["role"], message["content"]) for message in row["messages"])
    criteria: dict[str, ScoredCriterion] = {}
    for reason in row["reasons"]:
        if reason["criterion"] and reason["score"] is not None:
            criteria.setdefault(
                reason["criterion"],
                ScoredCriterion(
                    text=reason["criterion"],
                    name=reason["name"] or "",
                    is_given=reason["source"] == "given",
                    weight=reason["weight"],
                    guideline=reason["guideline"] or "",
                    score=reason["score"],
                    judgment=reason["text"],
                ),
            )
    return ScoredResponse(
        id=f"{row['id']}/{row['place']}",
        dialogue=Dialogue(row["dialogue_id"], VERDICTS, messages),
        response=row["response"],
        label=row.get("label"),
        criteria=tuple(criteria.values()),
    )


def tree_of_verdict(row: Row) -> EvaluationTree:
    """Return the tree whose branches are the reasons of a verdict."""
    messages = tuple(Message(message["role"], message["content"]) for message in row["messages"])
    comparison = Comparison(
        id=row["id"],
        dialogue=Dialogue(row["dialogue_id"], VERDICTS, messages),
        response_a=row["response_a"],
        response_b=row["response_b"],
        model_a=row["model_a"],
        model_b=row["model_b"],
        label=row["label"],
        group=row.get("group"),
    )
    # By criterion and by guideline, in the order in which they first stand.
    by_criterion: dict[str, dict[str, list[Row]]] = {}
    for reason in row["reasons"]:
        # A judge that is asked once, without criteria, has none to name.
        if reason["criterion"]:
            by_guideline = by_criterion.setdefault(reason["criterion"], {})
            by_guideline.setdefault(reason["guideline"], []).append(reason)
    criteria = []
    for rank, (text, by_guideline) in enumerate(by_criterion.items()):
        criteria.append(_criterion_node(f"{comparison.id}/c{rank}", rank, text, by_guideline))
    return judged_tree(comparison, criteria)


def _criterion_node(identifier: str, rank: int, text: str, by_guideline: Mapping[str, Sequence[Row]]) -> CriterionNode:
    """Return a criterion with the judgments that its reasons are."""
    guidelines = []
    for number, (guideline, reasons) in enumerate(by_guideline.items()):
        judgments = []
        for place, reason in enumerate(reasons):
            judgments.append(
                JudgmentNode(
                    id=f"{identifier}/g{number}/{place}",
                    order=reason["order"],
                    text=reason["text"],
                    score_a=reason["score_a"],
                    score_b=reason["score_b"],
                    failure=reason["failure"],
                    inverted=reason["weight"] < 0,
                    **NOT_SAMPLED,
                )
            )
        guidelines.append(
            GuidelineNode(id=f"{identifier}/g{number}", text=guideline, judgments=tuple(judgments), **NOT_SAMPLED)
        )
    first = next(iter(by_guideline.values()))[0]
    given = None
    if first["source"] == "given":
        given = _given(text, first)
    return CriterionNode(
        id=identifier, text=text, rank=rank, generated_tokens=0, guidelines=tuple(guidelines), given=given
    )


def _given(text: str, reason: Row) -> Criterion:
    """Return the criterion of a rubric that a reason is by."""
    scale = SCALE
    if reason["scale"]:
        scale = tuple(map(Level, reason["scale"]))
    return Criterion(text=text, name=reason["name"], weight=reason["weight"], scale=scale)
