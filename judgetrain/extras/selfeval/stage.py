"""Stage ``selfeval``: an LLM answers prompts and scores its own answers (glass-box and ProbDiff papers)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.base import Request, Sampling, shard_of
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import DataError, causes
from judgetrain.evaluate.report.report import table_lines, write_report
from judgetrain.evaluate.report.table import Columns, Table, number, percent
from judgetrain.extras.selfeval.config import SelfEvalConfig
from judgetrain.extras.selfeval.stages import SelfEvalSettings
from judgetrain.schema import Dialogue, Message
from judgetrain.scorers import probdiff
from judgetrain.scorers.config import load_scorer
from judgetrain.scorers.encode import Messages, Unscored, sample_of
from judgetrain.scorers.estimator import Scores, value_of
from judgetrain.scorers.methods import assemble, better, groups, score

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer


Row = dict[str, Any]


def respond(
    dialogues: Sequence[Dialogue], scorer: Callable[[], TokenScorer], settings: SelfEvalSettings, out: StageRun
) -> None:
    """Write ``responses`` shards, one row an answer, sampled at the category's temperature where one is set.

    Questions that follow each other without an answer (MT-Bench's two turns) are answered in turn, each after the
    model's own answers to those before it; a question whose predecessor got no answer is not asked. Rows of such
    dialogues hold their whole prompt; the ids of the earlier answers end in ``#`` and the question's number.
    """

    def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
        seed, asked = derive_seed(out.shard_seed(index), "responses"), [questions(dialogue) for dialogue in items]
        config = settings.selfeval
        sampling = [replace(Sampling.of(config.sampling), temperature=temperature_of(d, config)) for d in items]
        rows: list[list[Row]] = [[] for _ in items]
        parts: list[ShardResult] = []
        for turn in range(max(map(len, asked), default=0)):
            going = [i for i, own in enumerate(asked) if turn < len(own) and all(row["text"] for row in rows[i])]
            chats = [_after(asked[i][: turn + 1], [row["text"] for row in rows[i]]) for i in going]
            requests = [Request(messages=chat, sampling=sampling[i]) for i, chat in zip(going, chats, strict=True)]
            done = scorer().generate(requests, derive_seed(seed, turn) if turn else seed)
            named = [_named(items[i], chat, turn, len(asked[i])) for i, chat in zip(going, chats, strict=True)]
            parts.append(shard_of(named, done))
            for i, row in zip(going, parts[-1].rows, strict=True):
                rows[i].append(dict(row))
        dropped: Counter[str] = sum((Counter(part.dropped) for part in parts), Counter())
        return ShardResult([row for own in rows for row in own], len(items), dropped, **tokens_of(parts))

    out.sharded("responses", dialogues, settings.scorer.shard_size, process, "prompts", scorer, spread=True)


def questions(dialogue: Dialogue) -> list[Messages]:
    """The dialogue's messages up to its first open question, then each further one by itself.

    A question is open if no answer follows it; a dialogue that ends in one question has one part.
    """
    messages = [{"role": m.role, "content": m.content} for m in dialogue.messages]
    first = len(messages)
    while first > 1 and messages[first - 2]["role"] == messages[first - 1]["role"] == "user":
        first -= 1
    return [tuple(messages[:first]), *((message,) for message in messages[first:])]


def answered_dialogues(dialogues: Sequence[Dialogue], responses: Sequence[Mapping[str, Any]]) -> list[Dialogue]:
    """The dialogue that each row of ``responses`` answers.

    Of several questions in turn the reference is the last one's; the others have none.
    """
    by_id = {dialogue.id: dialogue for dialogue in dialogues}
    result = []
    for row in responses:
        name = row["dialogue_id"]
        dialogue = by_id.get(name) or by_id[name.rpartition("#")[0]]
        if "messages" in row:
            said = tuple(Message(**message) for message in row["messages"])
            reference = dialogue.reference if dialogue.id == name else None
            dialogue = replace(dialogue, id=name, messages=said, reference=reference)
        result.append(dialogue)
    return result


def _after(parts: Sequence[Messages], answers: Sequence[str]) -> Messages:
    """The prompt of the last part: all parts, with the answers to those before it."""
    later = zip(answers, parts[1:], strict=True)
    return (*parts[0], *(m for answer, part in later for m in ({"role": "assistant", "content": answer}, *part)))


def temperature_of(dialogue: Dialogue, config: SelfEvalConfig) -> float:
    """The temperature that a dialogue is answered at: its category's where one is set."""
    return config.temperatures.get(dialogue.category or "", config.sampling.temperature)


def _named(dialogue: Dialogue, chat: Messages, turn: int, turns: int) -> Row:
    if turns == 1:
        return {"dialogue_id": dialogue.id}
    name = dialogue.id if turn == turns - 1 else f"{dialogue.id}#{turn + 1}"
    return {"dialogue_id": name, "messages": [dict(message) for message in chat]}


ALL = "all"
NONE = "(none)"

EXPLANATION = (
    "Means over the answers that have a score; ↑: more of it is better, ↓: less. softmax_combo is normalised over all "
    "answers. d: log p(revised) - log p(answer) per token; confidence: share of answers with d at least the threshold."
)


def table(
    found: Mapping[str, Scores], methods: Sequence[str], categories: Sequence[str | None], cut: Sequence[bool]
) -> list[Row]:
    """Rows of ``metrics.json``: one a method and category, all answers together first.

    Each has ``category, method, n, unscored {reason: n}, mean, better``; ProbDiff's also ``sweep`` {threshold:
    confidence} and ``cut``, the revisions that the limit of tokens ended.
    """
    places: dict[str, list[int]] = {ALL: list(range(len(categories)))}
    if len(set(categories)) > 1:
        for category in sorted({category or NONE for category in categories}):
            places[category] = [i for i in places[ALL] if (categories[i] or NONE) == category]
    rows = []
    for category, chosen in places.items():
        for method in methods:
            values = [found[method].values[i] for i in chosen]
            numbers = [v for v in values if not isinstance(v, Unscored)]
            row: Row = {"category": category, "method": method, "n": len(numbers)}
            row |= {"unscored": dict(Counter(v.reason for v in values if isinstance(v, Unscored)))}
            row |= {"mean": probdiff.average(numbers), "better": found[method].better}
            if method == "probdiff":
                row["sweep"] = {f"{delta:g}": share for delta, share in probdiff.confidence_sweep(numbers).items()}
                row["cut"] = sum(cut[i] for i in chosen)
            rows.append(row)
    return rows


def shown(rows: Sequence[Row]) -> Table:
    """The rows as a table: a line a category, columns the methods' means and ProbDiff's confidence by threshold."""
    lines: dict[str, Row] = {}
    for row in rows:
        answers = row["n"] + sum(row["unscored"].values())
        cells = lines.setdefault(row["category"], {"category": row["category"], "n": answers})
        cells[f"{row['method']} {'↑' if row['better'] > 0 else '↓'}"] = number(row["mean"], 4)
        cells |= {f"confidence {delta} %": percent(share) for delta, share in row.get("sweep", {}).items()}
    lost = (f"Without {r['method']}: {r['unscored']}." for r in rows if r["category"] == ALL and r["unscored"])
    columns: Columns = {name: itemgetter(name) for name in lines[ALL]}
    return Table.of("Self-evaluation", lines.values(), columns, " ".join([EXPLANATION, *lost]))


SEE = "the answers are in responses-*.jsonl; too_long: lower selfeval.sampling.max_new_tokens"


def run(settings: SelfEvalSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``responses`` and ``scores-GROUP`` shards, ``scores.jsonl``, ``metrics.json`` and a page.

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
    found, cut = dict[str, Scores](), [False] * len(dialogues)
    for group, members in groups(settings.selfeval.methods).items():
        given = list(read_rows(out.directory, f"scores-{group}"))
        found |= {m: Scores(m, [value_of(row[m]) for row in given], better(m)) for m in members}
        cut = [was or row.get("cut", False) for was, row in zip(cut, given, strict=True)]
    reasons = Counter[str]() + sum((scores.unscored for scores in found.values()), Counter())
    if reasons.total() == len(found) * len(dialogues):
        raise DataError(f"no answer could be scored: {causes(reasons, {}, SEE)}")
    found |= {method: assemble(found, method) for method in settings.selfeval.methods}
    rows = table(found, settings.selfeval.methods, [d.category for d in dialogues], cut)
    told = ({"id": d.id, "category": d.category} for d in dialogues)
    scored = ({name: scores.plain(i) for name, scores in found.items()} for i in range(len(dialogues)))
    whole = zip(told, responses, scored, strict=True)
    out.write_rows("scores", ({**row, "response": said["text"], "scores": each} for row, said, each in whole))
    out.write_json("metrics", rows)
    out.track.log({f"{row['category']}/{row['method']}": row["mean"] for row in rows if row["mean"] is not None})
    title = f"Self-evaluation: {settings.scored_model.path}, {len(dialogues)} prompts"
    out.tell([title, *table_lines(shown(rows))])
    write_report(out, title, [shown(rows)], "metrics.json")


def _score(
    group: str,
    members: Sequence[str],
    dialogues: Sequence[Dialogue],
    responses: Sequence[Row],
    scorer: Callable[[], TokenScorer],
    settings: SelfEvalSettings,
    out: StageRun,
) -> None:
    """The scores of a group and what else it found (ProbDiff's revisions), by shards."""

    def process(index: int, items: Sequence[tuple[Dialogue, Row]]) -> ShardResult:
        ready, seed = scorer(), derive_seed(out.shard_seed(index), group)
        before = ready.usage
        samples = [replace(sample_of(d, r["text"]), temperature=temperature_of(d, settings.selfeval)) for d, r in items]
        found = score(ready, samples, members, settings.scorer, seed)
        rows: list[Row] = [{m: found[m].plain(i) for m in members} for i in range(len(items))]
        for scores in found.values():
            for row, details in zip(rows, scores.details, strict=bool(scores.details)):
                row |= details
        dropped = {f"{group}:{reason}": n for reason, n in found[members[0]].unscored.items()}
        return ShardResult(rows, len(rows), dropped, **tokens_of([ready.usage - before]))

    items = list(zip(dialogues, responses, strict=True))
    out.sharded(f"scores-{group}", items, settings.scorer.shard_size, process, "answers", scorer, spread=True)
