"""Stage ``teacher``: multi-branch evaluations by an external model or an annotator, or from a file (section 4.2)."""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from judgetrain.amounts import agree, amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import named_queries
from judgetrain.data.prompt_keys import is_held_out, key_of_dialogue
from judgetrain.data.rows.reader import RowReader
from judgetrain.data.rubrics import read_rubric
from judgetrain.data.sources import read
from judgetrain.engines.answers import CostEstimator, CostProbe, Costs, answers_of, described, spending
from judgetrain.engines.base import Engine, Request, Sampling
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.engines.loading import load_tokenizer, own_context
from judgetrain.engines.prompting import encode
from judgetrain.errors import DataError, causes
from judgetrain.judges.prompting.parsing import parse_criteria, parse_judgment, render_criteria
from judgetrain.judges.prompting.prompts import judgment_slots, judgment_step, load_prompt_set
from judgetrain.judges.trees.config import TREE_READS, StepsConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow, material_of, sample_criteria, whole_criteria
from judgetrain.judges.trees.schema import (
    NOT_SAMPLED,
    CriterionNode,
    EvaluationTree,
    GuidelineNode,
    JudgmentNode,
    shard_of,
)
from judgetrain.label.config import GivenEngineConfig, TeacherConfig
from judgetrain.label.corrections import LEFT_OUT
from judgetrain.label.examples import Prompter, sft_row
from judgetrain.label.labels import HINTS, KnownLabels, each_in, judged, label_under, taught_rubric
from judgetrain.label.stages import TeacherSettings
from judgetrain.schema import ORDERS, Comparison, Order

KEY = "teacher.evaluations"
ComparedTexts = tuple[str, str, str, str]
"""The dialogue before the query, the query, and the two responses."""


def read_evaluations(path: str) -> Iterator[EvaluationTree]:
    """Yield the evaluations of a file or glob of JSON lines, one comparison each.

    A row is an evaluation tree as stage ``teacher`` writes them, or a plain one: a comparison (``query`` or
    ``messages``, ``response_a``, ``response_b``) with ``criteria``, each with its ``guidelines`` and their
    ``judgments``. A judgment whose text has no scores is kept and counted in the tree's ``failures``.

    Raises:
        ConfigError: there is no such file.
        DataError: a row is malformed, or a comparison stands twice; names file and line.
    """
    # Criteria are a tree here, and no rubric.
    source = SourceConfig(name="evaluations", path=path, fields={"criteria": ""})
    reader = RowReader(source, key=KEY)
    seen: set[str] = set()

    def take(row: Any, number: int) -> EvaluationTree:
        tree = evaluation_of(row, number, reader)
        if tree.comparison.id in seen:
            raise RowError("repeated_id", f"the comparison {tree.comparison.id!r} stands twice; ids must differ")
        seen.add(tree.comparison.id)
        return tree

    yield from read(source, KEY, take)


def check_evaluations(settings: TeacherSettings) -> None:
    """Read the evaluations that are written already, every row."""
    if settings.teacher.evaluations:
        # A deque without room goes through every row and keeps none.
        deque(read_evaluations(settings.teacher.evaluations), maxlen=0)


def text_of(comparison: Comparison) -> ComparedTexts:
    """Return what makes two comparisons the same one, whatever their ids."""
    dialogue = comparison.dialogue
    return dialogue.context, dialogue.query, comparison.response_a, comparison.response_b


def evaluation_of(row: Any, number: int, reader: RowReader, labelled: bool = False) -> EvaluationTree:
    """Return the tree of a row of either form (RowError: it is malformed).

    Args:
        row: as stage teacher writes it, or a plain one.
        number: of the row in its source.
        reader: of the source, whose ``criteria`` are no rubric.
        labelled: True: a plain row's label is read, where it has one. Teaching needs none, as evaluations say
            themselves which response is better.
    """
    # Only trees as stage teacher writes them have this column.
    if isinstance(row, Mapping) and "criteria_text" in row:
        try:
            return EvaluationTree.from_row(dict(row))
        except (KeyError, TypeError, AttributeError) as error:
            raise RowError("malformed", f"not an evaluation tree as stage teacher writes them ({error})") from error
    comparison = reader.comparison(row, number, labelled=labelled)
    criteria = []
    for rank, value in enumerate(_list(row, "criteria", f"comparison {comparison.id!r}")):
        criteria.append(_criterion_node(value, rank, f"{comparison.id}/c{rank}"))
    if not criteria:
        raise RowError("missing_field", "criteria is empty; expected at least one criterion")
    # Counted here, as nobody has grown this tree and counted on the way.
    failures: Counter[str] = Counter()
    for criterion in criteria:
        for judgment in criterion.judgments:
            if judgment.failure:
                failures[f"judgment:{judgment.failure}"] += 1
    return EvaluationTree(
        comparison=comparison,
        criteria_text=render_criteria([criterion.text for criterion in criteria]),
        # Whatever the evaluation cost, it was not paid in this run.
        criteria_prompt_tokens=0,
        criteria_generated_tokens=0,
        criteria=tuple(criteria),
        seed=0,
        failures=dict(sorted(failures.items())),
    )


def _criterion_node(value: Any, rank: int, identifier: str) -> CriterionNode:
    """Return a criterion, which is its text alone or an object with its guidelines."""
    item = value
    if isinstance(value, str):
        item = {"criterion": value}
    place = f"criteria[{rank}]"
    text = " ".join(_text(item, "criterion", place).split())
    guidelines = []
    for number, guideline in enumerate(_list(item, "guidelines", place, required=False)):
        guidelines.append(_guideline(guideline, f"{identifier}/g{number}", f"{place}.guidelines[{number}]"))
    return CriterionNode(id=identifier, text=text, rank=rank, generated_tokens=0, guidelines=tuple(guidelines))


def _guideline(item: Any, identifier: str, place: str) -> GuidelineNode:
    """Return a guideline with its judgments, which are numbered by their order as sampled ones are."""
    text = _text(item, "guideline", place)
    judgments: list[JudgmentNode] = []
    for number, judgment in enumerate(_list(item, "judgments", place, required=False)):
        node = _judgment(judgment, f"{place}.judgments[{number}]")
        # As AB0, AB1, BA0: the number is counted within an order.
        earlier = sum(other.order == node.order for other in judgments)
        judgments.append(replace(node, id=f"{identifier}/{node.order}{earlier}"))
    return GuidelineNode(id=identifier, text=text, judgments=tuple(judgments), **NOT_SAMPLED)


def _judgment(item: Any, place: str) -> JudgmentNode:
    """Return a judgment: its ``text`` as it was written, and the ``order`` that was shown."""
    text = _text(item, "text", place)
    order = item.get("order", "AB")
    if order not in ORDERS:
        raise RowError("wrong_type", f"{place}.order={order!r}: expected AB or BA")
    parsed = parse_judgment(text)
    # Scores stand in the order shown.
    score_a = parsed.first
    score_b = parsed.second
    if order == "BA":
        score_a = parsed.second
        score_b = parsed.first
    return JudgmentNode(
        id="", order=order, text=text, score_a=score_a, score_b=score_b, failure=parsed.failure, **NOT_SAMPLED
    )


def _text(item: Any, name: str, place: str) -> str:
    """Return a text of an object, stripped (RowError: it has none); ``place``: of the object, for messages."""
    value = item.get(name) if isinstance(item, Mapping) else None
    if not isinstance(value, str) or not value.strip():
        raise RowError("missing_field", f"{place}: expected an object with the text {name}, found {value!r}")
    return value.strip()


def _list(item: Any, name: str, place: str, required: bool = True) -> Sequence[Any]:
    """Return a list of an object (RowError: it has none); ``place``: of the object, for messages."""
    value = item.get(name) if isinstance(item, Mapping) else None
    if value is None and not required:
        return []
    if not isinstance(value, list):
        raise RowError("wrong_type", f"{place}: expected the list {name}, found {type(value).__name__}")
    return value


LOOKED_AT = 200
"""Comparisons whose prompts are measured before the teacher is asked: they are in a random order."""


def all_held_out(settings: TeacherSettings, comparisons: Sequence[Comparison]) -> str:
    """Return a sentence if stage label will hold out all prompts that trees are about; else nothing.

    Prompts are held out whole, by a draw for each. Of few all may be.
    """
    share = settings.holdout
    if not share or not all(is_held_out(settings.seed, comparison.dialogue, share) for comparison in comparisons):
        return ""
    prompts = len({key_of_dialogue(comparison.dialogue) for comparison in comparisons})
    return (
        f"label.holdout={share:g} holds out all {amount(prompts, 'prompt')} that trees are about, so that stages "
        "sft and dpo "
        "have nothing to train on: set label.holdout=0 or another seed, or give more prompts"
    )


Writer = Callable[[Sequence[Comparison], Engine, int], list[EvaluationTree]]
"""Writes the evaluations of comparisons with an engine and a seed."""


def run(settings: TeacherSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``evaluations`` shards (trees by the teacher), ``remaining.jsonl`` and ``examples.jsonl``.

    The teacher gets the first ``teacher.comparisons`` of a seeded shuffle, whole queries at a time, and no more than
    ``teacher.share`` of all; the others remain for the Initial judge's trees. When none would remain, the trees are
    grown over the same comparisons, and the manifest says so. With
    ``teacher.evaluations`` nobody is asked: those are taken as they are, and what they are not about remains.
    """
    comparisons = _comparisons(settings, inputs["responses"], out)
    if settings.teacher.evaluations:
        taught, remaining = _read_written(settings, comparisons, out)
    else:
        taught, remaining = _shared_out(settings, comparisons, out.seed)
    out.note("comparisons", {"teacher": len(taught), "remaining": len(remaining)})
    if not remaining:
        out.log(
            f"teacher: it annotates all {amount(len(taught), 'comparison')}; trees grow over the same (less: "
            "teacher.share)"
        )
    warning = all_held_out(settings, remaining or comparisons)
    if warning:
        out.log(f"teacher: {warning}")
    out.write_rows("remaining", (comparison.to_row() for comparison in remaining or comparisons))
    if not settings.teacher.evaluations:
        # Before the teacher is asked, which may cost money.
        warning = too_long(settings, taught[:LOOKED_AT])
        if warning:
            out.log(f"teacher: {warning}")
        _annotate(settings, taught, out)
    _write_examples(settings, out)


def _comparisons(settings: TeacherSettings, responses: Path, out: StageRun) -> list[Comparison]:
    """Return the comparisons that trees can be about, with the criteria of ``criteria=`` where they bring none.

    Responses that stand alone are counted where trees read two.

    Raises:
        DataError: there is none.
    """
    every_comparison = [Comparison.from_row(row) for row in read_rows(responses, "comparisons")]
    if not every_comparison:
        raise DataError("there are no comparisons for the teacher: look at the counts of stage responses")
    comparisons = judged(every_comparison, orders_of(settings.teacher, settings.reads))
    alone = len(every_comparison) - len(comparisons)
    if alone:
        message = (
            f"{alone} of {len(every_comparison)} are responses that stand alone, which trees of two do not judge: "
            "set tree.reads=one"
        )
        out.count(in_=alone, dropped={"rated_alone": alone})
        out.log(f"teacher: {message}")
        if not comparisons:
            raise DataError(f"there is nothing to compare: {message}")
    if settings.criteria_file:
        with_own = sum(comparison.rubric is not None for comparison in comparisons)
        out.log(
            f"teacher: {amount(len(comparisons) - with_own, 'comparison')} "
            f"{agree(len(comparisons) - with_own, 'are')} taught by {settings.criteria_file}, {with_own} by "
            "criteria of their own"
        )
    return _with_criteria(comparisons, settings)


def _with_criteria(comparisons: list[Comparison], settings: TeacherSettings) -> list[Comparison]:
    """Return comparisons with the criteria of ``criteria=`` for their query; those that bring their own keep them."""
    if not settings.criteria_file:
        return comparisons
    rubric = read_rubric(settings.criteria_file)
    return [comparison.with_rubric(rubric) for comparison in comparisons]


def _shared_out(
    settings: TeacherSettings, comparisons: Sequence[Comparison], seed: int
) -> tuple[list[Comparison], list[Comparison]]:
    """Return the comparisons that the teacher gets, and those that remain for trees.

    A teacher that writes known labels gets comparisons that have one (DataError: none has).
    """
    if not isinstance(settings.teacher.engine, GivenEngineConfig):
        return divided(comparisons, settings.teacher, seed)
    labelled = []
    unlabelled = []
    strange: Counter[str] = Counter()
    for comparison in comparisons:
        names = _labels_of_other_criteria(comparison)
        strange.update(names)
        # A response that stands alone has a rating.
        if not names and (comparison.label or comparison.alone):
            labelled.append(comparison)
        else:
            unlabelled.append(comparison)
    if strange and not labelled:
        raise DataError(
            f"teacher=given: labels are of single criteria ({', '.join(sorted(strange))}), and none of these is a "
            "criterion to teach by: give criteria of these names, in the rows' column criteria or with criteria=FILE"
        )
    if not labelled:
        raise DataError(
            "teacher=given: none of the comparisons has a label; name its column with "
            "'dialogues.sources[0].fields={label: COLUMN}', construct pairs with responses.contrast, or choose another "
            "teacher"
        )
    taught, remaining = divided(labelled, settings.teacher, seed)
    if unlabelled:
        # Stage label learns from labelled trees alone where labels are given, so that some have to be among them.
        remaining = [*(remaining or taught), *unlabelled]
    return taught, remaining


def _labels_of_other_criteria(comparison: Comparison) -> Sequence[str]:
    """Return the names of the criteria that people labelled, where no label speaks of a criterion of the comparison."""
    ratings = [rating for rating in (comparison.rating_a, comparison.rating_b) if rating is not None]
    if all(rating.whole for rating in ratings) or taught_rubric(comparison, by_criteria=True) is not None:
        return ()
    return sorted({name for rating in ratings for name in rating.by_criterion})


def _write_examples(settings: TeacherSettings, out: StageRun) -> None:
    """Write what the evaluations teach (DataError: nothing)."""
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]
    prompter = Prompter(load_prompt_set(settings.prompts), settings.criteria, settings.reference)
    by_label = isinstance(settings.teacher.engine, GivenEngineConfig) and not settings.teacher.evaluations
    examples: list[dict[str, Any]] = []
    reasons = Counter[str]()
    for tree in trees:
        examples.extend(teaching_examples(tree, prompter, by_label))
        reasons.update(tree.failures)
    if not examples:
        otherwise = "look at the texts in evaluations-*.jsonl, and choose a teacher.engine that follows instructions"
        raise DataError(f"the teacher wrote nothing that can be read: {causes(reasons, HINTS, otherwise)}")
    out.write_rows("examples", examples)
    out.note("examples", dict(Counter(example["level"] for example in examples)))


def _read_written(
    settings: TeacherSettings, comparisons: Sequence[Comparison], out: StageRun
) -> tuple[list[Comparison], list[Comparison]]:
    """Take over written evaluations; return the comparisons that they are about, and the run's others.

    Those of dialogues that hold a benchmark's query are left out and counted, as in stage ``dialogues``.
    """
    written = list(read_evaluations(settings.teacher.evaluations))
    trees = written
    queries = named_queries(settings.dialogues) if settings.dialogues else None
    losses = Losses()
    if queries is not None:
        trees = []
        for tree in written:
            if queries.matches(tree.comparison.dialogue):
                losses.lose("contaminated", tree.comparison.id)
            else:
                trees.append(tree)
    for sentence in losses.sentences(len(written), LEFT_OUT, "evaluations"):
        out.log(f"teacher: {sentence}")
    out.write_rows("evaluations", (tree.to_row() for tree in trees))
    failures = Counter[str]()
    for tree in trees:
        failures.update(tree.failures)
    out.count(in_=len(written), out=len(trees), dropped={**failures, "contaminated": losses["contaminated"]})
    if not trees:
        raise DataError(
            f"teacher.evaluations={settings.teacher.evaluations}: all {len(written)} hold a benchmark's query; give "
            "others, or set dialogues.decontaminate=[]"
        )

    # By their texts: the file may come from elsewhere, with ids of its own.
    evaluated = {text_of(tree.comparison) for tree in trees}
    remaining = [comparison for comparison in comparisons if text_of(comparison) not in evaluated]
    return [tree.comparison for tree in trees], remaining


def divided(
    comparisons: Sequence[Comparison], teacher: TeacherConfig, seed: int
) -> tuple[list[Comparison], list[Comparison]]:
    """Return the comparisons that the teacher gets, as many as it may in a seeded order, and those that remain.

    Those of one query stay together, since who has learned what is better for a query has seen it: unless all are
    taught, a query that is taught is in no tree.
    """
    shuffled = list(comparisons)
    # Rows of a file are often sorted, by topic or by source.
    random.Random(seed).shuffle(shuffled)
    by_query: dict[tuple[str, ...], list[Comparison]] = {}
    for comparison in shuffled:
        # Blanks make no other query.
        query = tuple(" ".join(message.content.split()) for message in comparison.dialogue.messages)
        by_query.setdefault(query, []).append(comparison)
    most = min(teacher.comparisons, math.ceil(teacher.share * len(shuffled)))
    taught: list[Comparison] = []
    remaining: list[Comparison] = []
    for of_query in by_query.values():
        # A query that would go beyond the limit is left to the trees, and a later, smaller one may still fit.
        if len(taught) + len(of_query) <= most:
            taught += of_query
        else:
            remaining += of_query
    if not taught:
        # No query fits into the limit, so that it is left out of account.
        return remaining, []
    return taught, remaining


def too_long(settings: TeacherSettings, comparisons: Sequence[Comparison]) -> str:
    """Return a warning of comparisons that leave the judge no room for a judgment; empty where none does.

    Raises:
        DataError: most of them do: what the teacher would write could not be used.
    """
    if not settings.base.path:
        return ""

    # One order is enough: both show the same texts, and are about as long.
    order = orders_of(settings.teacher, settings.reads)[0]
    prompts = load_prompt_set(settings.prompts)
    sampling = Sampling(max_new_tokens=settings.judgment_sampling.max_new_tokens)

    # Criterion and guideline are not written yet. A comparison that is too long without them is too long with them.
    requests = []
    for comparison in comparisons:
        slots = judgment_slots(comparison, order, "", "", settings.reference)
        requests.append(Request(messages=prompts.render(judgment_step(order), slots), sampling=sampling))
    context = own_context(settings.base)
    _, unasked = encode(requests, load_tokenizer(settings.base), context)
    number = sum(completion.finish_reason == "too_long" for completion in unasked.values())
    warning = (
        f"{number} of {amount(len(comparisons), 'comparison')} {agree(number, 'are')} too long for "
        f"{settings.base.path} ({amount(context, 'token')} with "
        f"tree.judgment_sampling.max_new_tokens={sampling.max_new_tokens}): lower that, or leave out long dialogues "
        "with dialogues.max_query_chars"
    )

    # A few are lost among many that teach. Where most are lost, the teacher would be paid for nothing.
    if 2 * number > len(comparisons):
        raise DataError(f"the teacher was not asked: {warning}")
    if not number:
        return ""
    return warning


def orders_of(teacher: TeacherConfig, reads: str) -> tuple[Order, ...]:
    """Return the orders that the teacher's judgments are shown; ``reads``: as ``tree.reads`` has it."""
    orders = TREE_READS[reads]
    if teacher.both_orders:
        return orders
    return tuple(order for order in orders if order != "BA")


def writer(settings: TeacherSettings, comparisons: Sequence[Comparison], seed: int) -> Writer:
    """Return what has an engine write the evaluations of some of the comparisons that the teacher gets."""
    teacher = settings.teacher
    prompts = load_prompt_set(settings.prompts)
    asking = StepsConfig(
        criteria_sampling=teacher.sampling,
        guideline_sampling=teacher.sampling,
        judgment_sampling=teacher.sampling,
        reference=settings.reference,
        rubric=settings.rubric,
        write_guidelines=settings.write_guidelines,
    )
    sample = sample_criteria(derive_seed(seed, "criteria"), teacher.branches)
    # Without a limit (None), the slice holds all of them.
    to_judge = {comparison.id for comparison in comparisons[: teacher.judged]}

    def choose(comparison: Comparison, criteria: list[str]) -> list[int]:
        """Return the places of the criteria that are judged: none, where the list alone is wanted."""
        if comparison.id not in to_judge:
            return []
        return sample(comparison, criteria)

    orders = orders_of(teacher, settings.reads)
    shape = Shape(
        count=teacher.criteria, criteria=teacher.criteria, orders=orders, choose=choose, steer=each_in(orders)
    )

    def write(shard: Sequence[Comparison], engine: Engine, seed: int) -> list[EvaluationTree]:
        if isinstance(teacher.engine, GivenEngineConfig):
            # A rubric may ask what no label speaks of.
            by_criteria = teacher.engine.by_criteria
            shard = [replace(comparison, rubric=taught_rubric(comparison, by_criteria)) for comparison in shard]
        return grow(shard, TreeModel(engine, prompts, asking), shape, seed)

    return write


def _annotate(settings: TeacherSettings, comparisons: Sequence[Comparison], out: StageRun) -> None:
    """Write the teacher's evaluations of comparisons as ``evaluations`` shards."""
    teacher = settings.teacher
    write = writer(settings, comparisons, out.seed)
    answers = answers_of(teacher.engine, out.home, settings.seed)
    with spending([teacher.engine], teacher, "teacher", out) as budget:

        def load() -> Engine:
            if isinstance(teacher.engine, GivenEngineConfig):
                return KnownLabels(comparisons)
            return make_engine(teacher.engine, answers=answers, budget=budget)

        def process(index: int, shard: Sequence[Comparison]) -> ShardResult:
            return shard_of(write(shard, engine(), out.shard_seed(index)))

        with loaded_once(load) as engine:
            # A budget is counted in this process, so its requests stay here.
            spread = budget is None
            work = Work(process=process, load=engine, spread=spread)
            out.sharded("evaluations", comparisons, settings.shard_size, work, "comparisons")


LEADS = {"A": 1.0, "tie": 0.0, "B": -1.0}
"""How far response A is ahead by a label; only the sign counts."""


def teaching_examples(tree: EvaluationTree, prompter: Prompter, by_label: bool = False) -> Iterator[dict[str, Any]]:
    """Yield supervised examples from a teacher's tree: its list, its guidelines and its readable judgments.

    The list is cut to the ``prompter.count`` criteria that the judge will be asked for; where the teacher named
    fewer, the prompt asks for as many as there are. Texts that ran out of tokens teach nothing, but for a list's lines
    before the one that was cut.

    Args:
        tree: the teacher's.
        prompter: writes the prompts.
        by_label: judgments of one response are ranked by the comparison's label. The scores of a response are the mean
            of all pairs that it stands in, which may say the opposite of one of them.
    """
    criteria = _whole_criteria(tree, prompter.count)
    if criteria and not tree.given:
        # A prompt that asks for more than the list has would teach the judge to name fewer than it is asked for.
        prompt = replace(prompter, count=len(criteria)).criteria(tree.comparison)
        nodes = [criterion.id for criterion in tree.criteria if criterion.rank < len(criteria)]
        yield sft_row(prompt, render_criteria(criteria), "criteria", tree.comparison, nodes)
    for criterion, guideline in tree.guidelines():
        if guideline.finish_reason != "stop":
            continue
        if criterion.wrote(guideline):
            yield prompter.guideline_row(tree.comparison, criterion, guideline)
        for judgment in guideline.judgments:
            if judgment.failure is None and judgment.finish_reason == "stop":
                row = prompter.judgment_row(tree.comparison, criterion, guideline, judgment)
                label = label_under(tree.comparison, criterion.text)
                if by_label and "ahead" in row and label is not None:
                    row["ahead"] = LEADS[label]
                    if judgment.order == "B":
                        row["ahead"] = -row["ahead"]
                yield row


def _whole_criteria(tree: EvaluationTree, limit: int) -> list[str]:
    """Return the criteria that the teacher wrote to their ends; of a tree that does not say how its list ended, all."""
    if not tree.lists:
        return parse_criteria(tree.criteria_text, limit, material_of(tree.comparison))
    criteria: list[str] = []
    for written in tree.lists:
        criteria += whole_criteria(written.text, written.finish_reason, limit, tree.comparison)
    return criteria[:limit]


def estimate(settings: TeacherSettings, comparisons: Sequence[Comparison]) -> Costs:
    """Return the expected cost of annotating ``comparisons``, by step.

    A teacher that lists fewer criteria than are to be judged takes fewer calls; tries that fail take more.
    """
    probe = CostProbe()
    # The same code as a run, with an engine that counts requests and answers nothing.
    writer(settings, comparisons, 0)(comparisons, CostEstimator(probe), 0)
    return probe.costs


def estimated(settings: TeacherSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """Yield the lines of a dry run of stage teacher."""
    config = settings.teacher
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs()["responses"], "comparisons")]
    comparisons = _with_criteria(comparisons, settings)

    # A run derives the stage's seed in the same way, so that the dry run divides as it will.
    taught, remaining = divided(comparisons, config, derive_seed(settings.seed, "teacher"))
    rest = f"{len(remaining)} remain for the tree"
    if not remaining:
        rest = "none remains, so that the trees are grown over the same ones; a smaller teacher.share leaves some"
    yield f"teacher: dry run for {config.engine.model_name}: {amount(len(taught), 'comparison')} ({rest}), expected"
    yield from described(estimate(settings, taught), config, "teacher")
