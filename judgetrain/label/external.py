"""Labels by an external judge, asked in both orders (branching paper, section 4.4: LLM-as-a-Judge).

It compares the responses themselves (a prompt set with a step ``pairwise``), which gives labels. Or it says which of
two critiques with different verdicts, written under one criterion and guideline, is the sounder one (``preference``,
the paper's table 9): each preference that holds in both orders is a preference pair, and the branches label.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.engines.answers import CostProbe, Costs, Estimator, answers_of, described, spending
from judgetrain.engines.base import Step
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.engines.prompting import answer_of
from judgetrain.judges.kinds.prompted import pairwise_questions, verdicts_in
from judgetrain.judges.prompting.prompts import Dialect, judgment_slots
from judgetrain.judges.prompting.replies import Asker, Question, Read, Reply, errors_told, failures_of
from judgetrain.judges.prompting.verdicts import read_preference, read_verdict
from judgetrain.judges.trees.schema import EvaluationTree
from judgetrain.label.config import ExternalConfig, LabelConfig
from judgetrain.label.labels import Label, ensemble_label, vote
from judgetrain.label.stages import LabelSettings, load_external_prompts
from judgetrain.schema import ORDERS, Comparison, Verdict

SHARD = 32
"""Comparisons asked about together; the unit of resume."""
MAX_CONFLICTS = 4
"""Pairs of critiques shown for a comparison: as many as a level gives preference pairs by default."""
ATTEMPTS = 2
"""Times an unreadable reply is asked for; greedy ones only once (:class:`Asker`)."""


class Conflict(NamedTuple):
    """Two critiques by one criterion and guideline, in one order, with different verdicts: X and Y in the slots."""

    nodes: tuple[str, str]
    slots: dict[str, str]


class Case(NamedTuple):
    """What the external judge is asked about one tree, and what the branches say."""

    comparison: Comparison
    conflicts: tuple[Conflict, ...]
    ensemble: Verdict | None


def external_labels(config: LabelConfig, trees: Path, seed: int, out: StageRun) -> "dict[str, External]":
    """What the external judge says by comparison; writes its replies as ``external`` shards, and ``external.json``.

    What a server has answered is kept beside the teacher's answers: other settings of the stage cost nothing again.
    At ``max_requests`` or ``max_tokens`` the stage stops; with a higher limit it goes on.
    Trees with too few readable branches are not asked about: they keep the branches' label, which is none. Where no
    critiques conflict there is nothing to prefer.
    """
    settings = config.external
    prompts, dialect = load_external_prompts(settings)
    cases = list(cases_of(config, trees, dialect, out.seed))
    answers = answers_of(settings.engine, out.home, seed)
    with (
        spending([settings.engine], settings, "label.external", out) as budget,
        loaded_once(lambda: make_engine(settings.engine, answers=answers, budget=budget)) as engine,
    ):

        def process(index: int, items: Sequence[Case]) -> ShardResult:
            seed = derive_seed(out.shard_seed(index), "external")
            return _shard(items, ask(items, Asker(engine(), prompts, settings.sampling, ATTEMPTS), dialect, seed))

        out.sharded("external", cases, SHARD, process, "comparisons", engine, spread=budget is None)
    replies = [[[Reply(**r) for r in q] for q in row["replies"]] for row in read_rows(out.directory, "external")]
    if told := errors_told(r for each in replies for question in each for r in question):
        out.log(f"label: external judge: {told}")
    said = {}
    for case, each in zip(cases, replies, strict=True):
        found = preferences(case.conflicts, each) if case.conflicts else label_of_verdicts(each[0])
        said[case.comparison.id] = replace(found, ensemble=case.ensemble)
    table = {"asked": dialect, **disagreement([*said.values()])}
    out.write_json("external", table)
    out.note("external", table)
    out.log(f"label: external judge: {summary(table)}", keep=True)
    return said


def cases_of(config: LabelConfig, trees: Path, dialect: Dialect, seed: int) -> Iterator[Case]:
    """What the external judge is asked about the trees of a finished stage ``tree``; ``seed`` is the stage's."""
    for row in read_rows(trees, "trees"):
        tree = EvaluationTree.from_row(row)
        ensemble = ensemble_label(tree, config)
        if ensemble.reason == "too_few_readable" or tree.comparison.alone:
            continue
        conflicts = list(conflicting(tree)) if dialect == "preference" else []
        rng = random.Random(derive_seed(seed, "external", tree.comparison.id))
        if dialect == "pairwise" or conflicts:
            chosen = rng.sample(conflicts, min(len(conflicts), MAX_CONFLICTS))
            yield Case(tree.comparison, tuple(chosen), ensemble.verdict)


def conflicting(tree: EvaluationTree) -> Iterator[Conflict]:
    """All pairs of readable judgments by one criterion and guideline, in one order, whose verdicts differ."""
    for criterion, guideline in tree.guidelines():
        readable = [j for j in guideline.judgments if j.verdict is not None and j.order in ORDERS]
        for x, y in combinations(readable, 2):
            if x.order != y.order or x.verdict == y.verdict:
                continue
            shown = judgment_slots(tree.comparison, x.order, criterion.text, guideline.text)
            critiques = [(answer_of(node.text, "\n".join(shown.values())) or "").strip() for node in (x, y)]
            slots = shown | {"judgment_x": critiques[0], "judgment_y": critiques[1]}
            yield Conflict(nodes=(x.id, y.id), slots=slots)


def _questions(conflict: Conflict) -> list[Question]:
    """Which critique is better, in both orders; answers are X or Y as the conflict names them."""
    slots = conflict.slots
    exchanged = slots | {"judgment_x": slots["judgment_y"], "judgment_y": slots["judgment_x"]}
    return [Question("XY", slots), Question("YX", exchanged, {"X": "Y", "Y": "X"}.__getitem__)]


def ask(cases: Sequence[Case], asker: Asker, dialect: Dialect, seed: int) -> list[list[list[Reply]]]:
    """By comparison, the replies to each of its questions: one on its responses, or one for each conflict."""
    if dialect == "pairwise":
        asked = [[[*pairwise_questions(case.comparison)]] for case in cases]
        read: Read = asker.prompts.reads.verdict if asker.prompts.reads else read_verdict
    else:
        asked, read = [[_questions(conflict) for conflict in case.conflicts] for case in cases], read_preference
    step: Step = "pairwise" if dialect == "pairwise" else "preference"
    replies = iter(asker.ask([questions for each in asked for questions in each], step, read, seed))
    return [[next(replies) for _ in each] for each in asked]


def _shard(cases: Sequence[Case], asked: Sequence[Sequence[Sequence[Reply]]]) -> ShardResult:
    rows: list[dict[str, Any]] = []
    for case, questions in zip(cases, asked, strict=True):
        said = [[r.to_row() for r in question] for question in questions]
        pairs = [list(c.nodes) for c in case.conflicts]
        rows.append({"comparison_id": case.comparison.id, "pairs": pairs, "replies": said})
    replies = [r for questions in asked for question in questions for r in question]
    failures = {f"external:{reason}": n for reason, n in failures_of(replies).items()}
    return ShardResult(rows, 0, failures, **tokens_of(replies), counts_out=0)


@dataclass(frozen=True, kw_only=True)
class External:
    """What the external judge says of one comparison.

    ``orders`` are the answers that it gave to the same question in both orders, None where unreadable. ``label`` is
    that of its verdicts on the responses. Where it compares critiques there is none: ``nodes`` are then the ids of the
    preferred and the other critique of each pair that both orders decide alike. ``ensemble`` is the branches' verdict,
    to compare with.
    """

    orders: tuple[tuple[str | None, str | None], ...]
    failures: dict[str, int]
    label: Label | None = None
    nodes: tuple[tuple[str, str], ...] = ()
    ensemble: Verdict | None = None


def label_of_verdicts(replies: Sequence[Reply]) -> External:
    """The label that verdicts on the responses give, where both orders say the same."""
    first, second = verdicts_in(replies, "AB"), verdicts_in(replies, "BA")
    order_ab, order_ba = vote(first)[0], vote(second)[0]
    agreed = order_ab if order_ab == order_ba else None
    votes = [*first, *second, *[None for r in replies if r.answer is None]]
    _, share, counts = vote(votes)
    reason = "external_unreadable" if None in (order_ab, order_ba) else "external_orders_disagree"
    label = Label(
        verdict=agreed,
        share=share,
        votes=counts,
        readable=1 - counts["unreadable"] / len(votes),
        reason=None if agreed else reason,
        source="external",
    )
    return External(label=label, orders=((order_ab, order_ba),), failures=dict(failures_of(replies)))


def preferences(conflicts: Sequence[Conflict], replies: Sequence[Sequence[Reply]]) -> External:
    """Which critiques are preferred in both orders; ``replies``: those to each conflict."""
    orders = tuple((_answer(each, "XY"), _answer(each, "YX")) for each in replies)
    held = [(c, first) for c, (first, second) in zip(conflicts, orders, strict=True) if first and first == second]
    return External(
        orders=orders,
        failures=dict(failures_of(r for each in replies for r in each)),
        nodes=tuple(c.nodes if better == "X" else c.nodes[::-1] for c, better in held),
    )


def _answer(replies: Sequence[Reply], shown: str) -> str | None:
    answers = [str(r.answer) for r in replies if r.shown == shown and r.answer is not None]
    return answers[-1] if answers else None


def disagreement(said: Sequence[External]) -> dict[str, Any]:
    """How often the external judge disagrees; each entry has what was compared, and the ``rate`` (0 to 1).

    ``orders``: with itself, when the order is exchanged. ``ensemble``: with the branches' label, where both have one
    (the paper, section 4.4: 20%).
    """
    labels = [(o.label, o.ensemble) for o in said if o.label]
    return {
        "comparisons": len(said),
        "labels": dict(sorted(Counter(label.reason or f"label_{label.verdict}" for label, _ in labels).items())),
        "failures": dict(sorted(sum((Counter(o.failures) for o in said), Counter[str]()).items())),
        "orders": _rate(order for o in said for order in o.orders),
        "ensemble": _rate((label.verdict, other) for label, other in labels),
    }


def _rate(answers: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    compared = [first != second for first, second in answers if first is not None and second is not None]
    rate = round(sum(compared) / len(compared), 6) if compared else None
    return {"compared": len(compared), "disagree": sum(compared), "rate": rate}


def summary(table: dict[str, Any]) -> str:
    """The table in one line."""
    labelled = sum(n for reason, n in table["labels"].items() if reason.startswith("label_"))
    parts = [f"{labelled} of {table['comparisons']} comparisons labelled"] if table["labels"] else []
    for what, found in (("with itself", table["orders"]), ("with the branches", table["ensemble"])):
        parts += [f"{found['rate']:.1%} of {found['compared']} disagree {what}"] if found["compared"] else []
    return ", ".join(parts)


def estimate_external(settings: ExternalConfig, cases: Sequence[Case]) -> Costs:
    """The expected cost of the external judge's labels; what is asked again because it could not be read adds to it."""
    prompts, dialect = load_external_prompts(settings)
    probe = CostProbe()
    ask(cases, Asker(Estimator(probe), prompts, settings.sampling, 1), dialect, 0)
    return probe.costs


def estimated(settings: LabelSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage label."""
    config = settings.label.external
    _, dialect = load_external_prompts(config)
    cases = list(cases_of(settings.label, inputs()["tree"], dialect, derive_seed(settings.seed, "label")))
    yield f"label: dry run for {config.engine.model_name}: {len(cases)} comparisons, expected"
    yield from described(estimate_external(config, cases), config, "label.external")
