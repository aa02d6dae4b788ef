"""``stage=preflight``: everything that is missing at once, and estimates that add up."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.engines.config import ModelConfig, engines_in
from judgetrain.extras.init import rehearsal
from judgetrain.extras.init.preflight import Pace, Play, steps_of
from judgetrain.extras.init.rehearsal import Ledger, Rehearsed, RehearsedConfig
from judgetrain.pipeline.run import Pipeline
from judgetrain.train.config import TrainConfig
from tests.builders.pipeline import configured, here


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    given = "recipe=pairs", f"data_dir={tmp_path}", "train.base.path=./no-model", "teacher=given"
    for stage in ("preflight", "evaluate"):
        done = here(f"stage={stage}", *given, "cluster.encoder=./no-encoder", f"output_dir={tmp_path / 'o'}")
        assert done.returncode == 2
        for key in ("dialogues.sources[0].path", "train.base.path=./no-model", "cluster.encoder=./no-encoder"):
            assert len(re.findall(re.escape(key), done.stderr)) == 1, done.stderr
    assert not (tmp_path / "o" / "artifacts").exists()


def test_a_training_s_pace_is_that_of_its_steps() -> None:
    """Three steps at seconds 2, 4 and 6 of a stage of 10 s: 2 s a step with 200 tokens, 4 s for everything else."""
    pace = Pace.of([(2.0, 200.0), (4.0, 400.0), (6.0, 600.0)], 10.0)
    assert (pace.tokens, pace.rest) == (100.0, 4.0)


@pytest.mark.parametrize(
    ("settings", "rows", "steps"),
    [
        ({}, 1000, 125),
        ({"num_train_epochs": 3.0, "global_accumulation_steps": 2}, 100, 19),
        ({"min_steps": 60}, 100, 63),  # five passes over 100 rows, eight a step
        ({"max_steps": 7}, 1000, 7),
        ({}, 0, 0),
    ],
)
def test_steps_are_counted_as_the_trainer_counts_them(settings: dict[str, Any], rows: int, steps: int) -> None:
    assert steps_of(TrainConfig(**settings), rows) == steps


class Timed:
    """An engine that takes 0.25 s a request of a clock that nothing else moves."""

    max_context, lasting = 100, False

    def __init__(self) -> None:
        self.now, self.longest = 0.0, list[int]()

    def tokenizer(self, texts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[0] * len(text.split()) for text in texts]}

    def generate(self, requests: list[Request], seed: int) -> list[Completion]:
        self.now += 0.25 * len(requests)
        self.longest += [each.sampling.max_new_tokens for each in requests]
        return [Completion(text="?", finish_reason="stop") for _ in requests]


@pytest.mark.parametrize("number", [3, 100])
def test_what_is_not_asked_counts_as_long_as_what_is(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, ledger = Timed(), Ledger("base", batch=8, budget=1.0, lengths={"judgment": [5, 7]})
    monkeypatch.setattr(rehearsal, "time", SimpleNamespace(monotonic=lambda: engine.now))
    monkeypatch.setattr(rehearsal, "encode", lambda requests, *_: (dict.fromkeys(range(len(requests)), (0,) * 9), {}))
    monkeypatch.setattr(Ledger, "loaded", lambda self, config: engine)
    slots = {"response_a": "left", "response_b": "right", "criterion": "It is true."}
    sampling = Sampling(max_new_tokens=6, candidates=("1", "2", "3", "4", "5"))
    asked = [Request(messages=(), sampling=sampling, step="judgment", slots=slots) for _ in range(number)]
    found = Rehearsed(RehearsedConfig(model=ModelConfig("judge"), ledger=ledger)).generate(asked, 0)
    assert engine.now + ledger.pending == pytest.approx(0.25 * number)
    assert engine.now < 8 and set(engine.longest) == {5, 6}, "as long as what was learned, at most what is allowed"
    assert sum(ledger.cut.values()) == number // 2
    for each in found:
        first, second = re.findall(r"Score: (\d)", each.text)
        assert {first, second} == {"2", "4"}
        assert [choice.probabilities.index(1.0) + 1 for choice in each.choices] == [int(first), int(second)]


PAID = "{type: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}"


def test_nothing_that_may_be_paid_for_is_asked(tmp_path: Path) -> None:
    models = f"responses.models=[{{name: a, engine: {PAID}}}, {{name: b, engine: {PAID}}}]"
    others = [f"{place}={PAID}" for place in ("teacher.engine", "label.external.engine", "evaluate.external")]
    methods = "evaluate.methods=[dpo,pairwise:external,external,pairwise:teacher]"
    config = configured("recipe=debug", models, *others, "label.source=external", methods)
    play = Play(config, "evaluate", tmp_path)

    def paid(pipeline: Pipeline) -> list[str]:
        stages = "responses", "teacher", "label", "evaluate"
        return [stage for stage in stages if any(e.paid for e in engines_in(pipeline.settings(stage)))]

    assert paid(Pipeline(config)) == ["responses", "teacher", "label", "evaluate"]
    assert paid(play._played) == []


def test_a_run_is_played_through_and_nothing_of_it_stays(tmp_path: Path) -> None:
    given = "recipe=debug", "track.tracker=none", "evaluate.methods=[dpo]", f"output_dir={tmp_path / 'out'}"
    config = configured(*given, "label.source=external", f"label.external.engine={PAID}")
    play = Play(config, "evaluate", tmp_path / "played")
    play.run()
    assert [each.stage for each in play.found] == [
        *("dialogues", "cluster", "responses", "teacher", "initial", "tree", "label", "sft", "reference", "dpo"),
        "evaluate",
    ]
    found = {each.stage: each.of for each in play.found}
    assert (found["responses"], found["teacher"], found["tree"]) == ("40 comparisons", "24 comparisons", "16 trees")
    assert found["evaluate"] == "1 methods on 24 comparisons"
    assert found["label"] == "what referee takes"
    assert not play.left and all(each.seconds >= 0 for each in play.found)
    assert not (tmp_path / "out").exists()
