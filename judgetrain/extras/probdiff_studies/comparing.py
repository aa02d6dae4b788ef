"""What stage ``studies`` finds: models side by side by their discrepancies, beside verdicts and official scores.

The ProbDiff paper, sections 3.2 and 5.

Everything is JSON-ready: rows of ``studies.json``, of which ``report.py`` makes tables.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

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
"""By prompt id: 1 where the revision is better, -1 worse, 0 unchanged in quality, None where there is no verdict."""
THRESHOLDS = (0.0, 0.05, 0.1)
"""Of win, tie and lose: discrepancies that differ by less are a tie."""


def compared(
    models: Mapping[str, SelfEvaluated], verdicts: Mapping[str, Verdicts], official: Mapping[str, Mapping[str, float]]
) -> Row:
    """All that follows from the models' discrepancies; the first model is the run's own, whom verdicts are about."""
    ids = list(next(iter(models.values())).d)
    d = {name: [model.d[i] for i in ids] for name, model in models.items()}
    own, grouped = next(iter(d.values())), list(by_group(models))
    return {
        "ranking": ranking(d),
        "sweep": {name: {f"{k:g}": v for k, v in confidence_sweep(values).items()} for name, values in d.items()},
        "outcomes": [
            {"first": a, "second": b, "threshold": t, **win_tie_lose(d[a], d[b], t)}
            for a, b in combinations(d, 2)
            for t in THRESHOLDS
        ],
        "conflicts": {name: conflict(own, [found.get(i) for i in ids]) for name, found in verdicts.items()},
        "kappas": kappas(verdicts),
        "by_group": grouped,
        "official": list(beside_official(grouped, official)),
    }


def win_tie_lose(first: Values, second: Values, threshold: float = 0.0) -> Row:
    """Two models item by item (section 3.2): the higher d wins, a tie where they differ by at most ``threshold``.

    Shares of the ``n`` items that both have a d for; None without any.
    """
    differences = np.array([a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None])
    sides = {"win": differences > threshold, "tie": np.abs(differences) <= threshold, "lose": differences < -threshold}
    n = len(differences)
    return {**{side: float(found.mean()) if n else None for side, found in sides.items()}, "n": n}


def ranking(models: Mapping[str, Values]) -> list[Row]:
    """Models from best to worst, by confidence; equal models share the better place."""
    rows: list[Row] = [
        {"model": name, "confidence": share, "mean": average(d), "n": sum(x is not None for x in d)}
        for name, d in models.items()
        if (share := confidence(d)) is not None
    ]
    placed = [{"place": 1 + sum(other["confidence"] > row["confidence"] for other in rows), **row} for row in rows]
    return sorted(placed, key=lambda row: (row["place"], row["model"]))


def by_group(models: Mapping[str, SelfEvaluated]) -> Iterator[Row]:
    """Each model's confidence over the ``n`` prompts of a group that have a d, at the paper's thresholds."""
    first = next(iter(models.values()))
    for group, ids in groups_of(first.d, first.categories).items():
        for name, model in models.items():
            d = [model.d[i] for i in ids]
            n = sum(x is not None for x in d)
            for delta, share in confidence_sweep(d).items():
                yield {"model": name, "group": group, "delta": delta, "n": n, "confidence": share}


def beside_official(grouped: Sequence[Row], official: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    """How the order of models by confidence goes with that of each official score (table 4).

    Over the prompts of the group that has the score's name; where none has, over all of them.
    """
    for name, given in official.items():
        group = name if any(row["group"] == name for row in grouped) else ALL
        here = [row for row in grouped if (row["group"], row["delta"]) == (group, DELTA)]
        both = [
            (r["confidence"], given[r["model"]]) for r in here if r["model"] in given and r["confidence"] is not None
        ]
        found = correlations(*zip(*both, strict=True)) if both else {}
        ranks = {kind: found.get(kind) for kind in ("kendall", "spearman")}
        yield {"score": name, "prompts": group, "models": len(both), **ranks}


def conflict(d: Values, verdicts: Sequence[int | None]) -> Row:
    """``degree``: share of items in which ProbDiff and an external verdict contradict each other (5.2, table 6).

    d > 0 contradicts -1, d < 0 contradicts 1; 0 contradicts nothing. Over the ``n`` items that have both; ``without``:
    those that have d but no verdict.
    """
    known = [(x, v) for x, v in zip(d, verdicts, strict=True) if x is not None]
    opposed = [x * v < 0 for x, v in known if v is not None]
    return {"degree": average(opposed), "n": len(opposed), "without": len(known) - len(opposed)}


def kappas(verdicts: Mapping[str, Verdicts]) -> list[Row]:
    """Cohen's kappa ``of`` each two that gave verdicts, over the prompts that both have (section 5.2).

    None where it is not defined: no prompt in common, or one verdict throughout.
    """
    from sklearn.metrics import cohen_kappa_score

    result = []
    for (one, first), (two, second) in combinations(verdicts.items(), 2):
        pairs = [(v, w) for i, v in first.items() if v is not None and (w := second.get(i)) is not None]
        defined = len({value for pair in pairs for value in pair}) > 1
        kappa = float(cohen_kappa_score(*zip(*pairs, strict=True))) if defined else None
        result.append({"of": [one, two], "kappa": kappa})
    return result


OF_SECOND = {"B": 1, "A": -1, "tie": 0}
"""What a verdict says of the second text: better, worse or no better."""


def won(
    models: Mapping[str, SelfEvaluated],
    dialogues: Mapping[str, Dialogue],
    settings: StudiesSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> list[Row]:
    """How often the run's own model wins against every other by group of prompts, as a judge sees it.

    Shares of the ``n`` prompts with a verdict, in both orders the same; ``without``: those that have none. The two
    confidences are over all prompts of the group. Answers that are the same are a tie and not asked about.
    """
    method = Method.parse(settings.studies.duels)
    (name, own), *others = models.items()
    result = []
    for number, (other, theirs) in enumerate(others):
        answers = {i: (text.strip(), theirs.answers[i].strip()) for i, text in own.answers.items()}
        pairs = [Comparison(i, dialogues[i], a, b, name, other) for i, (a, b) in answers.items() if a and b and a != b]
        verdicts: dict[str, int | None] = {i: 0 for i, (a, b) in answers.items() if a and a == b}
        verdicts |= asked(method, f"duels-{number}-{method.file_name}", pairs, settings, inputs, out)
        for group, ids in groups_of(own.d, own.categories).items():
            given = [v for i in ids if (v := verdicts.get(i)) is not None]
            sides = {name: OF_SECOND[side] for name, side in (("win", "A"), ("tie", "tie"), ("lose", "B"))}
            row = {"first": name, "second": other, "group": group, "n": len(given), "without": len(ids) - len(given)}
            row |= {side: average([v == code for v in given]) for side, code in sides.items()}
            each = {"confidence": own, "other_confidence": theirs}
            result.append(row | {key: confidence([model.d[i] for i in ids]) for key, model in each.items()})
    return result


def judged(
    own: SelfEvaluated,
    dialogues: Mapping[str, Dialogue],
    settings: StudiesSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> dict[str, int | None]:
    """The verdicts of ``studies.judge`` on answer (A) and revision (B), as ``verdicts`` shards.

    A revision that equals its answer is unchanged and not asked about. A judge that is paid for is asked within
    ``studies.max_requests`` and ``studies.max_tokens``.
    """
    method = Method.parse(settings.studies.judge)
    changed = [i for i, revision in own.revisions.items() if revision.strip() != own.answers[i].strip()]
    comparisons = [
        Comparison(i, dialogues[i], own.answers[i].strip(), own.revisions[i], "answer", "revision") for i in changed
    ]
    found = asked(method, f"verdicts-{method.file_name}", comparisons, settings, inputs, out)
    return {i: found.get(i, 0) for i in own.revisions}


def asked(
    method: Method,
    name: str,
    comparisons: Sequence[Comparison],
    settings: StudiesSettings,
    inputs: Mapping[str, Path],
    out: StageRun,
) -> dict[str, int | None]:
    """The verdicts of a judge on comparisons, by their ids, as shards of this name: 1 where the second is better."""
    branches = max(settings.branches or [1])
    with (
        spending((settings.teacher, settings.external), settings.studies, "studies", out) as budget,
        loaded_once(lambda: Models(settings, inputs, out, budget).judge(method, branches)) as judge,
    ):

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            done = judge().compare_all(items, derive_seed(out.shard_seed(index), "verdicts"))
            rows = [{"id": c.id, "verdict": OF_SECOND.get(p.verdict)} for c, p in zip(items, done, strict=True)]
            missing = Counter("no_verdict" for row in rows if row["verdict"] is None)
            kinds = ("prompt_tokens", "generated_tokens")
            both_orders = {kind: round(sum(getattr(p.whole_cost, kind) for p in done)) for kind in kinds}
            return ShardResult(rows, len(rows), missing, **both_orders)

        out.sharded(name, comparisons, settings.scorer.shard_size, process, "comparisons", judge, spread=budget is None)
    return {row["id"]: row["verdict"] for row in read_rows(out.directory, name)}
