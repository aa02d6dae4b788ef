"""One evaluation tree as a self-contained page."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from judgetrain.judges.trees.prune import prune
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.schema import Verdict

_REASONS = {
    "unreadable": "unreadable",
    "self_inconsistent": "judgments of the same prompt differ",
    "position_inconsistent": "the verdict changes with the order",
}
_ORDERS = {"AB": "A shown first", "BA": "B shown first, as “Response A”"}
_NOTHING = "–"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Browsers run and load nothing, whatever a page holds."""


@dataclass(frozen=True)
class View:
    """A tree and what is known of it.

    ``label`` is its row of ``labels.jsonl``; ``sft`` and ``pairs`` are the rows made of it; ``facts`` stand at the
    top, in order. All may be missing.
    """

    tree: EvaluationTree
    label: Mapping[str, Any] | None = None
    sft: Sequence[Mapping[str, Any]] = ()
    pairs: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def tree_page(view: View, index: str | None = None) -> str:
    """The page of one tree; everything that comes from data is escaped. ``index`` is linked at the top."""
    comparison = view.tree.comparison
    parts = _TreePage(view)
    back = f'<p><a href="{escape(index)}">All trees</a></p>' if index else ""
    context = comparison.dialogue.context
    earlier = f"<details><summary>Earlier conversation</summary>{_text(context)}</details>" if context else ""
    body = (
        f'{back}<h1>Evaluation tree</h1><p class="soft">{escape(comparison.id)}</p>{parts.facts()}'
        f'<h2>Query</h2>{earlier}<div class="card">{_text(comparison.dialogue.query)}</div>'
        f'<h2>Responses</h2><div class="two">{parts.response("A")}{parts.response("B")}</div>'
        f"<h2>Votes</h2>{parts.votes()}<h2>Criteria, in the order named</h2>{parts.criteria()}{parts.pairs()}"
    )
    return page(f"Tree of {comparison.id}", body)


class _TreePage:
    """The parts of one tree's page."""

    def __init__(self, view: View) -> None:
        self.view, self.tree = view, view.tree
        self.branches = prune(view.tree)
        self.verdict = view.label.get("verdict") if view.label else None
        self.numbers: dict[str, str] = {}
        """Of every node, by its id: ``2``, ``2.1`` and ``2.1.4`` are a criterion, its guideline and its judgment."""
        for criterion in view.tree.criteria:
            number = self.numbers[criterion.id] = str(criterion.rank + 1)
            for k, guideline in enumerate(criterion.guidelines, start=1):
                self.numbers[guideline.id] = f"{number}.{k}"
                self.numbers |= {j.id: f"{number}.{k}.{n}" for n, j in enumerate(guideline.judgments, start=1)}
        self.orders = {j.id: f"{_ORDERS[j.order]}, " for _, _, j in view.tree.judgments()}
        self.uses: dict[str, list[str]] = {}
        for row in view.sft:
            for node in row["nodes"]:
                self.uses.setdefault(node, []).append(_tag("SFT example", "good"))
        for i, row in enumerate(view.pairs, start=1):
            for side, kind in (("chosen", "good"), ("rejected", "bad")):
                for node in row["nodes"][side]:
                    link = f'<a class="tag {kind}" href="#pair{i}">{side} in pair {i}</a>'
                    self.uses.setdefault(node, []).append(link)

    def facts(self) -> str:
        """Label, truth and what else is known, as a list."""
        truth = self.tree.comparison.label
        facts = {"Right verdict": verdict_text(truth)} if truth else {}
        facts |= {name: escape(value) for name, value in self.view.facts.items()}
        if self.view.label:
            known = {"comparison_id", "votes", "truth", "verdict", "share", "deciding_share", "readable", "reason"}
            reason = self.view.label.get("reason")
            facts["Label"] = verdict_text(self.verdict) if self.verdict else f"none ({escape(reason)})"
            facts["Winner's share of votes"] = percent(self.view.label.get("share"))
            if (deciding := self.view.label.get("deciding_share")) is not None:
                facts["Readable judgments that decide (no tie)"] = percent(deciding)
            facts["Readable judgments"] = percent(self.view.label.get("readable"))
            others = {k: v for k, v in self.view.label.items() if k not in known and v is not None}
            facts |= {k.replace("_", " "): escape(v) for k, v in others.items()}
        if self.tree.failures:
            facts["Failures"] = escape(", ".join(f"{n} {reason}" for reason, n in self.tree.failures.items()))
        return f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{value}</dd>' for name, value in facts.items())}</dl>"

    def response(self, side: str) -> str:
        """One response, marked where the label or the truth prefers it."""
        comparison = self.tree.comparison
        text, model = (
            (comparison.response_a, comparison.model_a) if side == "A" else (comparison.response_b, comparison.model_b)
        )
        marks = [_tag("better by the label", side)] if self.verdict == side else []
        marks += [_tag("better in truth", "good")] if comparison.label == side else []
        by = f" <small>by {escape(model)}</small>" if model else ""
        return f'<div class="card"><h3 class="{side}">Response {side}{by}</h3>{_tags(marks)}{_text(text)}</div>'

    def votes(self) -> str:
        """All branches' verdicts as a bar and in numbers, and what pruning kept."""
        nodes = [j for _, _, j in self.tree.judgments()]
        fates = Counter(b.reason for b in self.branches.values())
        pruned = "".join(f", {n} pruned: {_REASONS[r]}" for r, n in sorted(fates.items()) if r != "kept")
        return f"{_bar(nodes)}<p>{_tally(nodes)}</p><p>{len(nodes)} branches: {fates['kept']} kept{pruned}</p>"

    def criteria(self) -> str:
        """Every criterion with what grew from it."""
        sampled = _text(self.tree.criteria_text)
        if not self.tree.criteria:
            return f'<p class="bad">No criterion could be read from what the judge wrote:</p>{sampled}'
        parts = "".join(map(self._criterion, self.tree.criteria))
        return f"{parts}<details><summary>The list as sampled</summary>{sampled}</details>"

    def _criterion(self, criterion: CriterionNode) -> str:
        nodes = [j for g in criterion.guidelines for j in g.judgments]
        number, marks = self.numbers[criterion.id], [*self._success(nodes), *self.uses.get(criterion.id, [])]
        return (
            f'<details class="criterion" id="n{number}"><summary>{number}. '
            f'<span class="text">{escape(criterion.text)}</span> <span class="tally">{_tally(nodes)}</span></summary>'
            f"{_bar(nodes)}{_tags(marks)}{''.join(map(self._guideline, criterion.guidelines))}</details>"
        )

    def _success(self, nodes: Sequence[JudgmentNode]) -> list[str]:
        readable = [j for j in nodes if j.verdict is not None]
        if self.verdict is None or not readable:
            return []
        agreeing = sum(j.verdict == self.verdict for j in readable)
        return [_tag(f"{agreeing} of {len(readable)} readable judgments give the label")]

    def _guideline(self, guideline: GuidelineNode) -> str:
        number, marks = self.numbers[guideline.id], self._success(guideline.judgments)
        kept = sum(self.branches[j.id].kept for j in guideline.judgments)
        if guideline.finish_reason != "stop":
            marks.append(_tag(f"ended by: {guideline.finish_reason}", "bad"))
        marks += self.uses.get(guideline.id, [])
        columns = ""
        for order, title in _ORDERS.items():
            if cards := "".join(self._judgment(j) for j in guideline.judgments if j.order == order):
                columns += f'<div class="column"><small>{title}</small>{cards}</div>'
        return (
            f'<details class="guideline" open id="n{number}"><summary>Guideline {number}: {kept} of '
            f"{len(guideline.judgments)} judgments kept</summary>{_text(guideline.text)}{_tags(marks)}"
            f'<div class="two">{columns}</div></details>'
        )

    def _judgment(self, node: JudgmentNode) -> str:
        branch, verdict, number = self.branches[node.id], node.verdict, self.numbers[node.id]
        scores = f"A {_number(node.score_a)} : B {_number(node.score_b)}" if verdict else "not read"
        if branch.kept:
            marks = [_tag("kept", "good")]
        else:
            why = f"{_REASONS[branch.reason]}{f': {node.failure}' if node.failure else ''}"
            marks = [_tag(f"pruned: {why}", "bad")]
        if verdict and self.verdict and verdict not in (self.verdict, "tie"):
            marks.append(_tag("against the label", "bad"))
        if node.finish_reason != "stop":
            marks.append(_tag(f"ended by: {node.finish_reason}", "bad"))
        return (
            f'<div class="card" id="n{number}"><h3>{scores} {verdict_text(verdict)}</h3>'
            f"<small>{number}, {node.generated_tokens} tokens</small>{_tags([*marks, *self.uses.get(node.id, [])])}"
            f"<details><summary>Judgment as sampled</summary>{_text(node.text)}</details></div>"
        )

    def pairs(self) -> str:
        """The preference pairs that came of the tree, with links to the nodes behind each side."""
        if self.view.label is None:
            return ""
        cards = "".join(self._pair(row, n) for n, row in enumerate(self.view.pairs, start=1))
        return f"<h2>Preference pairs</h2>{cards or '<p>None came of this tree.</p>'}"

    def _pair(self, row: Mapping[str, Any], number: int) -> str:
        sides = ""
        for side, kind in (("chosen", "good"), ("rejected", "bad")):
            links = " ".join(
                f'<a href="#n{self.numbers[n]}">{self.numbers[n]}</a>' for n in row["nodes"][side] if n in self.numbers
            )
            text = "\n".join(message["content"] for message in row[side])
            sides += f'<div class="card"><h3 class="{kind}">{side} <small>from {links}</small></h3>{_text(text)}</div>'
        shown = self.orders.get(next(iter(row["nodes"]["chosen"]), ""), "")
        rewards = "".join(f", {escape(name)} {_number(value)}" for name, value in row.get("reward", {}).items())
        return (
            f'<h3 id="pair{number}">Pair {number}: {escape(row["level"])} '
            f'<small>{shown}margin {_number(row["margin"])}{rewards}</small></h3><div class="two">{sides}</div><br>'
        )


def page(title: str, body: str) -> str:
    """A whole page of ours around ``body``; nothing is loaded and nothing runs, whatever the body holds."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_style()}</style></head><body>{body}</body></html>\n"
    )


@cache
def _style() -> str:
    return Path(__file__).with_name("viewer.css").read_text(encoding="utf-8")


def escape(value: object) -> str:
    """A value as text of a page; half surrogates, which no file can hold, become question marks."""
    return html.escape(str(value).encode("utf-8", "replace").decode("utf-8"))


def verdict_text(verdict: Verdict | None) -> str:
    """A verdict in words and in its colour."""
    words = {"A": "A is better", "B": "B is better", "tie": "tie", None: "no verdict"}
    return f'<span class="{verdict or "none"}">{words[verdict]}</span>'


def percent(share: float | None) -> str:
    """A share in whole percents; a dash for None."""
    return _NOTHING if share is None else f"{100 * share:.0f}%"


def _text(text: str) -> str:
    return f'<div class="text" dir="auto">{escape(text) or "<small>(empty)</small>"}</div>'


def _number(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.3g}"


def _tag(text: str, kind: str = "none") -> str:
    return f'<span class="tag {kind}">{escape(text)}</span>'


def _tags(tags: Iterable[str]) -> str:
    joined = "".join(tags)
    return f'<div class="tags">{joined}</div>' if joined else ""


def _count(nodes: Sequence[JudgmentNode]) -> dict[str, int]:
    verdicts = Counter(j.verdict for j in nodes)
    return {"A": verdicts["A"], "tie": verdicts["tie"], "B": verdicts["B"], "none": verdicts[None]}


def _bar(nodes: Sequence[JudgmentNode]) -> str:
    parts = "".join(f'<i class="{name}" style="flex:{n}"></i>' for name, n in _count(nodes).items() if n)
    return f'<div class="votes" aria-hidden="true">{parts}</div>'


def _tally(nodes: Sequence[JudgmentNode]) -> str:
    words = {"A": "A", "tie": "tie", "B": "B", "none": "unreadable"}
    found = (f'<span class="{k}">{words[k]} {n}</span>' for k, n in _count(nodes).items() if n or k != "none")
    return " · ".join(found)
