"""Held-out comparisons whose better side is known: only the end is wrong, and no rule about numbers finds it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

from judgetrain.data.answer_key import is_right
from judgetrain.schema import Comparison, Dialogue, Message
from tests.benchmarks import known_pairs
from tests.builders.evaluate import write_rows


def test_the_working_stays_and_the_end_is_wrong() -> None:
    text = "He has 20 apples.\nHe eats 5.\nSo 20 - 5 = 15 are left, which is 15."
    wrong = known_pairs.wrong_end(text, random.Random(0))
    assert wrong is not None and wrong != text
    assert wrong.startswith("He has 20 apples.\nHe eats 5.\nSo 20 - 5 = ")
    assert is_right(text, "15") is True and is_right(wrong, "15") is False
    assert known_pairs.wrong_end("No number at all.", random.Random(0)) is None
    assert known_pairs.wrong_end("", random.Random(0)) is None


def test_rows_are_of_what_nobody_was_trained_on_and_rules_are_at_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def row(i: int) -> dict[str, object]:
        said = {"messages": [{"role": "user", "content": f"What is {i} and {i}?"}], "reference": f"It is\n{2 * i}."}
        return {"id": f"gsm8k-{i}", "source": "gsm8k" if i % 5 else "other", **said}

    path = write_rows(tmp_path / "dialogues.jsonl", map(row, range(20, 520)))
    seen = [Dialogue(f"s:{i}", "s", (Message("user", f"What is {i} and {i}?"),)) for i in range(20, 120)]
    pairs = [Comparison(d.id, d, "a", "b", label="A", made="errors: x") for d in seen]
    write_rows(tmp_path / "responses" / "comparisons.jsonl", (c.to_row() for c in pairs))
    arguments = [path, "--to", str(tmp_path / "known"), "--trained", str(tmp_path / "responses"), "--n", "300"]
    monkeypatch.setattr(sys, "argv", ["known_pairs", *arguments, "--constructed", str(tmp_path / "responses")])
    known_pairs.main()
    rows = [json.loads(line) for line in (tmp_path / "known" / "sums.jsonl").read_text().splitlines()]
    assert len(rows) == 300 and not (tmp_path / "known" / "constructed.jsonl").exists()
    asked = {r["messages"][0]["content"] for r in rows}
    assert len(asked) == 300 and not asked & {d.query for d in seen}
    assert 110 < sum(r["label"] == "A" for r in rows) < 190
    for r in rows:
        good, bad = (r["response_a"], r["response_b"]) if r["label"] == "A" else (r["response_b"], r["response_a"])
        number = int(r["messages"][0]["content"].split()[2])
        assert good == f"It is\n{2 * number}." and is_right(bad, str(2 * number)) is False and len(bad) == len(good)
    shares = [float(part.split("better in ")[1].rstrip("%\n")) for part in capsys.readouterr().out.split(";")[1:]]
    assert shares[0] == 50.0 and 41 < shares[1] < 59, "longer, and larger numbers: four standard errors of 300"
