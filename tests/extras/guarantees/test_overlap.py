"""What a judge was trained on, looked up through manifests that may be damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.artifacts.fingerprint import ContentHashes
from judgetrain.artifacts.integrity import sealed
from judgetrain.errors import DataError
from judgetrain.extras.guarantees import overlap
from judgetrain.extras.guarantees.overlap import overlaps
from judgetrain.judges.method import Method
from tests.builders.scripted import comparison


def test_a_garbage_manifest_upstream_of_a_judge_is_one_sentence(tmp_path: Path) -> None:
    judge, label = tmp_path / "artifacts" / "dpo" / "b", tmp_path / "artifacts" / "label" / "a"
    for directory in (judge, label):
        directory.mkdir(parents=True)
    (judge / "manifest.json").write_text(json.dumps({"stage": "dpo", "upstream": {"label": "a"}}))
    (label / "manifest.json").write_bytes(b"\x00\xffgarbage")
    with pytest.raises(DataError, match=r"label/a is damaged: manifest\.json is no manifest; stage label has"):
        overlaps([Method.parse("dpo")], {"dpo": judge}, "b", [])


def test_a_damaged_teacher_says_nothing_rather_than_too_little(tmp_path: Path) -> None:
    judge, teacher = tmp_path / "artifacts" / "dpo" / "b", tmp_path / "artifacts" / "teacher" / "a"
    rows = [json.dumps({"comparison": comparison(i).to_row()}) + "\n" for i in range(3)]
    for directory, upstream in ((judge, {"teacher": "a"}), (teacher, {})):
        directory.mkdir(parents=True)
        if directory is teacher:
            (teacher / "evaluations.jsonl").write_text("".join(rows))
            (teacher / "remaining.jsonl").write_text("")
        manifest = {"stage": directory.parent.name, "upstream": upstream}
        whole = sealed(directory, manifest, ContentHashes.of_run(None))
        (directory / "manifest.json").write_text(json.dumps(whole))
    asked = [comparison(i) for i in range(2, 5)]
    found, _ = overlaps([Method.parse("dpo")], {"dpo": judge}, "b", asked)
    assert (found["dpo"].training_queries, found["dpo"].exact, found["dpo"].near) == (3, 1, 0)
    (teacher / "evaluations.jsonl").write_text("".join(rows[:2]))
    overlap._dialogues.cache_clear()
    found, told = overlaps([Method.parse("dpo")], {"dpo": judge}, "b", asked)
    assert found["dpo"].training_queries is None and "not known here" in told[0]
