"""The count of parse failures by readout, on a scripted judge whose every failure is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.engines.base import Choice, Completion
from judgetrain.judges.prompting.prompts import load_prompt_set
from tests.benchmarks import readout_failures
from tests.benchmarks.readout_failures import outcomes, sampled, table
from tests.builders.label import tree_of
from tests.builders.scripted import ScriptedEngine, criteria, judged


def rows(path: Path, number: int = 6) -> Path:
    lines = [
        {
            "id": f"e{i}",
            "scenario": "s",
            "prompt": f"q{i}",
            "response_1": "a" * (i + 1),
            "response_2": "b",
            "label": i % 3,
        }
        for i in range(number)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_sample_is_short_enough_and_the_same_for_a_seed(tmp_path: Path) -> None:
    path = str(rows(tmp_path / "dev.jsonl"))
    found = sampled(path, 3, 6, seed=1)
    assert [c.id for c in found] == [c.id for c in sampled(path, 3, 6, seed=1)]
    assert len(found) == 3 and all(len(c.response_a) <= 3 for c in found)
    assert {c.label for c in sampled(path, 9, 99, seed=1)} == {"A", "B", "tie"}


def test_outcomes_by_hand() -> None:
    nodes = [j for _, _, j in tree_of(("A?tA",)).judgments()]
    texts = [judged(5, 1), "I like both.", "Response A Score: 9\nResponse B Score: 1", "Response A Score: 3"]
    again = [Completion(text=t, prompt_tokens=1, generated_tokens=1, finish_reason="stop") for t in texts] + [
        Completion(prompt_tokens=9, finish_reason="too_long")
    ]
    found = outcomes(nodes, again)
    assert found["parsed"] == {"no_scores": 4}, "these nodes hold no readable text, whatever their scores"
    assert found["expected"] == {"read": 3, "no_scores": 1}
    assert found["constrained"] == {"read": 1, "no_scores": 1, "out_of_range": 1, "no_score_b": 1, "too_long": 1}
    assert "| constrained | 5 | 4 | 80.0 (37.6–96.4) |" in table(found)


def test_the_command_counts_the_same_judgments_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def answer(request, occurrence):  # type: ignore[no-untyped-def]
        if request.step == "criteria":
            return criteria(2)
        if request.step == "guideline":
            return f"guideline {occurrence}"
        asked.append(request)
        if request.sampling.pattern:
            return judged(4, 2)
        return judged(4, 2) if occurrence else "prose"

    class Engine(ScriptedEngine):
        def generate(self, requests, seed):  # type: ignore[no-untyped-def]
            done = super().generate(requests, seed)
            place = judged(4, 2).index("4"), judged(4, 2).index("2")
            sure = tuple(Choice(p, (0.2,) * 5) for p in place)
            return [
                Completion(text=c.text, prompt_tokens=1, generated_tokens=1, finish_reason="stop", choices=sure)
                for c in done
            ]

    loaded = Engine(answer), load_prompt_set("compact")
    monkeypatch.setattr(readout_failures, "load", lambda model, prompts, batch_size: loaded)
    data = str(rows(tmp_path / "dev.jsonl"))
    command = [data, "--model", "m", "--comparisons", "5", "--criteria", "2", "--output", str(tmp_path / "out")]
    readout_failures.main([*command, "--minutes", "0"])
    printed = capsys.readouterr().out
    assert "| parsed | 0 | 0 |" in printed and "the 0 minutes are over" in printed
    readout_failures.main(command)
    printed = capsys.readouterr().out
    judgments = 5 * 2 * 2 * 2 * 2
    assert len(asked) == 2 * judgments
    assert sum(bool(r.sampling.pattern) for r in asked) == judgments
    assert (
        f"| parsed | {judgments} | {judgments // 2} | 50.0 (" in printed and f"no_scores {judgments // 2} |" in printed
    )
    assert f"| expected | {judgments} | {judgments // 2} |" in printed
    assert f"| constrained | {judgments} | 0 | 0.0 (" in printed
    assert "5 trees, 10 criteria, 20 guidelines (0 not usable); failures: none." in printed
    asked.clear()
    readout_failures.main(command)
    assert not asked, "everything is there"
    assert f"| constrained | {judgments} | 0 |" in capsys.readouterr().out
