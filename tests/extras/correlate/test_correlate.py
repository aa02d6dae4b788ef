"""Stage correlate: correlations recomputed from the ratings and scores that it was given, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from judgetrain.artifacts.files import write_json_atomic, write_rows_atomic
from judgetrain.data import world
from judgetrain.data.config import SourceConfig, WorldConfig
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.correlate import stage
from judgetrain.extras.correlate.config import ColumnConfig, CorrelateConfig
from judgetrain.pipeline.config import Config
from judgetrain.schema import Message
from tests.builders.evaluate import check, refused, write_rows
from tests.builders.evaluate import run as run_stage
from tests.builders.faulty_server import serving
from tests.builders.pipeline import configured

FUNCTIONS = (stats.pearsonr, stats.kendalltau, stats.spearmanr)
VALUES = [[-0.1, -0.9], [-0.3, float("nan")], [-0.7, -0.2]]
# -1 is a number here, as among the glass-box paper's.
RATED = {(1, 1): 9, (1, 2): 1, (2, 1): 7, (2, 2): 5, (3, 1): -1, (3, 2): 8}


def run(config: Config, inputs: dict[str, Path], directory: Path) -> list[dict[str, Any]]:
    check(config, "correlate")
    run_stage("correlate", config, inputs, directory)
    correlations: list[dict[str, Any]] = json.loads((directory / "correlations.json").read_text())["correlations"]
    return correlations


@pytest.fixture
def stored(tmp_path: Path) -> Config:
    """Features by turn and ratings in files of the published shape."""
    features = [{"question_id": i + 1, "evaluations": row} for i, row in enumerate(VALUES)]
    scores = [{"question_id": q, "model": "m", "turn": t, "score": s} for (q, t), s in RATED.items()]
    turned = [row | {"evaluations": [-v for v in row["evaluations"]]} for row in features]  # type: ignore[attr-defined]
    other = [{"question_id": 1, "model": "n", "turn": 1, "score": 3}]
    feature = write_rows(tmp_path / "f.jsonl", features)
    rating = write_rows(tmp_path / "r.jsonl", [*scores, *other])
    common = {"benchmark": "mt", "id": "question_id"}
    score = ColumnConfig(name="sentprob", source=SourceConfig(path=feature), model="m", value="evaluations", **common)
    rated = ColumnConfig(
        name="gpt-4",
        source=SourceConfig(path=rating),
        where={"model": "m"},
        value="score",
        keep_minus_one=True,
        **common,
    )
    lower = replace(score, name="turned", source=SourceConfig(path=write_rows(tmp_path / "t.jsonl", turned)))
    return Config(correlate=CorrelateConfig(ratings=[rated], scores=[score, lower]))


def test_every_turn_is_an_item_and_what_has_no_score_is_counted(stored: Config, tmp_path: Path) -> None:
    x = [-0.1, -0.9, -0.3, -0.7, -0.2]
    y = [9, 1, 7, -1, 8]
    expected = [f(x, y).statistic for f in FUNCTIONS]
    printed = [abs(round(v, 4)) for v in expected]
    others = {"mt/m/turned": [0.1, 0.2, 0.3], "mt/m/softmax_ent": [0.4, 0.5, 0.6]}
    stored.correlate.published = {"mt/m/sentprob": printed, **others}
    one, turned, none = run(stored, {}, tmp_path / "out")
    assert (one["n"], one["without"], one["same"]) == (5, 1, True)
    assert [one[k] for k in ("pearson", "kendall", "spearman")] == pytest.approx(expected)
    assert [turned[k] for k in ("pearson", "kendall", "spearman")] == pytest.approx([-v for v in expected])
    assert turned["same"] is False
    assert one["pearson_ci"] is None, "three prompts give no interval"
    assert (none["score"], none["n"], none["pearson"]) == ("softmax_ent", 0, None)
    report = (tmp_path / "out" / "report.md").read_text()
    assert "| m | softmax_ent | 0 | 0 | – | – | – | 0.4000 / 0.5000 / 0.6000 | no data |" in report
    assert "| yes |" in report and "turned ↑" in report
    page = (tmp_path / "out" / "report.html").read_text()
    assert "gpt-4 on mt" in page and "no data" in page


@pytest.mark.parametrize(("change", "n"), [({}, 10), ({"keep_minus_one": True}, 12), ({"lowest": -3}, 12)])
def test_minus_one_stands_for_no_rating_unless_it_may_be_one(change: dict[str, Any], n: int, tmp_path: Path) -> None:
    # Over the ten ratings that there are Pearson's r is 1.
    lowest = change.get("lowest", 1)
    kept = change.get("keep_minus_one", False)
    rated = [{"id": i, "model": "m", "value": -1 if i >= 10 else lowest if i == 0 else i + 1} for i in range(12)]
    people = [{"id": i, "model": "m", "value": 10 if i >= 10 else lowest if i == 0 else i + 1} for i in range(12)]
    files = {name: write_rows(tmp_path / f"{name}.jsonl", rows) for name, rows in (("r", rated), ("p", people))}
    ours, theirs = (
        ColumnConfig(name=name, source=SourceConfig(path=path), benchmark="b") for name, path in files.items()
    )
    config = Config(correlate=CorrelateConfig(ratings=[replace(ours, keep_minus_one=kept)], scores=[theirs]))
    [correlation] = run(config, {}, tmp_path / "out")
    assert correlation["n"] == n
    assert (correlation["pearson"] == pytest.approx(1)) is (n == 10)


def test_raters_are_scores_to_each_other(stored: Config, tmp_path: Path) -> None:
    rows = [{"id": q, "benchmark": "mt", "model": "m", "turn": t, "value": 10 - s} for (q, t), s in RATED.items()]
    source = SourceConfig(path=write_rows(tmp_path / "autoj.jsonl", rows))
    stored.correlate.ratings.append(ColumnConfig(name="auto-j", source=source))
    correlations = run(stored, {}, tmp_path / "out")
    assert [(r["rating"], r["score"]) for r in correlations] == [
        *(("gpt-4", score) for score in ("sentprob", "turned", "auto-j")),
        *(("auto-j", score) for score in ("sentprob", "turned", "gpt-4")),
    ]
    assert correlations[2]["pearson"] == pytest.approx(-1)
    stored.correlate.against = ["gpt-4"]
    assert {r["rating"] for r in run(stored, {}, tmp_path / "one")} == {"gpt-4"}


def test_what_it_refuses(stored: Config, tmp_path: Path) -> None:
    assert "name a file of ratings, or who rates" in refused(Config(), "correlate")
    stored.correlate.against = ["gpt-5"]
    assert "'gpt-5' is no rater; there are gpt-4" in refused(stored, "correlate")
    stored.correlate.against = []
    stored.correlate.raters = ["pointwise:external"]
    assert "leave one out" in refused(stored, "correlate")
    stored.correlate.raters = []
    stored.correlate.scores[0].model = "another"
    stored.correlate.scores.pop()
    with pytest.raises(DataError, match="no response has both a rating and a score: .*another"):
        run(stored, {}, tmp_path / "out")
    stored.correlate.ratings[0].where = {}
    stored.correlate.ratings[0].model = "m"
    with pytest.raises(DataError, match=r"r\.jsonl:7: .*there is a row of it already"):
        run(stored, {}, tmp_path / "out")


def selfeval(directory: Path, model: str, scores: dict[str, dict[str, float | str]]) -> Path:
    """Return what stage selfeval leaves: two answers to a prompt of two questions, one to the others."""
    rows = [
        {"id": i, "category": "math" if i.startswith("mt:81") else "writing", "response": f"{model} {i}", "scores": s}
        for i, s in scores.items()
    ]
    write_rows_atomic(directory / "scores.jsonl", rows)
    turns = [{"role": "user", "content": "first?"}, {"role": "assistant", "content": f"{model} mt:81#1"}]
    questions = {"mt:81#1": turns[:1], "mt:81": [*turns, {"role": "user", "content": "second?"}]}
    responses = [
        {
            "dialogue_id": r["id"],
            "text": r["response"],
            **({"messages": questions[r["id"]]} if r["id"] in questions else {}),
        }
        for r in rows
    ]
    write_rows_atomic(directory / "responses-00000-of-00001.jsonl", responses)
    better = {"softmax_ent": -1, "probdiff": 1}
    write_json_atomic(directory / "metrics.json", [{"method": m, "better": b} for m, b in better.items()])
    config = {"scorer": {"model": {"path": model}}, "train.base": {"path": ""}}
    write_json_atomic(directory / "manifest.json", {"config": config})
    return directory


def test_own_answers_are_rated_by_a_server_and_correlated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "none")
    first, *others = world.train_dialogues(WorldConfig(train_dialogues=8), 3)[:4]
    two = replace(first, id="mt:81", source="mt", messages=(Message("user", "first?"), Message("user", "second?")))
    dialogues = [two, *(replace(d, id=f"mt:{i}", source="mt") for i, d in enumerate(others))]
    write_rows_atomic(tmp_path / "dialogues" / "dialogues.jsonl", (d.to_row() for d in dialogues))
    ids = ["mt:81#1", "mt:81", "mt:0", "mt:1", "mt:2"]
    ours = {i: {"softmax_ent": 1.0 + n, "probdiff": -0.1 * n} for n, i in enumerate(ids)}
    theirs = ours | {"mt:1": {"softmax_ent": "too_long", "probdiff": "too_long"}}
    inputs = {"dialogues": tmp_path / "dialogues", "selfeval": selfeval(tmp_path / "own", "org/ours", ours)}
    config = Config(correlate=CorrelateConfig(raters=["pointwise:external"], models={"org/ours": "ours"}))
    config.correlate.runs = [str(selfeval(tmp_path / "more" / "theirs", "theirs", theirs).parent / "*")]
    monkeypatch.setattr(stage, "DELTA", -0.25)
    config.output_dir = str(tmp_path)

    contexts: dict[str, bool] = {}

    def rate(text: str) -> str:
        if "theirs mt:0" in text:
            return "no rating"
        shown = text.partition("[Answer begins]\n")[2].partition("\n")[0].partition(" ")[2]
        contexts[shown] = "Earlier conversation" in text
        return f"Rating: [[{9 - ids.index(shown)}]]"

    with serving() as server:
        server.reply = rate
        url = f"http://127.0.0.1:{server.server_port}/v1"
        config.evaluate.external = OpenAIEngineConfig(model="gpt", base_url=url, api_key_env="JUDGE_KEY")
        correlations = run(config, inputs, tmp_path / "out")
    assert contexts == {i: i == "mt:81" for i in ids}, "a last answer stands in its conversation"
    rows = {(r["model"], r["score"]): r for r in correlations}
    assert {r["rating"] for r in correlations} == {"pointwise:external"} and set(rows) == {
        (m, s) for m in ("ours", "theirs") for s in ("softmax_ent", "probdiff")
    }
    assert [rows["ours", s]["n"] for s in ("softmax_ent", "probdiff")] == [5, 5]
    assert [rows["ours", s]["pearson"] for s in ("softmax_ent", "probdiff")] == pytest.approx([1, 1])
    assert (rows["theirs", "probdiff"]["n"], rows["theirs", "probdiff"]["without"]) == (3, 1)
    written = [json.loads(line) for line in (tmp_path / "out" / "ratings.jsonl").read_text().splitlines()]
    assert len(written) == 9 and {"rater", "benchmark", "model", "id", "turn", "response", "value"} == set(written[0])
    means = json.loads((tmp_path / "out" / "correlations.json").read_text())["means"]
    of = {(m["category"], m["model"]): m for m in means}
    assert of["all", "ours"]["ratings"]["pointwise:external"] == np.mean([9, 8, 7, 6, 5])
    assert of["math", "ours"]["ratings"]["pointwise:external"] == np.mean([9, 8])
    assert (of["all", "ours"]["confidence"], of["math", "ours"]["confidence"]) == (3 / 5, 1)


def test_a_rating_meets_the_scores_of_the_answer_that_it_is_about(tmp_path: Path, monkeypatch: Any) -> None:
    # Two runs of one model over the same prompts: neither overwrites the other, in whatever order they are named.
    answers_of = {"cold": ["a", "b", "c", "d"], "hot": ["a", "x", "y", "z"]}
    score = {"cold": [1.0, 2.0, 3.0, 5.0], "hot": [4.0, 3.0, 7.0, 1.0]}
    for run_, texts in answers_of.items():
        scores = {f"mt:{i}": {"softmax_ent": x, "probdiff": -x} for i, x in enumerate(score[run_])}
        selfeval(tmp_path / "runs" / run_, "m", scores)  # type: ignore[arg-type]
        rows = [json.loads(line) for line in (tmp_path / "runs" / run_ / "scores.jsonl").read_text().splitlines()]
        write_rows_atomic(
            tmp_path / "runs" / run_ / "scores.jsonl",
            (row | {"response": text} for row, text in zip(rows, texts, strict=True)),
        )
        settings = {"scorer": {"model": {"path": "m"}}, "train.base": {"path": ""}, "selfeval": {"temperature": run_}}
        write_json_atomic(tmp_path / "runs" / run_ / "manifest.json", {"config": settings})
    rated = {"a": 9, "b": 7, "c": 5, "d": 1, "x": 2, "y": 3, "z": 8, "of no run": 4}
    number = {text: i for texts in answers_of.values() for i, text in enumerate(texts)} | {"of no run": 0}
    rating_rows = [
        {"benchmark": "mt", "model": "m", "id": str(number[t]), "response": t, "value": v} for t, v in rated.items()
    ]
    config = Config(correlate=CorrelateConfig(runs=[str(tmp_path / "runs" / "*")]))
    config.correlate.ratings = [
        ColumnConfig(name="people", source=SourceConfig(path=write_rows(tmp_path / "r.jsonl", rating_rows)))
    ]
    (tmp_path / "dialogues").mkdir()
    write_rows_atomic(tmp_path / "dialogues" / "dialogues.jsonl", [])
    monkeypatch.setattr(stage, "_dialogues", lambda *_: {})
    inputs = {"dialogues": tmp_path / "dialogues", "selfeval": tmp_path / "runs" / "cold"}
    both = {r["model"]: r for r in run(config, inputs, tmp_path / "both") if r["score"] == "softmax_ent"}
    assert list(both) == ["m (temperature=cold)", "m (temperature=hot)"]
    for name, row in zip(answers_of, both.values(), strict=True):
        ratings = [rated[text] for text in answers_of[name]]
        assert (row["n"], row["without"]) == (4, 0)
        assert row["pearson"] == pytest.approx(stats.pearsonr([-x for x in score[name]], ratings).statistic)
    config.correlate.runs = []
    (alone,) = [r for r in run(config, inputs, tmp_path / "one") if r["score"] == "softmax_ent"]
    assert (alone["model"], alone["pearson"]) == ("m", pytest.approx(both["m (temperature=cold)"]["pearson"]))
    write_rows(tmp_path / "r.jsonl", [{k: v for k, v in row.items() if k != "response"} for row in rating_rows[:2]])
    run(config, inputs, tmp_path / "only")  # the only answer that there is
    config.correlate.runs = [str(tmp_path / "runs" / "*")]
    with pytest.raises(DataError, match=r"r\.jsonl:2: .*several runs: m \(temperature=cold\), m \(temperature=hot\)"):
        run(config, inputs, tmp_path / "unclear")


def test_the_recipe_holds_the_papers_rows() -> None:
    config = configured("recipe=tables/glassbox_stored", "data_dir=DIR")
    assert len(config.correlate.published) == 2 * 2 * 13
    best = config.correlate.published["vicuna_bench/llama2-7b-chat/softmax_var"]
    assert best == [0.6506, 0.4534, 0.5894]
    with pytest.raises(ConfigError, match="references change nothing of probdiff"):
        check(configured("recipe=selfeval", "data_dir=DIR", "selfeval.methods=[probdiff+calibration]"), "selfeval")
