"""Stage ``teacher``: multi-branch evaluations by an external model or an annotator, or from a file (section 4.2)."""

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.cells import RowError
from judgetrain.data.config import SourceConfig
from judgetrain.data.duplicates import named_queries
from judgetrain.data.rows import RowReader
from judgetrain.data.sources import read
from judgetrain.engines.answers import CostProbe, Costs, Estimator, answers_of, described, spending
from judgetrain.engines.base import Engine, Request, Sampling
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.engines.loading import load_tokenizer, own_context
from judgetrain.engines.prompting import encode
from judgetrain.errors import DataError, causes
from judgetrain.judges.config import TREE_READS, StepsConfig
from judgetrain.judges.prompting.parsing import parse_criteria, parse_judgment, render_criteria
from judgetrain.judges.prompting.prompts import judgment_slots, judgment_step, load_prompt_set
from judgetrain.judges.trees.grow import Shape, grow, material_of, sample_criteria, whole_criteria
from judgetrain.judges.trees.schema import (
    NOT_SAMPLED,
    CriterionNode,
    EvaluationTree,
    GuidelineNode,
    JudgmentNode,
    shard_of,
)
from judgetrain.label.config import GivenEngineConfig, TeacherConfig
from judgetrain.label.examples import Prompter, sft_row
from judgetrain.label.labels import HINTS, KnownLabels, each_in, judged
from judgetrain.label.stages import TeacherSettings
from judgetrain.schema import ORDERS, Comparison, Order

KEY = "teacher.evaluations"
Text = tuple[str, str, str, str]


def read_evaluations(path: str) -> Iterator[EvaluationTree]:
    """The evaluations of a file or glob of JSON lines, one comparison each (ConfigError: no such file; DataError: a
    malformed row or a comparison that stands twice; names file and line).

    A row is an evaluation tree as stage ``teacher`` writes them, or a plain one: a comparison (``query`` or
    ``messages``, ``response_a``, ``response_b``) with ``criteria``, each with its ``guidelines`` and their
    ``judgments``. A judgment whose text has no scores is kept and counted in the tree's ``failures``.
    """
    source = SourceConfig(name="evaluations", path=path, fields={"criteria": ""})  # they are a tree here, no rubric
    reader = RowReader(source, key=KEY)
    seen: set[str] = set()

    def take(row: Any, number: int) -> EvaluationTree:
        tree = _tree(row, number, reader)
        if tree.comparison.id in seen:
            raise RowError("repeated_id", f"the comparison {tree.comparison.id!r} stands twice; ids must differ")
        seen.add(tree.comparison.id)
        return tree

    yield from read(source, KEY, take)


def check_evaluations(settings: TeacherSettings) -> None:
    """Read the evaluations that are written already, every row."""
    if settings.teacher.evaluations:
        deque(read_evaluations(settings.teacher.evaluations), maxlen=0)


def text_of(comparison: Comparison) -> Text:
    """What makes two comparisons the same one: the dialogue before the query, the query and the two responses."""
    dialogue = comparison.dialogue
    return dialogue.context, dialogue.query, comparison.response_a, comparison.response_b


def _tree(row: Any, number: int, reader: RowReader) -> EvaluationTree:
    if isinstance(row, Mapping) and "criteria_text" in row:
        try:
            return EvaluationTree.from_row(dict(row))
        except (KeyError, TypeError, AttributeError) as error:
            raise RowError("malformed", f"not an evaluation tree as stage teacher writes them ({error})") from error
    comparison = reader.comparison(row, number, labelled=False)
    listed = _list(row, "criteria", f"comparison {comparison.id!r}")
    criteria = tuple(_criterion_node(c, rank, f"{comparison.id}/c{rank}") for rank, c in enumerate(listed))
    if not criteria:
        raise RowError("missing_field", "criteria is empty; expected at least one criterion")
    failures = Counter(f"judgment:{j.failure}" for c in criteria for j in c.judgments if j.failure)
    return EvaluationTree(
        comparison=comparison,
        criteria_text=render_criteria([c.text for c in criteria]),
        criteria_prompt_tokens=0,
        criteria_generated_tokens=0,
        criteria=criteria,
        seed=0,
        failures=dict(sorted(failures.items())),
    )


def _criterion_node(value: Any, rank: int, identifier: str) -> CriterionNode:
    """A criterion: its text alone, or an object with its guidelines."""
    item, place = {"criterion": value} if isinstance(value, str) else value, f"criteria[{rank}]"
    text = " ".join(_text(item, "criterion", place).split())
    found = enumerate(_list(item, "guidelines", place, required=False))
    guidelines = tuple(_guideline(g, f"{identifier}/g{i}", f"{place}.guidelines[{i}]") for i, g in found)
    return CriterionNode(id=identifier, text=text, rank=rank, generated_tokens=0, guidelines=guidelines)


def _guideline(item: Any, identifier: str, place: str) -> GuidelineNode:
    text = _text(item, "guideline", place)
    judgments: list[JudgmentNode] = []
    for number, judgment in enumerate(_list(item, "judgments", place, required=False)):
        node = _judgment(judgment, f"{place}.judgments[{number}]")
        name = f"{identifier}/{node.order}{sum(j.order == node.order for j in judgments)}"
        judgments.append(replace(node, id=name))
    return GuidelineNode(id=identifier, text=text, judgments=tuple(judgments), **NOT_SAMPLED)


def _judgment(item: Any, place: str) -> JudgmentNode:
    """A judgment: its ``text`` as it was written, and the ``order`` that was shown."""
    text = _text(item, "text", place)
    order = item.get("order", "AB")
    if order not in ORDERS:
        raise RowError("wrong_type", f"{place}.order={order!r}: expected AB or BA")
    parsed = parse_judgment(text)
    a, b = (parsed.first, parsed.second) if order == "AB" else (parsed.second, parsed.first)
    return JudgmentNode(id="", order=order, text=text, score_a=a, score_b=b, failure=parsed.failure, **NOT_SAMPLED)


def _text(item: Any, name: str, place: str) -> str:
    value = item.get(name) if isinstance(item, Mapping) else None
    if not isinstance(value, str) or not value.strip():
        raise RowError("missing_field", f"{place}: expected an object with the text {name}, found {value!r}")
    return value.strip()


def _list(item: Any, name: str, place: str, required: bool = True) -> Sequence[Any]:
    value = item.get(name) if isinstance(item, Mapping) else None
    if value is None and not required:
        return []
    if not isinstance(value, list):
        raise RowError("wrong_type", f"{place}: expected the list {name}, found {type(value).__name__}")
    return value


LOOKED_AT = 200
"""Comparisons whose prompts are measured before the teacher is asked: they are in a random order."""

Writer = Callable[[Sequence[Comparison], Engine, int], list[EvaluationTree]]
"""Writes the evaluations of comparisons with an engine and a seed."""


def run(settings: TeacherSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``evaluations`` shards (trees by the teacher), ``remaining.jsonl`` and ``examples.jsonl``.

    The teacher gets the first ``teacher.comparisons`` of a seeded shuffle, whole queries at a time, and no more than
    ``teacher.share`` of all; the others remain for the Initial judge's trees. When none would remain, the trees are
    grown over the same comparisons, and the manifest says so. With
    ``teacher.evaluations`` nobody is asked: those are taken as they are, and what they are not about remains.
    """
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs["responses"], "comparisons")]
    if not comparisons:
        raise DataError("there are no comparisons for the teacher: look at the counts of stage responses")
    found, comparisons = len(comparisons), judged(comparisons, orders_of(settings.teacher, settings.reads))
    if alone := found - len(comparisons):
        told = f"{alone} of {found} are responses that stand alone, which trees of two do not judge: set tree.reads=one"
        out.count(in_=alone, dropped={"rated_alone": alone})
        out.log(f"teacher: {told}")
        if not comparisons:
            raise DataError(f"there is nothing to compare: {told}")
    if settings.teacher.evaluations:
        taught, remaining = _read_written(settings, comparisons, out)
    else:
        by_labels = isinstance(settings.teacher.engine, GivenEngineConfig)
        known = [c for c in comparisons if c.label or c.alone or not by_labels]
        unknown = [c for c in comparisons if by_labels and not (c.label or c.alone)]
        if not known:
            told = "teacher=given: none of the comparisons has a label; name its column with"
            more = "construct pairs with responses.contrast, or choose another teacher"
            raise DataError(f"{told} 'dialogues.sources[0].fields={{label: COLUMN}}', {more}")
        taught, remaining = divided(known, settings.teacher, out.seed)
        if unknown:
            remaining = [*(remaining or taught), *unknown]  # label.source=given learns from labelled trees alone
    out.note("comparisons", {"teacher": len(taught), "remaining": len(remaining)})
    if not remaining:
        out.log(f"teacher: it annotates all {len(taught)} comparisons; trees grow over the same (less: teacher.share)")
    out.write_rows("remaining", (c.to_row() for c in remaining or comparisons))
    if not settings.teacher.evaluations:
        if told := too_long(settings, taught[:LOOKED_AT]):
            out.log(f"teacher: {told}")
        _annotate(settings, taught, out)
    trees = [EvaluationTree.from_row(row) for row in read_rows(out.directory, "evaluations")]
    prompter = Prompter(load_prompt_set(settings.prompts), settings.criteria, settings.reference)
    examples = [row for tree in trees for row in teaching_examples(tree, prompter)]
    if not examples:
        reasons = sum((Counter(t.failures) for t in trees), Counter())
        otherwise = "look at the texts in evaluations-*.jsonl, and choose a teacher.engine that follows instructions"
        raise DataError(f"the teacher wrote nothing that can be read: {causes(reasons, HINTS, otherwise)}")
    out.write_rows("examples", examples)
    out.note("examples", dict(Counter(row["level"] for row in examples)))


def _read_written(
    settings: TeacherSettings, comparisons: Sequence[Comparison], out: StageRun
) -> tuple[list[Comparison], list[Comparison]]:
    """Take over written evaluations; the comparisons that they are about, and those of the run that they are not.

    Those of dialogues that hold a benchmark's query are left out and counted, as in stage ``dialogues``.
    """
    written = list(read_evaluations(settings.teacher.evaluations))
    queries = named_queries(settings.dialogues) if settings.dialogues else None
    trees = [tree for tree in written if queries is None or not queries.matches(tree.comparison.dialogue)]
    out.write_rows("evaluations", (tree.to_row() for tree in trees))
    failures = sum((Counter(t.failures) for t in trees), Counter[str]())
    out.count(in_=len(written), out=len(trees), dropped={**failures, "contaminated": len(written) - len(trees)})
    if not trees:
        told = f"teacher.evaluations={settings.teacher.evaluations}: all {len(written)} hold a benchmark's query"
        raise DataError(f"{told}; give others, or set dialogues.decontaminate=[]")
    known = {text_of(tree.comparison) for tree in trees}
    return [t.comparison for t in trees], [c for c in comparisons if text_of(c) not in known]


def divided(
    comparisons: Sequence[Comparison], teacher: TeacherConfig, seed: int
) -> tuple[list[Comparison], list[Comparison]]:
    """The comparisons that the teacher gets, as many as it may in a seeded shuffle's order, and those that remain.

    Those of one query stay together, since who has learned what is better for a query has seen it: unless all are
    taught, a query that is taught is in no tree.
    """
    shuffled = list(comparisons)
    random.Random(seed).shuffle(shuffled)
    queries: dict[tuple[str, ...], list[Comparison]] = {}
    for comparison in shuffled:
        asked = tuple(" ".join(message.content.split()) for message in comparison.dialogue.messages)
        queries.setdefault(asked, []).append(comparison)
    most = min(teacher.comparisons, math.ceil(teacher.share * len(shuffled)))
    taught: list[Comparison] = []
    remaining: list[Comparison] = []
    for same in queries.values():
        (taught if len(taught) + len(same) <= most else remaining).extend(same)
    return (taught, remaining) if taught else (remaining, [])


def too_long(settings: TeacherSettings, comparisons: Sequence[Comparison]) -> str:
    """How many comparisons leave the judge that is to be trained no room for a judgment; empty where none does
    (DataError: most of them: what the teacher would write could not be used)."""
    if not settings.base.path:
        return ""
    order, prompts = orders_of(settings.teacher, settings.reads)[0], load_prompt_set(settings.prompts)
    slots = (judgment_slots(c, order, "", "", settings.reference) for c in comparisons)
    sampling = Sampling(max_new_tokens=settings.judgment_sampling.max_new_tokens)
    asked = [Request(messages=prompts.render(judgment_step(order), each), sampling=sampling) for each in slots]
    context = own_context(settings.base)
    _, unasked = encode(asked, load_tokenizer(settings.base), context)
    long = sum(each.finish_reason == "too_long" for each in unasked.values())
    told = f"{long} of {len(comparisons)} comparisons are too long for {settings.base.path} ({context} tokens"
    told += f" with tree.judgment_sampling.max_new_tokens={sampling.max_new_tokens}): lower that, or leave out long"
    told += " dialogues with dialogues.max_query_chars"
    if 2 * long > len(comparisons):
        raise DataError(f"the teacher was not asked: {told}")
    return told if long else ""


def orders_of(teacher: TeacherConfig, reads: str) -> tuple[Order, ...]:
    """What the teacher's judgments are shown; ``reads``: as trees' judgments do."""
    return tuple(order for order in TREE_READS[reads] if order != "BA" or teacher.both_orders)


def writer(settings: TeacherSettings, comparisons: Sequence[Comparison], seed: int) -> Writer:
    """What has an engine write the evaluations of some of the comparisons that the teacher gets."""
    teacher = settings.teacher
    prompts = load_prompt_set(settings.prompts)
    shape = Shape(count=teacher.criteria, criteria=teacher.criteria, orders=orders_of(teacher, settings.reads))
    asking = StepsConfig(
        criteria_sampling=teacher.sampling,
        guideline_sampling=teacher.sampling,
        judgment_sampling=teacher.sampling,
        reference=settings.reference,
        rubric=settings.rubric,
        write_guidelines=settings.write_guidelines,
    )
    sample = sample_criteria(derive_seed(seed, "criteria"), teacher.branches)
    judged = {comparison.id for comparison in comparisons[: teacher.judged]}

    def choose(comparison: Comparison, criteria: list[str]) -> list[int]:
        return sample(comparison, criteria) if comparison.id in judged else []

    def write(items: Sequence[Comparison], engine: Engine, seed: int) -> list[EvaluationTree]:
        if isinstance(teacher.engine, GivenEngineConfig):  # its labels are of the whole, whatever a rubric asks
            items = [replace(c, rubric=None) for c in items]
        return grow(items, engine, prompts, shape, asking, seed, choose, each_in(shape.orders))

    return write


def _annotate(settings: TeacherSettings, comparisons: Sequence[Comparison], out: StageRun) -> None:
    teacher, write = settings.teacher, writer(settings, comparisons, out.seed)
    answers = answers_of(teacher.engine, out.home, settings.seed)
    with spending([teacher.engine], teacher, "teacher", out) as budget:

        def load() -> Engine:
            if isinstance(teacher.engine, GivenEngineConfig):
                return KnownLabels(comparisons)
            return make_engine(teacher.engine, answers=answers, budget=budget)

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            return shard_of(write(items, engine(), out.shard_seed(index)))

        with loaded_once(load) as engine:
            spread = budget is None
            out.sharded("evaluations", comparisons, settings.shard_size, process, "comparisons", engine, spread=spread)


def teaching_examples(tree: EvaluationTree, prompter: Prompter) -> Iterator[dict[str, Any]]:
    """Supervised examples from a teacher's tree: its list, its guidelines and its readable judgments.

    The list is cut to the ``prompter.count`` criteria that the judge will be asked for; where the teacher named
    fewer, the prompt asks for as many as there are. Texts that ran out of tokens teach nothing, but for a list's lines
    before the one that was cut.
    """
    if (listed := _listed(tree, prompter.count)) and not tree.given:
        prompt = replace(prompter, count=len(listed)).criteria(tree.comparison)
        nodes = [c.id for c in tree.criteria if c.rank < len(listed)]
        yield sft_row(prompt, render_criteria(listed), "criteria", tree.comparison, nodes)
    for criterion, guideline in tree.guidelines():
        if guideline.finish_reason != "stop":
            continue
        if criterion.wrote(guideline):
            yield prompter.guideline_row(tree.comparison, criterion, guideline)
        for judgment in guideline.judgments:
            if judgment.failure is None and judgment.finish_reason == "stop":
                yield prompter.judgment_row(tree.comparison, criterion, guideline, judgment)


def _listed(tree: EvaluationTree, limit: int) -> list[str]:
    """The criteria that the teacher wrote to their ends; of a tree that does not say how its list ended, all."""
    if not tree.lists:
        return parse_criteria(tree.criteria_text, limit, material_of(tree.comparison))
    lists = (whole_criteria(each.text, each.finish_reason, limit, tree.comparison) for each in tree.lists)
    return [criterion for listed in lists for criterion in listed][:limit]


def estimate(settings: TeacherSettings, comparisons: Sequence[Comparison]) -> Costs:
    """The expected cost of annotating ``comparisons``, by step.

    A teacher that lists fewer criteria than are to be judged takes fewer calls; tries that fail take more.
    """
    probe = CostProbe()
    writer(settings, comparisons, 0)(comparisons, Estimator(probe), 0)
    return probe.costs


def estimated(settings: TeacherSettings, inputs: Callable[[], Mapping[str, Path]]) -> Iterator[str]:
    """The lines of a dry run of stage teacher."""
    config = settings.teacher
    comparisons = [Comparison.from_row(row) for row in read_rows(inputs()["responses"], "comparisons")]
    taught, remaining = divided(comparisons, config, derive_seed(settings.seed, "teacher"))
    left = f"{len(remaining)} remain for the tree"
    if not remaining:
        left = "none remains, so that the trees are grown over the same ones; a smaller teacher.share leaves some"
    yield f"teacher: dry run for {config.engine.model_name}: {len(taught)} comparisons ({left}), expected"
    yield from described(estimate(settings, taught), config, "teacher")
