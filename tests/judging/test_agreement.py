"""The interval of stage judge's agreement with labels: over prompts, not over rows."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from judgetrain.judging.rows import JudgingCost, summary_of, verdict_report

FREE = JudgingCost(calls=0, tokens={"prompt": 0, "generated": 0}, spent={})


def row(query: str, agrees: bool, answer: str | None = None) -> dict[str, Any]:
    """Return a row of verdicts whose label is A; ``answer`` makes it the second turn of a conversation."""
    messages = [{"role": "user", "content": query}]
    if answer is not None:
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
    verdict = "A" if agrees else "B"
    return {
        "messages": messages,
        "label": "A",
        "verdict": verdict,
        "verdict_ab": verdict,
        "verdict_ba": verdict,
        "failure": None,
        "failures": {},
        "plan": None,
    }


def told(rows: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return the summary of rows, and its line on the agreement."""
    summary = summary_of(rows, "longer", FREE)
    (line,) = [line for line in verdict_report(summary) if str(line).startswith("agreement")]
    return summary, line


def test_rows_that_share_a_prompt_are_resampled_together() -> None:
    rng = np.random.default_rng(3)
    shares = [1.0] * 9 + [0.0] * 4 + [0.5] * 3
    rows = []
    for prompt, share in enumerate(shares):
        for repeat in range(20):
            rows.append(row(f"prompt {prompt}", repeat < share * 20))
    drawn = rng.choice(shares, size=(20_000, len(shares))).mean(axis=1)
    summary, line = told(rows)
    assert summary["agreement_ci"] == pytest.approx(np.percentile(drawn, (2.5, 97.5)), abs=0.02)
    assert (summary["labelled"], summary["agreed"], summary["labelled_prompts"]) == (320, 210, 16)
    assert line.startswith("agreement: 210 of 320 labels, 65.6% (95%: 4") and "over 16 prompts)" in line
    # All labels name a side, and the interval holds a half.
    assert line.endswith(": not shown to be above chance, as a coin agrees with 50%")
    assert summary["labelled_ties"] == 0


def spellings(query: str) -> list[str]:
    """Return a query as two programs may write it: other blanks, ends of lines, case and forms of its characters."""
    return [query, f" {query}\r\n", query.replace(" ", "\n"), query.upper(), unicodedata.normalize("NFD", query)]


def test_other_spellings_of_a_prompt_are_the_same_prompt() -> None:
    queries = [f"Où est le café numéro {number}?" for number in range(12)]
    rows = [row(spelling, True) for query in queries for spelling in spellings(query)]
    summary, line = told(rows)
    assert (summary["labelled"], summary["labelled_prompts"]) == (60, 12)
    # Where all of n prompts are right, the exact interval reaches down to 0.025 ** (1 / n).
    assert summary["agreement_ci"][0] == pytest.approx(0.025 ** (1 / 12), abs=1e-3)
    assert "over 12 prompts" in line


def test_labels_that_are_ties_are_none_that_a_coin_agrees_with() -> None:
    """Of 60 rows a third are labelled as ties: a coin is right of 20, and a judge that is right of 30 is above it."""
    rows = [row(f"prompt {i}", i % 4 < 2) for i in range(60)]
    for tie in rows[:20]:
        tie["label"] = "tie"
        tie["verdict"] = "tie" if tie["verdict"] == "A" else "B"
    summary, line = told(rows)
    assert (summary["labelled"], summary["labelled_ties"], summary["agreed"]) == (60, 20, 30)
    assert line.endswith("over 60 prompts)")


def test_annotators_of_one_comparison_and_turns_of_one_conversation_are_one_prompt() -> None:
    once = [row(f"prompt {i}", i % 3 > 0) for i in range(30)]
    thrice = [row(f"prompt {i}", i % 3 > 0) for i in range(30) for _ in range(3)]
    turns = [*once, *[row(f"prompt {i}", i % 3 > 0, answer="So.") for i in range(30)]]
    expected = told(once)[0]["agreement_ci"]
    for rows in (thrice, turns):
        summary, _ = told(rows)
        assert summary["labelled_prompts"] == 30
        assert summary["agreement_ci"] == pytest.approx(expected, abs=1e-12)


def test_a_few_prompts_give_no_interval_however_many_rows_they_have() -> None:
    summary, line = told([row(f"prompt {i % 9}", i % 2 > 0) for i in range(900)])
    assert summary["agreement_ci"] is None
    assert line == "agreement: 450 of 900 labels, 50.0% (no interval: 9 prompts, and 10 are needed)"


def test_rows_that_do_not_tell_their_prompt_count_by_themselves() -> None:
    rows = [{**row("x", i % 2 > 0), "messages": []} for i in range(40)]
    assert told(rows)[0]["labelled_prompts"] == 40
