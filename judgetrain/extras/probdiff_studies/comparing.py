"""Compare models by their discrepancies, beside verdicts and official scores (ProbDiff paper, sections 3.2 and 5).

Everything is JSON-ready: rows of ``studies.json``, of which ``report.py`` makes tables.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.engines.answers import spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.evaluate.metrics import correlations
from judgetrain.extras.probdiff_studies.models import ALL, SelfEvaluated, groups_of
from judgetrain.extras.probdiff_studies.stages import StudiesSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.probdiff import DELTA, Values, average, confidence, confidence_sweep

Row = dict[str, Any]
Verdicts = Mapping[str, int | None]
"""A verdict by prompt id: 1 where the revision is better, -1 worse, 0 unchanged in quality, None without a verdict."""
THRESHOLDS = (0.0, 0.05, 0.1)
"""Discrepancies that differ by at most so much are a tie."""


def compared(
    models: Mapping[str, SelfEvaluated], verdicts: Mapping[str, Verdicts], official: Mapping[str, Mapping[str, float]]
) -> Row:
    """Return all that follows from the models' discrepancies.

    Args:
        models: by name; the first is the run's own, whom verdicts are about.
        verdicts: on the own model's revisions, by who gave them.
        official: scores by their names and models.
    """
    own_model = next(iter(models.values()))
    # All models have the same prompts (read_models), so that places in these lists mean one prompt.
    ids = list(own_model.d)
    discrepancies = {name: [model.d[identifier] for identifier in ids] for name, model in models.items()}
    sweeps = {}
    for name, values in discrepancies.items():
        sweeps[name] = {f"{delta:g}": share for delta, share in confidence_sweep(values).items()}
    outcomes = []
    for first, second in combinations(discrepancies, 2):
        for threshold in THRESHOLDS:
            shares = win_tie_lose(discrepancies[first], discrepancies[second], threshold)
            outcomes.append({"first": first, "second": second, "threshold": threshold, **shares})
    own_discrepancies = [own_model.d[identifier] for identifier in ids]
    conflicts = {}
    for name, by_id in verdicts.items():
        conflicts[name] = conflict(own_discrepancies, [by_id.get(identifier) for identifier in ids])
    groups = list(by_group(models))
    return {
        "ranking": ranking(discrepancies),
        "sweep": sweeps,
        "outcomes": outcomes,
        "conflicts": conflicts,
        "kappas": kappas(verdicts),
        "by_group": groups,
        "official": list(beside_official(groups, official)),
    }


def win_tie_lose(first: Values, second: Values, threshold: float = 0.0) -> Row:
    """Compare two models item by item (section 3.2): the higher d wins, a tie where they differ by little.

    Args:
        first: d of each item; None where there is none.
        second: likewise.
        threshold: difference up to which items are a tie.

    Returns:
        The shares ``win``, ``tie`` and ``lose`` of the ``n`` items that both have a d for; None without any.
    """
    differences = np.array([a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None])
    count = len(differences)
    if not count:
        return {"win": None, "tie": None, "lose": None, "n": 0}
    return {
        "win": float((differences > threshold).mean()),
        "tie": float((np.abs(differences) <= threshold).mean()),
        "lose": float((differences < -threshold).mean()),
        "n": count,
    }


def ranking(models: Mapping[str, Values]) -> list[Row]:
    """Return models from best to worst, by confidence; equal models share the better place."""
    rows: list[Row] = []
    for name, discrepancies in models.items():
        share = confidence(discrepancies)
        if share is not None:
            count = sum(value is not None for value in discrepancies)
            rows.append({"model": name, "confidence": share, "mean": average(discrepancies), "n": count})
    placed = []
    for row in rows:
        # Places and no running number: models of equal confidence must not be told apart by their names.
        better = sum(other["confidence"] > row["confidence"] for other in rows)
        placed.append({"place": 1 + better, **row})
    return sorted(placed, key=lambda row: (row["place"], row["model"]))


def by_group(models: Mapping[str, SelfEvaluated]) -> Iterator[Row]:
    """Yield each model's confidence over the ``n`` prompts of a group that have a d, at the paper's thresholds."""
    first = next(iter(models.values()))
    for group, ids in groups_of(first.d, first.categories).items():
        for name, model in models.items():
            discrepancies = [model.d[identifier] for identifier in ids]
            count = sum(value is not None for value in discrepancies)
            for delta, share in confidence_sweep(discrepancies).items():
                yield {"model": name, "group": group, "delta": delta, "n": count, "confidence": share}


def beside_official(rows: Sequence[Row], official: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    """Yield how the order of models by confidence goes with that of each official score (table 4).

    It is over the prompts of the group that has the score's name; where none has, over all of them.

    Args:
        rows: of :func:`by_group`.
        official: scores by their names and models.
    """
    for name, scores in official.items():
        group = ALL
        if any(row["group"] == name for row in rows):
            group = name
        confidences = []
        official_scores = []
        for row in rows:
            # The paper's own threshold; the others are in the table of groups.
            if row["group"] != group or row["delta"] != DELTA:
                continue
            if row["model"] in scores and row["confidence"] is not None:
                confidences.append(row["confidence"])
                official_scores.append(scores[row["model"]])
        ranks: dict[str, float | None] = {"kendall": None, "spearman": None}
        if confidences:
            figures = correlations(confidences, official_scores)
            ranks = {kind: figures.get(kind) for kind in ranks}
        yield {"score": name, "prompts": group, "models": len(confidences), **ranks}


def conflict(d: Values, verdicts: Sequence[int | None]) -> Row:
    """Return how often ProbDiff and an external verdict contradict each other (section 5.2, table 6).

    d > 0 contradicts -1, d < 0 contradicts 1; 0 contradicts nothing.

    Args:
        d: of each item; None where there is none.
        verdicts: on the items.

    Returns:
        ``degree``, the share of the ``n`` items that have both; ``without``, the number of those that have d but no
        verdict.
    """
    opposed = []
    without = 0
    for discrepancy, verdict in zip(d, verdicts, strict=True):
        if discrepancy is None:
            continue
        if verdict is None:
            without += 1
        else:
            opposed.append(discrepancy * verdict < 0)
    return {"degree": average(opposed), "n": len(opposed), "without": without}


def kappas(verdicts: Mapping[str, Verdicts]) -> list[Row]:
    """Return Cohen's kappa ``of`` each two that gave verdicts, over the prompts that both have (section 5.2).

    It is None where it is not defined: no prompt in common, or one verdict throughout.
    """
    from sklearn.metrics import cohen_kappa_score

    rows = []
    for (first_name, first), (second_name, second) in combinations(verdicts.items(), 2):
        first_verdicts = []
        second_verdicts = []
        for identifier, verdict in first.items():
            other = second.get(identifier)
            if verdict is not None and other is not None:
                first_verdicts.append(verdict)
                second_verdicts.append(other)
        kappa = None
        # By one verdict throughout agreement by chance is complete, and kappa a division by zero.
        if len({*first_verdicts, *second_verdicts}) > 1:
            kappa = float(cohen_kappa_score(first_verdicts, second_verdicts))
        rows.append({"of": [first_name, second_name], "kappa": kappa})
    return rows


OF_SECOND = {"B": 1, "A": -1, "tie": 0}
"""The second text by a verdict: better, worse or no better."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The run of the stage in which a judge is asked.

    Args:
        settings: of the stage.
        inputs: of the stage.
        out: the stage's directory, where verdicts are kept.
    """

    settings: StudiesSettings
    inputs: Mapping[str, Path]
    out: StageRun


def won(models: Mapping[str, SelfEvaluated], dialogues: Mapping[str, Dialogue], asking: Asking) -> list[Row]:
    """Return how often the run's own model wins against every other by group of prompts, as a judge sees it.

    Answers that are the same are a tie and not asked about.

    Args:
        models: by name; the first is the run's own.
        dialogues: by prompt id.
        asking: what a judge is asked with.

    Returns:
        Rows with the shares of the ``n`` prompts that have a verdict, in both orders the same; ``without`` counts those
        that have none. The two confidences are over all prompts of the group.
    """
    method = Method.parse(asking.settings.studies.duels)
    (name, own_run), *others = models.items()
    rows = []
    for number, (other_name, other) in enumerate(others):
        pairs = []
        verdicts: dict[str, int | None] = {}
        for identifier, text in own_run.answers.items():
            ours = text.strip()
            theirs = other.answers[identifier].strip()
            if ours and ours == theirs:
                verdicts[identifier] = 0
            # An answer that is empty has no verdict: it is in ``without``.
            elif ours and theirs:
                pairs.append(Comparison(identifier, dialogues[identifier], ours, theirs, name, other_name))
        # By the other model's number: its name may hold what no file's name may.
        verdicts |= verdicts_of(method, f"duels-{number}-{method.file_name}", pairs, asking)
        for group, ids in groups_of(own_run.d, own_run.categories).items():
            readable = [verdict for verdict in map(verdicts.get, ids) if verdict is not None]
            row = {
                "first": name,
                "second": other_name,
                "group": group,
                "n": len(readable),
                "without": len(ids) - len(readable),
            }
            for side, verdict in (("win", "A"), ("tie", "tie"), ("lose", "B")):
                row[side] = average([value == OF_SECOND[verdict] for value in readable])
            row["confidence"] = confidence([own_run.d[identifier] for identifier in ids])
            row["other_confidence"] = confidence([other.d[identifier] for identifier in ids])
            rows.append(row)
    return rows


def judged(own_run: SelfEvaluated, dialogues: Mapping[str, Dialogue], asking: Asking) -> dict[str, int | None]:
    """Return the verdicts of ``studies.judge`` on answer (A) and revision (B), kept as ``verdicts`` shards.

    A revision that equals its answer is unchanged and not asked about. A judge that is paid for is asked within
    ``studies.max_requests`` and ``studies.max_tokens``.
    """
    method = Method.parse(asking.settings.studies.judge)
    comparisons = []
    for identifier, revision in own_run.revisions.items():
        answer = own_run.answers[identifier].strip()
        if revision.strip() != answer:
            comparisons.append(Comparison(identifier, dialogues[identifier], answer, revision, "answer", "revision"))
    verdicts = verdicts_of(method, f"verdicts-{method.file_name}", comparisons, asking)
    # What was not asked about is the unchanged ones; what could not be read is there as None.
    return {identifier: verdicts.get(identifier, 0) for identifier in own_run.revisions}


def verdicts_of(method: Method, name: str, comparisons: Sequence[Comparison], asking: Asking) -> dict[str, int | None]:
    """Return the verdicts of a judge on comparisons by their ids, kept as shards: 1 where the second text is better."""
    settings = asking.settings
    out = asking.out
    # As many as stage evaluate asks with at most.
    branches = max(settings.branches or [1])
    with (
        spending((settings.teacher, settings.external), settings.studies, "studies", out) as budget,
        loaded_once(lambda: Models(settings, asking.inputs, out, budget).judge(method, branches)) as judge,
    ):

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            predictions = judge().compare_batch(items, derive_seed(out.shard_seed(index), "verdicts"))
            rows = []
            prompt_tokens = 0.0
            generated_tokens = 0.0
            for item, prediction in zip(items, predictions, strict=True):
                rows.append({"id": item.id, "verdict": OF_SECOND.get(prediction.verdict)})
                prompt_tokens += prediction.whole_cost.prompt_tokens
                generated_tokens += prediction.whole_cost.generated_tokens
            missing = Counter("no_verdict" for row in rows if row["verdict"] is None)
            return ShardResult(
                rows, len(rows), missing, prompt_tokens=round(prompt_tokens), generated_tokens=round(generated_tokens)
            )

        # A budget is counted in this process, so its requests stay here.
        spread = budget is None
        work = Work(process=process, load=judge, spread=spread)
        out.sharded(name, comparisons, settings.scorer.shard_size, work, "comparisons")
    return {row["id"]: row["verdict"] for row in read_rows(out.directory, name)}
