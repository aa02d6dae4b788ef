"""What a judge was trained on, looked up through manifests that may be damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgetrain.errors import DataError
from judgetrain.evaluate.overlap import Overlaps
from judgetrain.judges.method import Method


def test_a_garbage_manifest_upstream_of_a_judge_is_one_sentence(tmp_path: Path) -> None:
    judge, label = tmp_path / "artifacts" / "dpo" / "b", tmp_path / "artifacts" / "label" / "a"
    for directory in (judge, label):
        directory.mkdir(parents=True)
    (judge / "manifest.json").write_text(json.dumps({"stage": "dpo", "upstream": {"label": "a"}}))
    (label / "manifest.json").write_bytes(b"\x00\xffgarbage")
    with pytest.raises(DataError, match=r"label/a is damaged: manifest\.json is no manifest; stage label has"):
        Overlaps.find([Method.parse("dpo")], {"dpo": judge}, [], 0.8)
