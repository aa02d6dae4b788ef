"""verl's contract: one response against its row's reference, a number each, the judge loaded once."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judgetrain.judges
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.judge_reward import compute_score, compute_scores, verl
from judgetrain.judges import LongerJudge, Prediction
from judgetrain.schema import Comparison

INFO = {"prompt": "Why?", "index": 3}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Yield the names and options by which judges are loaded; each is ``longer``, which cannot read a ``?``."""
    loaded_judges: list[Any] = []

    class Half(LongerJudge):
        def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
            loaded_judges.append(len(comparisons))
            judged_pairs = zip(comparisons, super().compare_batch(comparisons), strict=True)
            return [replace(p, verdict_ab=None) if "?" in (c.response_a, c.response_b) else p for c, p in judged_pairs]

    def load(name: str, **asked: Any) -> Half:
        loaded_judges.append((name, asked))
        return Half()

    monkeypatch.setattr(judgetrain.judges, "load_judge", load, raising=False)
    verl.reward_of.cache_clear()
    yield loaded_judges
    verl.reward_of.cache_clear()


def test_a_response_is_compared_with_the_ground_truth(loads: list[Any]) -> None:
    for response, score in (("longer", 1.0), ("no", 0.0), ("same", 0.5), ("five", 0.5)):
        expected = {"score": score, "unreadable": 0.0}
        assert compute_score("mine", response, "same", INFO, judge="./my-judge", branches=3) == expected
    assert compute_score("mine", "?", "same", INFO, judge="./my-judge", branches=3) == {"score": 0.5, "unreadable": 1.0}
    assert loads == [("./my-judge", {"branches": 3}), 1, 1, 1, 1], "loaded once; what equals the reference is not asked"


def test_a_batch_is_asked_about_at_once(loads: list[Any]) -> None:
    chat = np.array([{"role": "user", "content": "Why?"}], dtype=object)  # as Parquet gives it
    infos = [{"question": "Why?"}, {"prompt": chat, "reference": "same"}, {"prompt": "Why?"}]
    scores = compute_scores(["a", "b", "c"], ["longer", "no", "?"], ["same", None, "same"], infos, "./my-judge")
    assert [(score["score"], score["unreadable"]) for score in scores] == [(1.0, 0.0), (0.0, 0.0), (0.5, 1.0)]
    assert loads == [("./my-judge", {}), 3]


def test_what_is_missing_is_named(loads: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"reward_kwargs.judge"):
        compute_score("mine", "a", "b", INFO)
    with pytest.raises(DataError, match=r"extra_info.prompt"):
        compute_score("mine", "a", "b", None, judge="./my-judge")
    for nothing in (None, "", " ", float("nan")):
        with pytest.raises(DataError, match=r"reward_model.ground_truth"):
            compute_score("mine", "a", nothing, INFO | {"reference": nothing}, judge="./my-judge")


@pytest.mark.parametrize("truth", [1234, 1234.0, np.int64(1234), np.float32(1234), "1234"])
def test_a_ground_truth_that_is_a_number_is_the_reference(truth: Any, loads: list[Any]) -> None:
    for response, score in (("12345", 1.0), ("123", 0.0), ("1234", 0.5)):
        assert compute_score("mine", response, truth, INFO, judge="./my-judge")["score"] == score
    beside = compute_score("mine", "12", None, INFO | {"reference": truth}, judge="./my-judge")
    assert beside["score"] == 0.0


def test_a_ground_truth_that_rules_read_is_refused_unless_the_row_says_what_is_shown(loads: list[Any]) -> None:
    truth = {"target": ["a", "b"]}
    with pytest.raises(DataError, match=r"row 1 of verl, reward_model.ground_truth: \{'target'.* is no reference"):
        compute_scores(["", ""], ["a", "a"], ["b", truth], [INFO, INFO], "./my-judge")
    assert compute_score("", "abc", truth, INFO | {"reference": 10}, judge="./my-judge")["score"] == 1.0
    with pytest.raises(DataError, match=r"row 0 of verl, extra_info.reference: expected a reference answer"):
        compute_score("", "abc", truth, INFO | {"reference": truth}, judge="./my-judge")


def test_verl_loads_the_module_by_its_file(loads: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # verl does so for ``custom_reward_function.path`` and ``name``.
    spec = importlib.util.spec_from_file_location("custom_module", Path(str(verl.__file__)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "custom_module", module)
    spec.loader.exec_module(module)
    score = module.compute_score(
        data_source="mine", solution_str="longer", ground_truth="same", extra_info=INFO, judge="./my-judge"
    )
    assert score["score"] == 1.0
