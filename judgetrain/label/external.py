"""Labels by an external judge, asked in both orders (branching paper, section 4.4: LLM-as-a-Judge).

It compares the responses themselves (a prompt set with a step ``pairwise``), which gives labels. Or it says which of
two critiques with different verdicts, written under one criterion and guideline, is the sounder one (``preference``,
the paper's table 9): each preference that holds in both orders is a preference pair, and the branches label.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.amounts import amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.answers import CostEstimator, CostProbe, Costs, answers_of, described, spending
from judgetrain.engines.base import Step
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.judges.kinds.prompted import pairwise_questions, verdicts_in
from judgetrain.judges.prompting.prompts import Dialect, judgment_slots
from judgetrain.judges.prompting.replies import Asker, Question, Read, Reply, errors_sentence, failures_of
from judgetrain.judges.prompting.verdicts import read_preference, read_verdict
from judgetrain.judges.trees.schema import EvaluationTree, JudgmentNode
from judgetrain.label.config import ExternalConfig, LabelConfig
from judgetrain.label.labels import Label, ensemble_label, vote
from judgetrain.label.stages import LabelSettings, load_external_prompts
from judgetrain.schema import ORDERS, Comparison, Verdict
from judgetrain.thoughts import answer_of

SHARD = 32
"""Comparisons asked about together; the unit of resume."""
MAX_CONFLICTS = 4
"""Pairs of critiques shown for a comparison: as many as a level gives preference pairs by default, since each is paid
for."""
ATTEMPTS = 2
"""Times an unreadable reply is asked for; greedy ones only once (:class:`Asker`)."""


class Conflict(NamedTuple):
    """Two critiques by one criterion and guideline, in one order, with different verdicts: X and Y in the slots."""

    nodes: tuple[str, str]
    slots: dict[str, str]


class ExternalQuestion(NamedTuple):
    """A question to the external judge about one tree, with the branches' answer."""

    comparison: Comparison
    conflicts: tuple[Conflict, ...]
    ensemble: Verdict | None


def external_labels(config: LabelConfig, trees: Path, seed: int, out: StageRun) -> "dict[str, External]":
    """Ask the external judge about every tree, and return its answers by comparison id.

    Its replies are written as ``external`` shards, and how often it disagrees as ``external.json``. What a server has
    answered is kept beside the teacher's answers: other settings of the stage cost nothing again. At ``max_requests``
    or ``max_tokens`` the stage stops; with a higher limit it goes on. Trees with too few readable branches are not
    asked about: they keep the branches' label, which is none. Where no critiques conflict there is nothing to prefer.
    """
    settings = config.external
    prompts, dialect = load_external_prompts(settings)
    cases = list(cases_of(config, trees, dialect, out.seed))
    answers = answers_of(settings.engine, out.home, seed)
    with (
        spending([settings.engine], settings, "label.external", out) as budget,
        loaded_once(lambda: make_engine(settings.engine, answers=answers, budget=budget)) as engine,
    ):

        def process(index: int, shard: Sequence[ExternalQuestion]) -> ShardResult:
            seed = derive_seed(out.shard_seed(index), "external")
            asker = Asker(engine(), prompts, settings.sampling, ATTEMPTS)
            return _shard(shard, ask(shard, asker, dialect, seed))

        # A budget is counted in this process, so its requests stay here.
        work = Work(process=process, load=engine, spread=budget is None)
        out.sharded("external", cases, SHARD, work, "comparisons")

    # From the shards, so that a run that goes on reads what earlier ones have asked.
    replies = [_replies_of(row) for row in read_rows(out.directory, "external")]
    all_replies = []
    for questions in replies:
        for question in questions:
            all_replies.extend(question)
    errors = errors_sentence(all_replies)
    if errors:
        out.log(f"label: external judge: {errors}")
    answers_by_comparison = {}
    for case, questions in zip(cases, replies, strict=True):
        # Only where critiques are compared has a case conflicts.
        if case.conflicts:
            answer = preferences(case.conflicts, questions)
        else:
            answer = label_of_verdicts(questions[0])
        answers_by_comparison[case.comparison.id] = replace(answer, ensemble=case.ensemble)
    table = {"asked": dialect, **disagreement([*answers_by_comparison.values()])}
    out.write_json("external", table)
    out.note("external", table)
    out.log(f"label: external judge: {summary(table)}", keep=True)
    return answers_by_comparison


def _replies_of(row: Mapping[str, Any]) -> list[list[Reply]]:
    """Return a comparison's replies, by question."""
    questions = []
    for replies in row["replies"]:
        questions.append([Reply(**reply) for reply in replies])
    return questions


def cases_of(config: LabelConfig, trees: Path, dialect: Dialect, seed: int) -> Iterator[ExternalQuestion]:
    """Yield what the external judge is asked about the trees of a finished stage ``tree``; ``seed`` is the stage's."""
    for row in read_rows(trees, "trees"):
        tree = EvaluationTree.from_row(row)
        ensemble = ensemble_label(tree, config)
        # Neither would get a label or a pair by the answer, which is paid for.
        if ensemble.reason == "too_few_readable" or tree.comparison.alone:
            continue
        if dialect == "pairwise":
            yield ExternalQuestion(tree.comparison, (), ensemble.verdict)
            continue
        conflicts = list(conflicting(tree))
        if conflicts:
            # A draw of its own for each comparison, so that a part of the trees draws the same.
            rng = random.Random(derive_seed(seed, "external", tree.comparison.id))
            drawn = rng.sample(conflicts, min(len(conflicts), MAX_CONFLICTS))
            yield ExternalQuestion(tree.comparison, tuple(drawn), ensemble.verdict)


def conflicting(tree: EvaluationTree) -> Iterator[Conflict]:
    """Yield the pairs of readable judgments by one criterion and guideline, in one order, whose verdicts differ."""
    for criterion, guideline in tree.guidelines():
        readable = []
        for judgment in guideline.judgments:
            # A judgment of one response prefers none, so that it contradicts none.
            if judgment.verdict is not None and judgment.order in ORDERS:
                readable.append(judgment)
        for x, y in combinations(readable, 2):
            if x.order != y.order or x.verdict == y.verdict:
                continue
            shown = judgment_slots(tree.comparison, x.order, criterion.text, guideline.text)
            slots = shown | {"judgment_x": _critique(x, shown), "judgment_y": _critique(y, shown)}
            yield Conflict(nodes=(x.id, y.id), slots=slots)


def _critique(judgment: JudgmentNode, slots: Mapping[str, str]) -> str:
    """Return what a judgment says, without the reasoning before it; ``slots``: what it was shown."""
    return (answer_of(judgment.text, "\n".join(slots.values())) or "").strip()


def _questions(conflict: Conflict) -> list[Question]:
    """Ask which critique is better, in both orders; answers are X or Y as the conflict names them."""
    slots = conflict.slots
    # The reply to the exchanged question names the other letter, which is turned back before it is counted.
    exchanged = slots | {"judgment_x": slots["judgment_y"], "judgment_y": slots["judgment_x"]}
    return [Question("XY", slots), Question("YX", exchanged, {"X": "Y", "Y": "X"}.__getitem__)]


def ask(cases: Sequence[ExternalQuestion], asker: Asker, dialect: Dialect, seed: int) -> list[list[list[Reply]]]:
    """Return by comparison the replies to each of its questions: one on its responses, or one for each conflict."""
    step: Step
    read: Read
    if dialect == "pairwise":
        step = "pairwise"
        # A prompt set may say itself how its verdicts are written.
        read = read_verdict
        if asker.prompts.reply_form:
            read = asker.prompts.reply_form.verdict
        questions = [[[*pairwise_questions(case.comparison)]] for case in cases]
    else:
        step = "preference"
        read = read_preference
        questions = []
        for case in cases:
            questions.append([_questions(conflict) for conflict in case.conflicts])
    # One call for all, so that an engine has the largest batch.
    flat = list(chain.from_iterable(questions))
    replies = iter(asker.ask(flat, step, read, seed))
    replies_by_case = []
    for of_case in questions:
        replies_by_case.append(list(islice(replies, len(of_case))))
    return replies_by_case


def _shard(cases: Sequence[ExternalQuestion], answered: Sequence[Sequence[Sequence[Reply]]]) -> ShardResult:
    """Return the replies to each of the cases' questions as a finished shard."""
    rows: list[dict[str, Any]] = []
    replies: list[Reply] = []
    for case, questions in zip(cases, answered, strict=True):
        row: dict[str, Any] = {"comparison_id": case.comparison.id}
        row["pairs"] = [list(conflict.nodes) for conflict in case.conflicts]
        row["replies"] = [[reply.to_row() for reply in question] for question in questions]
        rows.append(row)
        for question in questions:
            replies += question
    failures = {f"external:{reason}": number for reason, number in failures_of(replies).items()}
    return ShardResult(rows, 0, failures, **tokens_of(replies), counts_out=0)


@dataclass(frozen=True, kw_only=True)
class External:
    """An external judge's answers about one comparison.

    Args:
        orders: its answers to the same question in both orders, None where unreadable.
        failures: how many replies could not be read, by reason.
        label: of its verdicts on the responses; None where it compares critiques.
        nodes: where it compares critiques, the ids of the preferred and the other critique of each pair that both
            orders decide alike.
        ensemble: the branches' verdict, to compare with.
    """

    orders: tuple[tuple[str | None, str | None], ...]
    failures: dict[str, int]
    label: Label | None = None
    nodes: tuple[tuple[str, str], ...] = ()
    ensemble: Verdict | None = None


def label_of_verdicts(replies: Sequence[Reply]) -> External:
    """Return the label that verdicts on the responses give, where both orders say the same."""
    first = verdicts_in(replies, "AB")
    second = verdicts_in(replies, "BA")
    order_ab = vote(first)[0]
    order_ba = vote(second)[0]
    unreadable = [None] * sum(reply.answer is None for reply in replies)
    votes = [*first, *second, *unreadable]
    _, share, counts = vote(votes)
    reason = None
    verdict = order_ab
    if order_ab is None or order_ba is None:
        reason = "external_unreadable"
        verdict = None
    elif order_ab != order_ba:
        # A verdict that follows the order says nothing of the responses.
        reason = "external_orders_disagree"
        verdict = None
    label = Label(
        verdict=verdict,
        share=share,
        votes=counts,
        readable=1 - counts["unreadable"] / len(votes),
        reason=reason,
        source="external",
    )
    return External(label=label, orders=((order_ab, order_ba),), failures=dict(failures_of(replies)))


def preferences(conflicts: Sequence[Conflict], replies: Sequence[Sequence[Reply]]) -> External:
    """Return which critiques are preferred in both orders; ``replies``: those to each conflict."""
    orders = []
    nodes = []
    for conflict, to_conflict in zip(conflicts, replies, strict=True):
        first = _answer(to_conflict, "XY")
        second = _answer(to_conflict, "YX")
        orders.append((first, second))
        if first and first == second:
            # The preferred one stands first.
            x, y = conflict.nodes
            if first == "X":
                nodes.append((x, y))
            else:
                nodes.append((y, x))
    failures = failures_of(list(chain.from_iterable(replies)))
    return External(orders=tuple(orders), failures=dict(failures), nodes=tuple(nodes))


def _answer(replies: Sequence[Reply], shown: str) -> str | None:
    """Return the last readable answer to a question as it was shown."""
    # An unreadable reply was asked for again: the last one that can be read is the answer.
    for reply in reversed(replies):
        if reply.shown == shown and reply.answer is not None:
            return str(reply.answer)
    return None


def disagreement(answers: Sequence[External]) -> dict[str, Any]:
    """Return how often the external judge disagrees; each entry has what was compared, and the ``rate`` (0 to 1).

    ``orders``: with itself, when the order is exchanged. ``ensemble``: with the branches' label, where both have one
    (the paper, section 4.4: 20%).
    """
    labels = Counter[str]()
    failures = Counter[str]()
    by_order: list[tuple[str | None, str | None]] = []
    with_branches: list[tuple[Verdict | None, Verdict | None]] = []
    for answer in answers:
        failures.update(answer.failures)
        by_order.extend(answer.orders)
        label = answer.label
        if label is not None:
            labels[label.reason or f"label_{label.verdict}"] += 1
            with_branches.append((label.verdict, answer.ensemble))
    return {
        "comparisons": len(answers),
        "labels": dict(sorted(labels.items())),
        "failures": dict(sorted(failures.items())),
        "orders": _rate(by_order),
        "ensemble": _rate(with_branches),
    }


def _rate(answers: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Return how many pairs of answers there are, and how many differ."""
    compared = 0
    disagree = 0
    for first, second in answers:
        if first is not None and second is not None:
            compared += 1
            disagree += first != second
    rate = None
    if compared:
        rate = round(disagree / compared, 6)
    return {"compared": compared, "disagree": disagree, "rate": rate}


def summary(table: dict[str, Any]) -> str:
    """Return the table in one line."""
    parts = []
    if table["labels"]:
        labelled = 0
        for reason, number in table["labels"].items():
            # The others are reasons why there is no label.
            if reason.startswith("label_"):
                labelled += number
        parts.append(f"{labelled} of {amount(table['comparisons'], 'comparison')} labelled")
    for with_whom, rate in (("with itself", table["orders"]), ("with the branches", table["ensemble"])):
        if rate["compared"]:
            parts.append(f"{rate['rate']:.1%} of {rate['compared']} disagree {with_whom}")
    return ", ".join(parts)


def estimate_external(settings: ExternalConfig, cases: Sequence[ExternalQuestion]) -> Costs:
    """Return the expected cost of the external judge's labels; what is asked again because unreadable adds to it."""
    prompts, dialect = load_external_prompts(settings)
    probe = CostProbe()
    ask(cases, Asker(CostEstimator(probe), prompts, settings.sampling, 1), dialect, 0)
    return probe.costs


def estimated(settings: LabelSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """Yield the lines of a dry run of stage label."""
    config = settings.label.external
    _, dialect = load_external_prompts(config)
    cases = list(cases_of(settings.label, inputs()["tree"], dialect, derive_seed(settings.seed, "label")))
    yield f"label: dry run for {config.engine.model_name}: {amount(len(cases), 'comparison')}, expected"
    yield from described(estimate_external(config, cases), config, "label.external")
