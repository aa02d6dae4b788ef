"""The page of stage ``stress``, and the table at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from judgetrain.amounts import amount
from judgetrain.data.intervals import Interval
from judgetrain.extras.rubric.page import plain, short
from judgetrain.extras.rubric.stress_gains import LOWERED, Added, Edited, Figures, KindStressed
from judgetrain.extras.rubric.stress_pools import key_of
from judgetrain.judging.rows import table
from judgetrain.rubrics import Criterion, Rubric

SAID = {
    "holds": "What is gained by it is truth.",
    "without truth": "Answers gain by it without being better.",
    "adds little": "Beside the other criteria the truth rises with it by less than half of what its weight says.",
    "by its words": "An answer gains by stating its words.",
    "by length": "An answer gains by saying everything twice.",
    "not shown": "Between the two, as far as so many prompts can tell, or with too little truth.",
    "never separates": "All answers to a prompt have the same score.",
}
"""What each mark means."""
CRITERION_COLUMNS = (
    "criterion",
    "weight",
    "new weight",
    "rubric gains",
    "truth gains",
    "95%",
    "kept",
    "95%",
    "adds",
    "95%",
    "by words",
    "by length",
    "",
)
"""The head of the table of a kind's criteria."""


def stress_page(
    figures: Sequence[KindStressed],
    rubrics: Mapping[str, Rubric],
    kept: Mapping[str, Rubric],
    truth: str,
    rows: Iterable[Mapping[str, Any]],
) -> str:
    """Return the page.

    Args:
        figures: by kind of query.
        rubrics: the criteria by kind.
        kept: those with the weights that they keep.
        truth: who says what a response is worth.
        rows: of the shards.
    """
    examples = _examples(figures, rubrics, rows)
    lines = list(_head(truth))
    for of_kind in figures:
        lines += _kind(of_kind, rubrics[of_kind.kind], kept[of_kind.kind], examples)
    return "\n".join(lines) + "\n"


def _head(truth: str) -> Iterator[str]:
    """Yield the lines above the kinds."""
    yield "# What is gained under this rubric, and what of it is truth"
    yield ""
    yield (
        f"Of several answers to a prompt the one that scores best is taken. What it is worth says: {plain(truth)}. "
        "Gains are standard deviations of the answers to a prompt; intervals are 95%, over prompts."
    )
    yield ""
    yield (
        "Kept is the share of the whole rubric's gain that is truth, where the criterion alone chooses. Adds: by how "
        "much the truth rises with its score while those of the other criteria stay, as a share of what its weight "
        "says; 1 where all weights are right. By words: what an answer gains by stating the criterion's words; by "
        "length: by saying everything twice; both beyond what it is worth."
    )
    yield ""
    for mark, meaning in SAID.items():
        yield f"- *{mark}*: {meaning}"
    yield ""


def _kind(
    figures: KindStressed, rubric: Rubric, kept: Rubric, examples: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the lines of a kind of query."""
    yield f"## {plain(name_of(figures.kind))}"
    yield ""
    yield f"{amount(figures.prompts, 'prompt')}, {amount(figures.responses, 'answer')}. The whole rubric chooses:"
    yield ""
    yield "| best of | root of KL | rubric gains | 95% | truth gains | 95% |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for gain in figures.whole.gains:
        yield (
            f"| {gain.n} | {gain.kl**0.5:.2f} | {gain.rubric:.2f} | {_ends(gain.rubric_interval)} | {gain.truth:.2f} | "
            f"{_ends(gain.truth_interval)} |"
        )
    yield ""
    most = figures.whole.gains[-1].n
    yield f"One criterion chooses, of {most}:"
    yield ""
    yield f"| {' | '.join(CRITERION_COLUMNS)} |"
    yield f"| {' | '.join(['---'] * len(CRITERION_COLUMNS))} |"
    weights = {key_of(criterion): criterion.weight for criterion in kept.criteria}
    for criterion, one in zip(rubric.criteria, figures.criteria, strict=True):
        gain = one.gains[-1]
        cells = (
            f"**{plain(_title(criterion))}**",
            f"{criterion.weight:g}",
            f"{weights.get(one.key, 0):g}",
            f"{gain.rubric:.2f}",
            f"{gain.truth:.2f}",
            _ends(gain.truth_interval),
            _number(one.kept),
            _ends(one.kept_interval),
            *_added(one.added),
            _edit(one.words),
            _edit(one.longer),
            one.mark,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    for criterion, one in zip(rubric.criteria, figures.criteria, strict=True):
        example = examples.get((figures.kind, one.key))
        if example is not None:
            yield f"**{plain(_title(criterion))}** chooses, to: {short(example['query'])}"
            yield ""
            yield f"- this answer: {short(example['chosen'])}"
            yield f"- which is worth less than: {short(example['better'])}"
            yield ""


def _examples(
    figures: Sequence[KindStressed], rubrics: Mapping[str, Rubric], rows: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return for each criterion whose weight falls the prompt at which its choice is worth least beside the best."""
    lowered_keys: dict[str, list[tuple[str, float]]] = {}
    for of_kind in figures:
        signs = [1.0 if criterion.weight > 0 else -1.0 for criterion in rubrics[of_kind.kind].criteria]
        for one, sign in zip(of_kind.criteria, signs, strict=True):
            if one.mark in LOWERED:
                lowered_keys.setdefault(of_kind.kind, []).append((one.key, sign))
    examples: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        for key, sign in lowered_keys.get(row["kind"], []):
            example = _example(row, key, sign)
            if example and example["loss"] > examples.get((row["kind"], key), {"loss": 0.0})["loss"]:
                examples[row["kind"], key] = example
    return examples


def _example(row: Mapping[str, Any], key: str, sign: float) -> dict[str, Any] | None:
    """Return the answer that a criterion chooses at a prompt and the best one; None where they cannot be read."""
    readable = []
    for response in row["responses"]:
        if response["truth"] is not None and response["by_criterion"].get(key) is not None:
            readable.append(response)
    if not readable:
        return None
    chosen = max(readable, key=lambda response: sign * response["by_criterion"][key])
    best = max(readable, key=lambda response: response["truth"])
    loss = best["truth"] - chosen["truth"]
    return {"query": row["query"], "chosen": chosen["text"], "better": best["text"], "loss": loss}


def summary(
    figures: Sequence[KindStressed], rubrics: Mapping[str, Rubric], left_out: Mapping[str, Sequence[str]]
) -> Iterator[Any]:
    """Yield the table at the stage's end, and what is left out of the rubric."""
    rows = []
    for of_kind in figures:
        whole = of_kind.whole.gains[-1]
        rows.append(_summary_row(name_of(of_kind.kind), "(all)", of_kind.whole, f"best of {whole.n}"))
        for criterion, one in zip(rubrics[of_kind.kind].criteria, of_kind.criteria, strict=True):
            rows.append(_summary_row("", _title(criterion), one, one.mark))
    columns = ("kind", "criterion", "rubric gains", "truth gains", "kept", "adds", "by words", "by length", "")
    yield table("What the best of several responses gains", columns, rows)
    for kind, names in left_out.items():
        if names:
            yield f"Left out of {name_of(kind)}: {', '.join(names)}"


def _summary_row(kind: str, criterion: str, one: Figures, remark: str) -> tuple[str, ...]:
    """Return a row of the table."""
    gain = one.gains[-1]
    return (
        kind,
        criterion,
        f"{gain.rubric:.2f}",
        f"{gain.truth:.2f}",
        _number(one.kept),
        _added(one.added)[0],
        _edit(one.words),
        _edit(one.longer),
        remark,
    )


def name_of(kind: str) -> str:
    """Return a kind's name, or what queries of none are called."""
    return kind or "every query"


def _title(criterion: Criterion) -> str:
    """Return a criterion's name, or its text where it has none."""
    return criterion.name or criterion.text


def _added(added: Added | None) -> tuple[str, str]:
    """Return what a criterion adds to the others and the ends of its interval, or dashes."""
    if added is None:
        return _number(None), _ends(None)
    return _number(added.share), _ends(added.interval)


def _edit(edited: Edited | None) -> str:
    """Return what an edit gains, or a dash."""
    return _number(None if edited is None else edited.gain)


def _number(value: float | None) -> str:
    """Return a number with two digits, or a dash."""
    return "–" if value is None else f"{value:.2f}"


def _ends(interval: Interval | None) -> str:
    """Return the ends of an interval, or a dash."""
    if interval is None:
        return "–"
    low, high = interval
    return f"{low:.2f} to {high:.2f}"
