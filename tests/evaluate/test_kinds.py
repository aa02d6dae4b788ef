"""A kind of judge that is nothing but a record: what the checks, stage evaluate, stage judge and Python make of it."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest

from judgetrain import rooms
from judgetrain.errors import ConfigError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.extras.server.config import ServeConfig
from judgetrain.extras.server.serve import serve
from judgetrain.judges import load_judge
from judgetrain.judges.base import Judge
from judgetrain.judges.kinds.kind import Forms, Kind, Parts, Use, kinds
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Cost, Prediction, Reason, as_data
from judgetrain.judges.settings import ModelSettings
from judgetrain.judging.config import VerdictsConfig
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Comparison
from tests.builders.evaluate import pairs, refused, run

uses: list[Use] = []
"""What the kind's check was called with."""
asked: list[int] = []
"""How many comparisons the judge was asked about, by call."""


class Letters(Judge):
    """Prefers the response that begins with a letter, each text a reason, at a cost that is known in part."""

    name = "letters"

    def __init__(self, letter: str) -> None:
        self.letter = letter

    def compare_batch(self, comparisons: Sequence[Comparison], seed: int = 0) -> list[Prediction]:
        asked.append(len(comparisons))
        return [self.prediction(comparison) for comparison in comparisons]

    def prediction(self, comparison: Comparison) -> Prediction:
        verdict = "A" if comparison.response_a.startswith(self.letter) else "B"
        reason = Reason(
            order="AB",
            criterion="",
            guideline="",
            text=f"It begins with {self.letter}.",
            score_a=None,
            score_b=2.0,
            verdict=verdict,
            failure=None,
        )
        return Prediction(
            comparison_id=comparison.id,
            method=f"letters:{self.letter}",
            verdict_ab=verdict,
            verdict_ba=None,
            cost=Cost(3.0, math.nan, 0.5),
            judgments=2,
            failures={"silent": 1},
            reasons=(reason,),
        )


def check(settings: ModelSettings, method: Method, use: Use) -> None:
    uses.append(use)
    if len(method.target) != 1:
        raise ConfigError(f"{use.key}: {method.text!r}: name one letter")


def build(method: Method, options: JudgeOptions, parts: Parts) -> Judge:
    return Letters(method.target)


KIND = Kind(name="letters", forms=Forms(evaluate="letters:X"), check=check, build=build)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    every = {**rooms.kinds(), "letters": f"{__name__}:KIND"}
    monkeypatch.setattr(rooms, "kinds", lambda: every)
    uses.clear()
    asked.clear()


def config_of(tmp_path: Path, *methods: str, bootstrap: int = 20) -> Config:
    evaluate = EvaluateConfig([pairs(tmp_path, 10, "AB")], [*methods], [1, 3], bootstrap=bootstrap, shard_size=4)
    return Config(evaluate=evaluate, output_dir=str(tmp_path))


def test_what_it_says_is_kept_in_shards_and_asked_for_once(tmp_path: Path) -> None:
    config = config_of(tmp_path, "letters:o", "longer")
    assert not refused(config, "evaluate")
    assert uses == [Use(key="evaluate.methods", branches=[1, 3], labelled=True)]
    out = run("evaluate", config, {}, tmp_path / "evaluate" / "a").directory
    assert asked == [4, 4, 2], "a shard a call"
    assert [path.name for path in sorted(out.glob("verdicts-*.jsonl"))] == [
        f"verdicts-pairs-letters.o-0000{i}-of-00003.jsonl" for i in range(3)
    ]
    again = config_of(tmp_path, "letters:o", "longer", bootstrap=30)
    second = run("evaluate", again, {}, tmp_path / "evaluate" / "b").directory
    assert sum(asked) == 10, "another metric asks nobody again"
    for directory in (out, second):
        rows = pyarrow.parquet.read_table(directory / "predictions.parquet").to_pylist()
        mine = [row for row in rows if row["method"] == "letters:o"]
        # Every response A is "one N", and no response was read in the other order.
        assert [(row["verdict_ab"], row["verdict_ba"], row["prompt_tokens"]) for row in mine] == [("A", None, 3.0)] * 10
        assert all(math.isnan(row["generated_tokens"]) for row in mine)
        assert {row["failures"] for row in mine} == {'{"silent": 1}'}
    other = config_of(tmp_path, "letters:t")
    run("evaluate", other, {}, tmp_path / "evaluate" / "c")
    assert sum(asked) == 20, "another judge of the kind is asked"


def test_rows_give_predictions_back_with_their_reasons() -> None:
    prediction = Letters("x").prediction(Comparison.of("Why?", "xy", "z"))
    row = json.loads(json.dumps(as_data(prediction), allow_nan=False))
    back = Prediction.from_row(row)
    assert replace(back, cost=prediction.cost) == prediction
    assert back.reasons == prediction.reasons
    assert (back.cost.prompt_tokens, back.cost.calls) == (3.0, 0.5) and math.isnan(back.cost.generated_tokens)


def test_it_is_refused_where_it_is_named(tmp_path: Path) -> None:
    assert refused(config_of(tmp_path, "letters:xy"), "evaluate") == ("evaluate.methods: 'letters:xy': name one letter")
    config = config_of(tmp_path)
    config.verdicts = VerdictsConfig(judge="letters:xy", source=config.evaluate.benchmarks[0].source)
    assert refused(config, "judge") == "verdicts.judge: 'letters:xy': name one letter"
    config.serve = ServeConfig(judge="letters:xy")
    with pytest.raises(ConfigError, match=r"serve\.judge: 'letters:xy': name one letter"):
        serve(Pipeline(config))
    assert uses[1:] == [Use(key="verdicts.judge"), Use(key="serve.judge", alone=True)]


def test_it_judges_files_and_is_loaded_by_its_name(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    config.verdicts = VerdictsConfig(judge="letters:o", source=config.evaluate.benchmarks[0].source)
    assert not refused(config, "judge")
    out = run("judge", config, {}, tmp_path / "judge").directory
    rows = [json.loads(line) for line in (out / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["verdict_ab"] for row in rows] == ["A"] * 10
    assert load_judge("letters:z").compare(Comparison.of("Why?", "a", "z")).verdict_ab == "B"
    with pytest.raises(ConfigError, match="'letters:z' has no setting temperature"):
        load_judge("letters:z", temperature=1.0)
    with pytest.raises(ConfigError, match="'letters:z' goes by no criteria"):
        load_judge("letters:z", criteria=["short"])


def test_unknown_kinds_are_answered_with_the_forms_of_all(tmp_path: Path) -> None:
    message = refused(config_of(tmp_path, "lettters:x"), "evaluate")
    assert message.startswith("evaluate.methods: 'lettters:x' is none of base, teacher, external,")
    assert "letters:X" in message and "stored:NAME" in message
    config = config_of(tmp_path)
    config.verdicts = VerdictsConfig(judge="stored:x", source=config.evaluate.benchmarks[0].source)
    message = refused(config, "judge")
    assert message.startswith("verdicts.judge='stored:x': no judge of comparisons without labels; allowed are base,")
    assert "letters:X" in message and "stored:NAME" not in message and "surface" not in message


def test_every_kind_is_registered_under_its_own_name() -> None:
    assert [kind.name for kind in kinds()] == [*rooms.kinds()]
