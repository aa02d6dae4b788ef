"""The page of a rubric, in Markdown: kinds with typical queries, criteria with their figures, and examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from judgetrain.amounts import amount
from judgetrain.data.intervals import Interval
from judgetrain.extras.rubric.evidence import Evidence
from judgetrain.extras.rubric.examples import Example, Sort
from judgetrain.extras.rubric.kinds import Kinds
from judgetrain.extras.rubric.measure import KindFigures, LeftOut, Weighed
from judgetrain.rubrics import Rubric

SHOWN_QUERIES = 5
"""Typical queries of a kind on the page; rubric.yaml has all."""
SHOWN_TEXT = 400
"""Characters of an answer on the page."""
SHOWN_WORDINGS = 12
"""Wordings of a criterion on the page; rubric.json has all."""
SORTS: dict[Sort, str] = {
    "gains": "{answer} gains by it",
    "loses": "{answer} loses by it",
    "against": "It speaks for {answer}, and the better one is {other}",
}
"""What an example shows, with the names of its responses."""


def rubric_page(
    evidence: Evidence,
    kinds: Kinds,
    names: Sequence[str],
    queries: Sequence[Sequence[str]],
    rubrics: Sequence[Rubric],
    figures: Sequence[KindFigures],
    left_out: Sequence[LeftOut],
    examples: Mapping[tuple[int, int, Sort], Example],
) -> str:
    """Return the page."""
    lines = list(_head(evidence, kinds))
    for kind in range(kinds.number):
        lines += _kind(kind, names[kind], queries[kind], rubrics[kind], figures[kind], examples)
    lines += _left_out(left_out, evidence)
    return "\n".join(lines) + "\n"


def _head(evidence: Evidence, kinds: Kinds) -> Iterator[str]:
    """Yield the lines above the kinds."""
    trees = len(evidence.prompts)
    labelled = int(evidence.labelled.sum())
    yield "# What decides, by kind of query"
    yield ""
    yield (
        f"Found in {trees:,} judged comparisons, {labelled:,} of them with a label. Kinds: {kinds.number}. Criteria "
        f"named: {len(evidence.names)}."
    )
    yield ""
    if kinds.by_labels:
        yield "What a criterion is worth says how far its judgments go with the labels."
    else:
        yield (
            "There are too few labels to learn from alone. What a criterion is worth says how far its judgments go "
            "with those of the other criteria. Which of two that go together counts more cannot be told without labels."
        )
    yield (
        "Intervals are 95%, over prompts. The loss is what the rubric loses without the criterion, on prompts that "
        "nothing was learned from."
    )
    yield ""


def _kind(
    kind: int,
    name: str,
    queries: Sequence[str],
    rubric: Rubric,
    figures: KindFigures,
    examples: Mapping[tuple[int, int, Sort], Example],
) -> Iterator[str]:
    """Yield the lines of a kind."""
    yield f"## {plain(name)}"
    yield ""
    yield f"{amount(figures.trees, 'comparison')}, {figures.labelled:,} with a label. Typical queries:"
    yield ""
    for query in queries[:SHOWN_QUERIES]:
        yield f"- {short(query)}"
    yield ""
    if figures.fitted is not None:
        before = 100 * figures.fitted.before["agreement"]
        after = 100 * figures.fitted.after["agreement"]
        yield f"It meets {after:.0f}% of held-out labels with these weights, {before:.0f}% with equal ones and no ties."
        yield ""
    yield f"| criterion | weight | 95% | loss without it, % of {figures.loss_of} | 95% |"
    yield "| --- | --- | --- | --- | --- |"
    for one in figures.criteria:
        yield (
            f"| **{plain(one.name)}** | {one.weight:.2f} | {_ends(one.interval, 1, 2)} | {100 * one.loss:.1f} | "
            f"{_ends(one.loss_interval, 100, 1)} |"
        )
    yield ""
    for one, criterion in zip(figures.criteria, rubric.criteria, strict=True):
        yield from _criterion(kind, one, criterion.guideline, examples)


def _criterion(
    kind: int, one: Weighed, guideline: str | None, examples: Mapping[tuple[int, int, Sort], Example]
) -> Iterator[str]:
    """Yield the lines of a criterion: what it asks, its levels, and examples."""
    yield f"### {plain(one.name)}"
    yield ""
    if one.text != one.name:
        yield f"{plain(one.text)}."
        yield ""
    if guideline:
        yield f"Levels: {short(guideline)}"
        yield ""
    for sort, title in SORTS.items():
        example = examples.get((kind, one.type, sort))
        if example is not None:
            yield from _example(title, example)
    yield ""


def _example(title: str, example: Example) -> Iterator[str]:
    """Yield the lines of an example under a title of :data:`SORTS`."""
    other = {"A": "B", "B": "A"}[example.answer]
    yield f"- **{title.format(answer=example.answer, other=other)}.** To: {short(example.query)}"
    yield f"    - A: {short(example.response_a)}"
    to_another = ""
    if example.query_b:
        to_another = f", to {short(example.query_b)}"
    yield f"    - B{to_another}: {short(example.response_b)}"
    if example.judgment:
        of_one = ""
        if example.judged:
            of_one = f" of {example.judged}"
        yield f"    - the judgment{of_one}: {short(example.judgment)}"


def _left_out(left_out: Sequence[LeftOut], evidence: Evidence) -> Iterator[str]:
    """Yield the lines on all criteria that were named."""
    yield "## All criteria that were named"
    yield ""
    yield "| criterion | | kinds | judgments that decide |"
    yield "| --- | --- | --- | --- |"
    for row in left_out:
        yield f"| {plain(row.name)} | {row.reason} | {row.kinds} | {100 * row.decides:.0f}% |"
    yield ""
    for name, wordings in zip(evidence.names, evidence.wordings, strict=True):
        if wordings:
            shown = "; ".join(map(plain, wordings[:SHOWN_WORDINGS]))
            more = ""
            if len(wordings) > SHOWN_WORDINGS:
                more = f"; and {len(wordings) - SHOWN_WORDINGS:,} more"
            yield f"- {plain(name)} says the same as: {shown}{more}."
    if evidence.seldom:
        seldom = amount(evidence.seldom, "criterion")
        yield f"- Left out, since their wordings are named too seldom: {seldom}."
    for name, other in evidence.merged:
        yield f"- {plain(name)} says the same as {plain(other)}: it is counted there."
    for first, second, agreement in evidence.near():
        yield f"- {plain(first)} and {plain(second)} say nearly the same (agreement {agreement:.2f}; 1: the same)."
    yield ""


def _ends(interval: Interval | None, factor: float, digits: int) -> str:
    """Return the ends of an interval, or a dash."""
    if interval is None:
        return "–"
    low, high = (f"{factor * end:.{digits}f}" for end in interval)
    return f"{low} to {high}"


def short(text: str) -> str:
    """Return a text in one line, cut where it is long."""
    line = plain(text)
    if len(line) > SHOWN_TEXT:
        line = f"{line[: SHOWN_TEXT - 1]}…"
    return line


def plain(text: str) -> str:
    """Return a text in one line that Markdown shows as it is."""
    line = " ".join(text.split())
    for mark in "\\`*_[]<>|#":
        line = line.replace(mark, f"\\{mark}")
    return line
