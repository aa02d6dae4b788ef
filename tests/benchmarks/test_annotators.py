"""Votes are read in whichever order a row names the models, and the table is that of the test itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.annotators import main, mt_bench, pandalm, vote


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def said(winner: str, judge: str = "", a: str = "x", b: str = "y", question: int = 81, turn: int = 1) -> dict[str, Any]:
    row = {"question_id": question, "turn": turn, "model_a": a, "model_b": b, "winner": winner}
    return row | {"judge": judge} if judge else row


def test_a_vote_is_for_a_model_whichever_side_it_stands_on() -> None:
    assert vote(said("model_a")) == vote(said("model_b", a="y", b="x")) == ("81/1/x/y", "x")
    assert vote(said("tie"))[1] == "tie" and vote(said("tie (inconsistent)"))[1] is None


def test_mt_bench_keeps_turns_and_people_apart(tmp_path: Path) -> None:
    votes = [said("model_a", "me"), said("model_b", "me"), said("tie", "you", "y", "x"), said("model_a", "me", turn=2)]
    written(tmp_path / "human_votes.jsonl", *votes)
    written(tmp_path / "gpt4_pair.jsonl", said("model_b", a="y", b="x"), said("tie (inconsistent)", turn=2))
    judged, people = mt_bench(tmp_path, (1,))
    assert judged == {"81/1/x/y": "x"} and people == {"me": {"81/1/x/y": "x"}, "you": {"81/1/x/y": "tie"}}
    assert mt_bench(tmp_path, (1, 2))[0] == {"81/1/x/y": "x", "81/2/x/y": None}


def test_of_three_annotators_who_agree_each_may_replace_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = {f"annotator{i}": 1 for i in (1, 2, 3)}
    rows = [{"idx": i, **three, "annotator3": 1 if i % 4 else 2} for i in range(40)]
    judged, people = pandalm(written(tmp_path / "pandalm/testset-v1.jsonl", *rows), "annotator1")
    assert [*people] == ["annotator2", "annotator3"] and judged["0"] == "1" and people["annotator3"]["0"] == "2"
    for name in ("human_votes", "gpt4_pair"):
        written(tmp_path / f"mt_bench_human/{name}.jsonl", said("tie", "me"))
    main([f"--data={tmp_path}", "--epsilon=0.1"])
    shown = capsys.readouterr().out.splitlines()
    assert "| MT-Bench, turn 1 | GPT-4 | 0.1 | 0 | – | – | – |" in shown, "nobody has thirty comparisons"
    # The third differs from both others on a quarter: against either of them it holds on three quarters.
    assert "| PandaLM | annotator1 | 0.1 | 2 | 40 to 40 | 1.00 | 1.00 |" in shown
    assert "| PandaLM | annotator3 | 0.1 | 2 | 40 to 40 | 0.00 | 0.75 |" in shown
    assert all(line.count("|") == 8 for line in shown)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"human_votes\.jsonl: there is no such file"):
        main([f"--data={tmp_path}"])
