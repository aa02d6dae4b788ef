"""Stage ``selfeval``: an LLM answers prompts and scores its own answers (glass-box and ProbDiff papers)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import DataError, causes
from judgetrain.schema import Dialogue
from judgetrain.scorers.encode import Unscored, sample_of
from judgetrain.scorers.methods import groups, score
from judgetrain.scorers.respond import answered_dialogues, respond, temperature_of
from judgetrain.scorers.selfeval_table import Answer, markdown, plain, table
from judgetrain.scorers.stages import SelfEvalSettings, load_scorer

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

Lazy = Callable[[], "TokenScorer"]
Row = dict[str, Any]

SEE = "the answers are in responses-*.jsonl"
_NOTHING = (
    "the model answers with nothing: is it instruction-tuned, has it a chat template, do "
    f"the prompts fit its context? {SEE[0].upper()}{SEE[1:]}"
)
HINTS = {
    "too_long": "prompt and answer exceed the model's context: lower selfeval.sampling.max_new_tokens",
    "empty_response": _NOTHING,
    "no_revision": _NOTHING,
    "non_finite": "the model's logits are no numbers: try scorer.model.dtype=float32",
}
"""What helps where nothing could be scored, by the reason."""


def run(settings: SelfEvalSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``responses`` and ``scores-GROUP`` shards, ``scores.jsonl``, ``metrics.json`` and ``report.md``.

    One model answers, revises and scores; it is loaded only if a shard is missing.
    """
    dialogues = [Dialogue.from_row(row) for row in read_rows(inputs["dialogues"], "dialogues")]
    limit = settings.selfeval.limit
    if limit is not None and limit < len(dialogues):
        dialogues = random.Random(derive_seed(settings.seed, "selfeval")).sample(dialogues, limit)
    with loaded_once(lambda: load_scorer(settings.scored_model)) as scorer:
        respond(dialogues, scorer, settings, out)
        responses = list(read_rows(out.directory, "responses"))
        dialogues = answered_dialogues(dialogues, responses)
        for group, members in groups(settings.selfeval.methods).items():
            _score(group, members, dialogues, responses, scorer, settings, out)
    answers = _answers(dialogues, responses, settings, out)
    if all(isinstance(v, Unscored) for answer in answers for v in answer.values.values()):
        reasons = Counter(v.reason for a in answers for v in a.values.values() if isinstance(v, Unscored))
        raise DataError(f"no answer could be scored: {causes(reasons, HINTS, SEE)}")
    rows = table(answers, settings.selfeval.methods)
    out.write_rows("scores", (answer.to_row() for answer in answers))
    out.write_json("metrics", rows)
    report = markdown(rows, f"{settings.scored_model.path}, {len(answers)} prompts")
    write_text_atomic(out.path("report.md"), report)
    out.track.log({f"{row['category']}/{row['method']}": row["mean"] for row in rows if row["mean"] is not None})
    out.tell([report])
    out.log(f"selfeval: report: {out.path('report.md')}")


def _score(
    group: str,
    members: Sequence[str],
    dialogues: Sequence[Dialogue],
    responses: Sequence[Row],
    scorer: Lazy,
    settings: SelfEvalSettings,
    out: StageRun,
) -> None:
    """The scores of a group and what else it found (ProbDiff's revisions), by shards."""

    def process(index: int, items: Sequence[tuple[Dialogue, Row]]) -> ShardResult:
        ready, seed = scorer(), derive_seed(out.shard_seed(index), group)
        before = ready.usage
        samples = [replace(sample_of(d, r["text"]), temperature=temperature_of(d, settings.selfeval)) for d, r in items]
        found = score(ready, samples, members, settings.scorer, seed)
        rows: list[Row] = [{m: plain(found[m].values[i]) for m in members} for i in range(len(items))]
        for scores in found.values():
            for row, details in zip(rows, scores.details, strict=bool(scores.details)):
                row |= details
        dropped = {f"{group}:{reason}": n for reason, n in found[members[0]].unscored.items()}
        return ShardResult(rows, len(rows), dropped, **tokens_of([ready.usage - before]))

    items = list(zip(dialogues, responses, strict=True))
    out.sharded(f"scores-{group}", items, settings.scorer.shard_size, process, "answers", scorer, spread=True)


def _answers(
    dialogues: Sequence[Dialogue], responses: Sequence[Row], settings: SelfEvalSettings, out: StageRun
) -> list[Answer]:
    answers = [Answer(id=d.id, category=d.category, text=r["text"]) for d, r in zip(dialogues, responses, strict=True)]
    for group, members in groups(settings.selfeval.methods).items():
        for answer, row in zip(answers, read_rows(out.directory, f"scores-{group}"), strict=True):
            answer.values.update({m: Unscored(v) if isinstance(v := row[m], str) else float(v) for m in members})
            answer.cut = answer.cut or row.get("cut", False)
    return answers
