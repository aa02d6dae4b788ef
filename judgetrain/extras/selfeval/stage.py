"""Run stage ``selfeval``: an LLM answers prompts and scores its own answers (glass-box and ProbDiff papers)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.amounts import amount
from judgetrain.artifacts.executor import Work
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
        seed = derive_seed(out.shard_seed(index), "responses")
        return _answer(items, scorer(), settings.selfeval, seed)

    work = Work(process=process, load=scorer, spread=True)
    out.sharded("responses", dialogues, settings.scorer.shard_size, work, "prompts")


def _answer(items: Sequence[Dialogue], scorer: TokenScorer, config: SelfEvalConfig, seed: int) -> ShardResult:
    """Return the answers to dialogues as a finished shard, question by question; see :func:`respond`."""
    questions_of = [questions(dialogue) for dialogue in items]
    rows: list[list[Row]] = [[] for _ in items]
    parts: list[ShardResult] = []
    # Turn by turn over all dialogues, so that each turn is one batch; a later question needs the answer before it.
    for turn in range(max(map(len, questions_of), default=0)):
        requests = []
        row_starts = []
        places = []
        for place, (dialogue, parts_of_chat) in enumerate(zip(items, questions_of, strict=True)):
            answers = [row["text"] for row in rows[place]]
            # Either the dialogue has no such question, or an earlier one got no answer, without which this one means
            # nothing.
            if turn >= len(parts_of_chat) or not all(answers):
                continue
            chat = _after(parts_of_chat[: turn + 1], answers)
            sampling = replace(Sampling.of(config.sampling), temperature=temperature_of(dialogue, config))
            requests.append(Request(messages=chat, sampling=sampling))
            row_starts.append(_row_start(dialogue, chat, turn, len(parts_of_chat)))
            places.append(place)
        # The first turn has the shard's own seed, as where there is no other.
        turn_seed = seed
        if turn:
            turn_seed = derive_seed(seed, turn)
        part = shard_of(row_starts, scorer.generate(requests, turn_seed))
        parts.append(part)
        for place, row in zip(places, part.rows, strict=True):
            rows[place].append(dict(row))
    dropped = Counter[str]()
    for part in parts:
        dropped.update(part.dropped)
    return ShardResult([*chain.from_iterable(rows)], len(items), dropped, **tokens_of(parts))


def questions(dialogue: Dialogue) -> list[Messages]:
    """Return the dialogue's messages up to its first open question, then each further one by itself.

    A question is open if no answer follows it; a dialogue that ends in one question has one part.
    """
    messages = [{"role": message.role, "content": message.content} for message in dialogue.messages]
    first = len(messages)
    # From the end, as long as two messages of the user follow each other.
    while first > 1 and messages[first - 2]["role"] == messages[first - 1]["role"] == "user":
        first -= 1
    return [tuple(messages[:first]), *((message,) for message in messages[first:])]


def answered_dialogues(dialogues: Sequence[Dialogue], responses: Sequence[Mapping[str, Any]]) -> list[Dialogue]:
    """Return the dialogue that each row of ``responses`` answers.

    Of several questions in turn the reference is the last one's; the others have none.
    """
    by_id = {dialogue.id: dialogue for dialogue in dialogues}
    answered = []
    for row in responses:
        name = row["dialogue_id"]
        # An earlier question's id is that of its dialogue with "#" and a number.
        dialogue = by_id.get(name) or by_id[name.rpartition("#")[0]]
        if "messages" in row:
            messages = tuple(Message(**message) for message in row["messages"])
            reference = None
            if dialogue.id == name:
                reference = dialogue.reference
            dialogue = replace(dialogue, id=name, messages=messages, reference=reference)
        answered.append(dialogue)
    return answered


def _after(parts: Sequence[Messages], answers: Sequence[str]) -> Messages:
    """Return the prompt of the last part: all parts, with the answers to those before it."""
    chat = [*parts[0]]
    for answer, part in zip(answers, parts[1:], strict=True):
        chat.append({"role": "assistant", "content": answer})
        chat += part
    return tuple(chat)


def temperature_of(dialogue: Dialogue, config: SelfEvalConfig) -> float:
    """Return the temperature that a dialogue is answered at: its category's where one is set."""
    return config.temperatures.get(dialogue.category or "", config.sampling.temperature)


def _row_start(dialogue: Dialogue, chat: Messages, turn: int, turns: int) -> Row:
    """Return the columns of an answer's row that say what is answered.

    Args:
        dialogue: with the questions.
        chat: the whole prompt.
        turn: number of the question, from 0.
        turns: how many questions there are.
    """
    if turns == 1:
        return {"dialogue_id": dialogue.id}
    name = dialogue.id
    if turn < turns - 1:
        name = f"{dialogue.id}#{turn + 1}"
    return {"dialogue_id": name, "messages": [dict(message) for message in chat]}


ALL = "all"
NONE = "(none)"

EXPLANATION = (
    "Means over the answers that have a score; ↑: more of it is better, ↓: less. softmax_combo is normalised over all "
    "answers. d: log p(revised) - log p(answer) per token; confidence: share of answers with d at least the threshold."
)


def table(
    scores_of: Mapping[str, Scores], methods: Sequence[str], categories: Sequence[str | None], cut: Sequence[bool]
) -> list[Row]:
    """Return the rows of ``metrics.json``: one a method and category, all answers together first.

    Each has ``category, method, n, unscored {reason: n}, mean, better``; ProbDiff's also ``sweep`` {threshold:
    confidence} and ``cut``, the number of revisions that the limit of tokens ended.

    Args:
        scores_of: all answers' scores by method.
        methods: in the order of the rows.
        categories: of the answers.
        cut: for each answer, if its revision was cut.
    """
    # All answers come first, and then categories by name.
    places: dict[str, list[int]] = {ALL: list(range(len(categories)))}
    names = [category or NONE for category in categories]

    # A single category's row would repeat that of all.
    if len(set(categories)) > 1:
        for name in sorted(set(names)):
            places[name] = [place for place in places[ALL] if names[place] == name]
    rows = []
    for category, chosen in places.items():
        for method in methods:
            numbers = []
            unscored = Counter[str]()
            for place in chosen:
                value = scores_of[method].values[place]
                if isinstance(value, Unscored):
                    unscored[value.reason] += 1
                else:
                    numbers.append(value)
            row: Row = {
                "category": category,
                "method": method,
                "n": len(numbers),
                "unscored": dict(unscored),
                "mean": probdiff.average(numbers),
                "better": scores_of[method].better,
            }
            if method == "probdiff":
                row["sweep"] = {f"{delta:g}": share for delta, share in probdiff.confidence_sweep(numbers).items()}
                row["cut"] = sum(cut[place] for place in chosen)
            rows.append(row)
    return rows


def shown(rows: Sequence[Row]) -> Table:
    """Return the rows as a table: a line a category, columns the methods' means and ProbDiff's confidences."""
    lines: dict[str, Row] = {}
    remarks = [EXPLANATION]
    for row in rows:
        answers = row["n"] + sum(row["unscored"].values())
        # Rows of one category, a row a method, become one line.
        cells = lines.setdefault(row["category"], {"category": row["category"], "n": answers})
        arrow = "↓"
        if row["better"] > 0:
            arrow = "↑"
        cells[f"{row['method']} {arrow}"] = number(row["mean"], 4)
        for delta, share in row.get("sweep", {}).items():
            cells[f"confidence {delta} %"] = percent(share)
        # The reasons of all answers together; those by category are in metrics.json.
        if row["category"] == ALL and row["unscored"]:
            remarks.append(f"Without {row['method']}: {row['unscored']}.")
    columns: Columns = {name: itemgetter(name) for name in lines[ALL]}
    return Table.of("Self-evaluation", lines.values(), columns, " ".join(remarks))


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
        # Read back, as some shards may be an earlier run's.
        responses = list(read_rows(out.directory, "responses"))
        # One dialogue an answer from here on: of several questions each is scored by itself.
        dialogues = answered_dialogues(dialogues, responses)
        scoring = _Scoring(list(zip(dialogues, responses, strict=True)), scorer, settings, out)
        for group, members in groups(settings.selfeval.methods).items():
            scoring.write(group, members)
    scores_of, cut = _read_scores(settings.selfeval.methods, len(dialogues), out)
    rows = table(scores_of, settings.selfeval.methods, [dialogue.category for dialogue in dialogues], cut)
    score_rows = []
    for place, (dialogue, row) in enumerate(zip(dialogues, responses, strict=True)):
        scores = {method: values.plain(place) for method, values in scores_of.items()}
        names = {"id": dialogue.id, "category": dialogue.category}
        score_rows.append({**names, "response": row["text"], "scores": scores})
    out.write_rows("scores", score_rows)
    out.write_json("metrics", rows)
    # A tracker takes numbers alone.
    out.track.log({f"{row['category']}/{row['method']}": row["mean"] for row in rows if row["mean"] is not None})
    title = f"Self-evaluation: {settings.scored_model.path}, {amount(len(dialogues), 'prompt')}"
    out.tell([title, *table_lines(shown(rows))])
    write_report(out, title, [shown(rows)], "metrics.json")


def _read_scores(methods: Sequence[str], answers: int, out: StageRun) -> tuple[dict[str, Scores], list[bool]]:
    """Return all answers' scores by method, and of each answer if its revision was cut.

    Args:
        methods: to read.
        answers: number of them.
        out: the stage's directory.

    Raises:
        DataError: no answer could be scored.
    """
    scores_of: dict[str, Scores] = {}
    cut = [False] * answers
    for group, members in groups(methods).items():
        rows = list(read_rows(out.directory, f"scores-{group}"))
        for member in members:
            scores_of[member] = Scores(member, [value_of(row[member]) for row in rows], better(member))
        for place, row in enumerate(rows):
            cut[place] = cut[place] or row.get("cut", False)
    reasons = Counter[str]()
    for scores in scores_of.values():
        reasons.update(scores.unscored)
    if reasons.total() == len(scores_of) * answers:
        raise DataError(f"no answer could be scored: {causes(reasons, {}, SEE)}")
    # Some methods are made of others, which are all there now.
    for method in methods:
        scores_of[method] = assemble(scores_of, method)
    return scores_of, cut


@dataclass(frozen=True)
class _Scoring:
    """Scores answers by one group of methods after another.

    Args:
        answers: each dialogue, and the row of its answer.
        scorer: returns the model, which is loaded when it is first called.
        settings: of the stage.
        out: the stage's directory.
    """

    answers: Sequence[tuple[Dialogue, Row]]
    scorer: Callable[[], TokenScorer]
    settings: SelfEvalSettings
    out: StageRun

    def write(self, group: str, members: Sequence[str]) -> None:
        """Write the scores of a group of methods, and what else it finds (ProbDiff's revisions), by shards."""

        def process(index: int, items: Sequence[tuple[Dialogue, Row]]) -> ShardResult:
            return self._shard(items, group, members, derive_seed(self.out.shard_seed(index), group))

        size = self.settings.scorer.shard_size
        work = Work(process=process, load=self.scorer, spread=True)
        self.out.sharded(f"scores-{group}", self.answers, size, work, "answers")

    def _shard(
        self, items: Sequence[tuple[Dialogue, Row]], group: str, members: Sequence[str], seed: int
    ) -> ShardResult:
        """Return the scores of some answers by a group of methods as a finished shard."""
        loaded = self.scorer()

        # The scorer counts all tokens since it was loaded, those of earlier shards too.
        usage_before = loaded.usage
        samples = []
        for dialogue, row in items:
            # An answer's probability is that at the temperature at which it was sampled.
            temperature = temperature_of(dialogue, self.settings.selfeval)
            samples.append(replace(sample_of(dialogue, row["text"]), temperature=temperature))
        scores_of = score(loaded, samples, members, self.settings.scorer, seed)
        rows: list[Row] = []
        for place in range(len(items)):
            rows.append({member: scores_of[member].plain(place) for member in members})
        for scores in scores_of.values():
            # Most methods have no details.
            for row, details in zip(rows, scores.details, strict=bool(scores.details)):
                row |= details
        # Methods of a group share what they read of the model, and with it what could not be scored: one speaks for
        # all.
        unscored = scores_of[members[0]].unscored
        dropped = {f"{group}:{reason}": count for reason, count in unscored.items()}
        return ShardResult(rows, len(rows), dropped, **tokens_of([loaded.usage - usage_before]))
