"""What a judge says: of models' answers against each other, beside their confidence, and of revisions.

ProbDiff paper, section 5.1, figure 4, and section 5.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.engines.answers import spending
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.extras.probdiff_studies.comparing import Row
from judgetrain.extras.probdiff_studies.models import SelfEvaluated, groups_of
from judgetrain.extras.probdiff_studies.stages import StudiesSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.method import Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.probdiff import average, confidence

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
