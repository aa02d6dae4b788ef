"""Run stage ``rubric``: find which criteria decide for which kind of query, and write them down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from judgetrain.amounts import amount
from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.clustering import Encoder
from judgetrain.data.config import ClusterConfig
from judgetrain.extras.rubric.described import kind_names, rightly_chosen, rubric_by_kind, rubric_for, typical_queries
from judgetrain.extras.rubric.evidence import Evidence, evidence_of
from judgetrain.extras.rubric.examples import find_examples, wanted_examples
from judgetrain.extras.rubric.forms import autorubric_form, file_names, own_form, prompt_text, verifiers_form, yaml_text
from judgetrain.extras.rubric.kinds import Kinds, find_kinds
from judgetrain.extras.rubric.measure import KindFigures, LeftOut, resampled_worth, weigh, why_left_out
from judgetrain.extras.rubric.page import rubric_page
from judgetrain.extras.rubric.reading import trees_in
from judgetrain.extras.rubric.stages import RubricSettings
from judgetrain.judging.rows import table
from judgetrain.rubrics import Rubric

FILE = "rubric.yaml"
"""The rubric, as ``criteria=`` reads it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The findings of the stage: kinds of query with their rubrics and figures.

    Args:
        evidence: the judgments.
        kinds: of query.
        names: of the kinds.
        queries: typical ones of each kind.
        rubrics: of the kinds.
        figures: of the kinds.
        overall: the rubric for a query of no kind.
        overall_figures: of that.
        left_out: all criteria that were named.
    """

    evidence: Evidence
    kinds: Kinds
    names: list[str]
    queries: list[list[str]]
    rubrics: list[Rubric]
    figures: list[KindFigures]
    overall: Rubric
    overall_figures: KindFigures
    left_out: list[LeftOut]

    @cached_property
    def rubric(self) -> Rubric:
        """Return the rubric of all kinds."""
        return rubric_by_kind(self.overall, self.names, self.queries, self.rubrics)


def run(settings: RubricSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``rubric.yaml``, ``.json`` and ``.md``, ``prompt.txt``, and files by kind in ``kinds`` and ``forms``."""
    trees = partial(trees_in, inputs, settings.rubric.files)
    embed = None
    if settings.rubric.encoder is not None:
        embed = Encoder(ClusterConfig(encoder=settings.rubric.encoder), "rubric.encoder")
    # Told in the first of two passes alone.
    evidence = evidence_of(trees(say=lambda line: out.log(f"rubric: {line}")), embed)
    labelled = int(evidence.labelled.sum())
    out.log(
        f"rubric: {len(evidence.prompts):,} judged comparisons, {labelled:,} with a label; "
        f"{len(evidence.names)} different criteria"
    )
    if embed is not None:
        wordings = len(evidence.names) + sum(map(len, evidence.wordings))
        out.log(f"rubric: {wordings:,} wordings of these criteria, put together by {settings.rubric.encoder}")
    if evidence.seldom:
        seldom = amount(evidence.seldom, "criterion")
        out.log(f"rubric: {seldom} left out: named too seldom to be compared")
    result = find(evidence, settings, out.seed)
    example_trees = wanted_examples(evidence, result.kinds, result.figures)
    examples = find_examples(trees(), evidence, example_trees)
    page = rubric_page(
        evidence, result.kinds, result.names, result.queries, result.rubrics, result.figures, result.left_out, examples
    )
    write_text_atomic(out.path("rubric.md"), page)
    _write(result, out)
    out.count(in_=len(evidence.prompts), out=len(evidence.prompts))
    out.tell(_summary(result))
    out.log(f"rubric: criteria={out.path(FILE)}")
    out.log(f"rubric: page: {out.path('rubric.md')}")


def find(evidence: Evidence, settings: RubricSettings, seed: int) -> Found:
    """Return the rubrics that evidence speaks for (DataError: nothing is foreseen by any criterion)."""
    config = settings.rubric
    # On matrices of this size two threads take three times the time of one.
    with threadpool_limits(1):
        kinds = find_kinds(evidence, config.kinds, config.most)
        resampled = resampled_worth(evidence, kinds, seed)
        figures = weigh(evidence, kinds, resampled, seed)
        left_out = why_left_out(evidence, kinds, resampled)
        # For every query: as if all were of one kind.
        whole = find_kinds(evidence, 1, config.most)
        (overall_figures,) = weigh(evidence, whole, resampled_worth(evidence, whole, seed), seed)
    rubrics = []
    for of_kind in figures:
        rubrics.append(rubric_for(evidence, of_kind))
    return Found(
        evidence=evidence,
        kinds=kinds,
        names=kind_names(evidence, kinds),
        queries=typical_queries(evidence, kinds, config.queries),
        rubrics=rubrics,
        figures=figures,
        overall=rubric_for(evidence, overall_figures),
        overall_figures=overall_figures,
        left_out=left_out,
    )


def _write(result: Found, out: StageRun) -> None:
    """Write the rubric's files."""
    rubric = result.rubric
    write_text_atomic(out.path(FILE), yaml_text(own_form(rubric)))
    write_text_atomic(out.path("prompt.txt"), prompt_text(rubric))
    files = {"all": result.overall}
    if result.kinds.number > 1:
        files |= zip(file_names(result.names), result.rubrics, strict=True)
    for folder in ("kinds", "forms"):
        out.path(folder).mkdir(exist_ok=True)
    for name, of_kind in files.items():
        write_text_atomic(out.path(f"kinds/{name}.yaml"), yaml_text(own_form(of_kind)))
        write_text_atomic(out.path(f"forms/{name}.autorubric.yaml"), yaml_text(autorubric_form(of_kind)))
        write_json_atomic(out.path(f"forms/{name}.verifiers.json"), verifiers_form(of_kind))
    write_json_atomic(out.path("rubric.json"), _figures(result))


def _figures(result: Found) -> dict[str, Any]:
    """Return all figures, for JSON."""
    evidence = result.evidence
    right, queries_asked = rightly_chosen(result.rubric, evidence, result.kinds, result.names)
    by_kind = []
    for name, queries, of_kind in zip(result.names, result.queries, result.figures, strict=True):
        by_kind.append({"name": name, "queries": queries[:3], **asdict(of_kind)})
    return {
        "comparisons": len(evidence.prompts),
        "labelled": int(evidence.labelled.sum()),
        "criteria": len(evidence.names),
        "learned_from": "labels" if result.kinds.by_labels else "agreement",
        # By number of kinds, and by number of criteria from one on: 1 is what expecting nothing has.
        "held_out_error": result.kinds.error,
        "kind_rightly_chosen": {"queries": queries_asked, "right": right},
        "kinds": by_kind,
        "all": asdict(result.overall_figures),
        "named": [asdict(row) for row in result.left_out],
        "worded": dict(zip(evidence.names, evidence.wordings, strict=True)),
        "named_too_seldom": evidence.seldom,
        "same": [{"name": name, "as": other} for name, other in evidence.merged],
        "nearly_same": [
            {"names": [first, second], "agreement": round(agreement, 3)} for first, second, agreement in evidence.near()
        ],
    }


def _summary(result: Found) -> Iterator[Any]:
    """Yield the table at the stage's end."""
    rows: list[Sequence[str]] = []
    for name, of_kind in zip(result.names, result.figures, strict=True):
        criteria = ", ".join(f"{one.name} {one.weight:.2f}" for one in of_kind.criteria)
        rows.append((name, f"{of_kind.trees:,}", f"{of_kind.labelled:,}", criteria))
    yield table("What decides, by kind of query", ("kind", "comparisons", "labels", "criteria and weights"), rows)
    others = [row.name for row in result.left_out if not row.kinds]
    if others:
        yield f"In no kind's rubric: {', '.join(others)} (why: rubric.md)"
