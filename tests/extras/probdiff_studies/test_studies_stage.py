"""Stage studies on the shipped base: every number recomputed from what stage selfeval and the shards hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgetrain.artifacts.files import write_json_atomic, write_rows_atomic
from judgetrain.artifacts.shards import read_rows
from judgetrain.data import world
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.engines.base import Sampling
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.extras.probdiff_studies import comparing, stage
from judgetrain.extras.probdiff_studies.config import StudiesConfig
from judgetrain.judges.factory import Models
from judgetrain.judges.predictions import Prediction
from judgetrain.pipeline.config import Config
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Dialogue
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.evaluate import check
from tests.builders.evaluate import run as run_stage
from tests.builders.faulty_server import serving
from tests.builders.pipeline import configured

D = {"world:0": 0.2, "world:1": -0.3, "world:2": None, "world:3": -0.04, "world:4": 0.0}
SHORT = Sampling(temperature=0.7, max_new_tokens=6)


def selfeval(directory: Path, model: str, d: dict[str, float | None], revised: str = "better {}") -> Path:
    """Return what stage selfeval leaves for these discrepancies."""
    rows = [
        {"id": i, "response": f"answer {i}", "scores": {"probdiff": "no_revision" if x is None else x}}
        for i, x in d.items()
    ]
    write_rows_atomic(directory / "scores.jsonl", rows)
    responses = [{"dialogue_id": row["id"], "text": row["response"]} for row in rows]
    write_rows_atomic(directory / "responses-00000-of-00001.jsonl", responses)
    revisions: list[dict[str, Any]] = [
        {"probdiff": x, "revision": f"answer {i}" if x == 0 else revised.format(i)}
        if x is not None
        else {"probdiff": "no_revision"}
        for i, x in d.items()
    ]
    write_rows_atomic(directory / "scores-probdiff-00000-of-00001.jsonl", revisions)
    config = {"scorer": {"model": {"path": ""}}, "train.base": {"path": model}}
    write_json_atomic(directory / "manifest.json", {"config": config})
    return directory


Prepared = tuple[Config, dict[str, Path]]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    dialogues = world.train_dialogues(WorldConfig(train_dialogues=8), 3)
    named = [replace(d, id=f"world:{i}") for i, d in enumerate(dialogues[:7])]
    write_rows_atomic(tmp_path / "dialogues" / "dialogues.jsonl", (d.to_row() for d in named))
    for name, value in {"TIMES": 2, "SAMPLES": 3, "SAMPLING": SHORT}.items():
        monkeypatch.setattr(stage, name, value)
    config = Config(studies=StudiesConfig(prompts=0, spread_prompts=0))
    config.selfeval.methods = ["probdiff"]
    config.train.base = ModelConfig(path="world")
    config.cluster.encoder = "static:world"
    inputs = {"dialogues": tmp_path / "dialogues", "selfeval": selfeval(tmp_path / "own", "own model", D)}
    return config, inputs


def run(config: Config, inputs: dict[str, Path], directory: Path) -> dict[str, Any]:
    check(config, "studies")
    run_stage("studies", config, inputs, directory, 5)
    studies: dict[str, Any] = json.loads((directory / "studies.json").read_text())
    return studies


def test_hypothesis_studies_equal_a_recount_of_their_shards(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs = prepared
    config.studies.prompts = 3
    config.studies.spread_prompts = 2
    studies = run(config, inputs, tmp_path / "out")
    answers = list(read_rows(tmp_path / "out", "answers"))
    assert len(answers) == 3 and {a["id"] for a in answers} <= set(D) and all(len(a["answers"]) == 2 for a in answers)
    (row,) = studies["repetition"]
    both = [a["answers"] for a in answers if all(a["answers"])]
    assert row["exact_match"] == np.mean([x == y for x, y in both])
    assert row["n"] == len(both) and -1 <= row["similarity"] <= 1
    spread = [r["logprobs"] for r in read_rows(tmp_path / "out", "spread")]
    assert [len(s) for s in spread] == studies["spread"]["answers"] and len(spread) == 2
    assert studies["spread"]["deviation"] == pytest.approx(np.mean([np.std(s) for s in spread if s]))
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"own model: mean standard deviation {studies['spread']['deviation']:.3f}" in page
    charts = [part[: part.index("</figure>")] for part in page.split("<figure>")[1:]]
    assert [chart.count("<polyline") for chart in charts] == [sum(map(bool, spread))]
    report = (tmp_path / "out" / "report.md").read_text()
    assert "| x - x1 |" in report and "| own model | 1 | 4 |" in report

    def refused(*arguments: object, **options: object) -> TokenScorer:
        raise AssertionError("the model is loaded again")

    monkeypatch.setattr(TokenScorer, "from_pretrained", refused)
    assert run(config, inputs, tmp_path / "out") == studies, "a second run repeats no pass"


def test_models_are_compared_over_the_prompts_that_all_of_them_have(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs = prepared
    monkeypatch.setattr(comparing, "THRESHOLDS", (0.0, 0.25))
    other = {"world:0": 0.0, "world:1": 0.1, "world:2": 0.5, "world:3": -0.2, "world:9": 9.0}
    config.studies.against = [str(selfeval(tmp_path / "other", "other model", other))]
    studies = run(config, inputs, tmp_path / "out")
    assert studies["repetition"] == [] and studies["spread"]["deviation"] is None
    places = {r["model"]: (r["place"], r["n"], r["confidence"]) for r in studies["ranking"]}
    assert places == {"own model": (2, 3, 2 / 3), "other model": (1, 4, 3 / 4)}
    assert studies["sweep"]["own model"] == {"0": 1 / 3, "-0.05": 2 / 3, "-0.1": 2 / 3}
    shares = [(o["threshold"], o["win"], o["tie"], o["lose"], o["n"]) for o in studies["outcomes"]]
    assert shares == [(0.0, 2 / 3, 0.0, 1 / 3, 3), (0.25, 0.0, 2 / 3, 1 / 3, 3)]
    selfeval(tmp_path / "strange", "strange", {f"other:{i}": 0.1 for i in range(5)})
    config.studies.against = [str(tmp_path / "strange")]
    with pytest.raises(DataError, match="no prompt in common"):
        run(config, inputs, tmp_path / "none")


def test_conflicts_with_a_judge_and_with_people(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs = prepared
    config.evaluate.external = WorldEngineConfig(name="referee")
    config.studies.judge = "external"
    prompts_judged: list[str] = []

    class Scripted:
        def compare_batch(self, comparisons: Any, seed: int) -> list[Prediction]:
            prompts_judged.extend(c.id for c in comparisons)
            assert all(c.response_b == f"better {c.id}" for c in comparisons)
            says = {"world:0": ("A", "A"), "world:1": ("A", "A"), "world:3": ("B", "tie")}
            return [
                Prediction(comparison_id=c.id, method="scripted", branches=1, verdict_ab=ab, verdict_ba=ba)
                for c in comparisons
                for ab, ba in [says[c.id]]
            ]

        def close(self) -> None:
            pass

    monkeypatch.setattr(Models, "judge", lambda *arguments: Scripted())
    people = tmp_path / "people.jsonl"
    write_rows_atomic(people, [{"id": "world:1", "verdict": 1}, {"id": "world:0", "verdict": 0}])
    config.studies.verdicts = str(people)
    conflicts = run(config, inputs, tmp_path / "out")["conflicts"]
    assert prompts_judged == ["world:0", "world:1", "world:3"], "a revision that changes nothing is not asked about"
    # The judge: better d but worse text (conflict), both worse, no verdict, unchanged. People: a conflict, unchanged.
    assert conflicts["external"] == {"degree": 1 / 3, "n": 3, "without": 1}
    assert conflicts["file"] == {"degree": 1 / 2, "n": 2, "without": 2}
    for rows, expected in (
        ([{"id": "world:0", "verdict": 2}], "people.jsonl:1: expected an object with id and verdict"),
        ([{"id": "nobody", "verdict": 1}], "people.jsonl:1: no prompt of this run"),
        ([{"id": "world:0", "verdict": 1}] * 2, "several verdicts"),
    ):
        write_rows_atomic(people, rows)
        with pytest.raises(DataError, match=expected):
            run(config, inputs, tmp_path / "again")


def test_repeated_answers_of_a_model_behind_an_endpoint_take_no_log_probabilities(
    prepared: Prepared, tmp_path: Path
) -> None:
    """Table 1 of GPT-3.5 and GPT-4: texts alone are asked for, with what the model wants besides."""
    config, inputs = prepared
    config.studies.prompts = 3
    more = {"reasoning_effort": "low", "temperature": None}
    with serving() as server:
        server.reply = lambda text: f"answer {server.tries.total() % 2}"
        url = f"http://127.0.0.1:{server.server_port}/v1"
        config.studies.engine = OpenAIEngineConfig(model="m", base_url=url, concurrency=1, extra_body=more)
        assert list(Pipeline(config).needed("studies")) == ["dialogues", "studies"]
        studies = run(config, {"dialogues": inputs["dialogues"]}, tmp_path / "out")
    (row,) = studies["repetition"]
    answers = [r["answers"] for r in read_rows(tmp_path / "out", "answers")]
    assert (row["n"], row["exact_match"]) == (3, np.mean([x == y for x, y in answers]))
    assert len(server.bodies) == 2 * 3 and {body["reasoning_effort"] for body in server.bodies} == {"low"}
    assert not any({"temperature", "logprobs"} & set(body) for body in server.bodies)
    assert "| x - x1 |" in (tmp_path / "out" / "report.md").read_text()


def test_an_official_score_of_a_source_is_set_beside_the_confidence_over_its_prompts(
    prepared: Prepared, tmp_path: Path
) -> None:
    """ProbDiff's table 4: one order of models on MT-Bench, another on AlpacaEval, which has ten times the prompts."""
    config, inputs = prepared
    dialogues = [Dialogue.from_row(row) for row in read_rows(inputs["dialogues"], "dialogues")]
    named = [
        replace(d, id=i) for d, i in zip(dialogues, ("mt:1", "arena:1", "arena:2", "arena:3", "arena:4"), strict=False)
    ]
    write_rows_atomic(inputs["dialogues"] / "dialogues.jsonl", (d.to_row() for d in named))
    ours = {"mt:1": 0.1, "arena:1": -0.2, "arena:2": -0.2, "arena:3": 0.1, "arena:4": 0.1}
    theirs = {"mt:1": -0.1, "arena:1": 0.1, "arena:2": 0.1, "arena:3": 0.1, "arena:4": 0.1}
    inputs["selfeval"] = selfeval(tmp_path / "ours", "ours", dict(ours))
    config.studies.against = [str(selfeval(tmp_path / "theirs", "theirs", dict(theirs)))]
    config.studies.official = {name: {"ours": 2.0, "theirs": 1.0} for name in ("mt", "arena", "Elo")}
    official = run(config, inputs, tmp_path / "out")["official"]
    assert [(o["score"], o["prompts"], o["spearman"]) for o in official] == [
        ("mt", "mt", pytest.approx(1)),
        ("arena", "arena", pytest.approx(-1)),
        ("Elo", "all", pytest.approx(-1)),
    ]
    sources = [s.name for s in configured("recipe=tables/probdiff_leaderboard").dialogues.sources]
    assert [*configured("recipe=tables/probdiff_leaderboard").studies.official] == sources


def test_wrong_settings_are_refused() -> None:
    config = Config(studies=StudiesConfig(judge="nobody"))
    config.train.base = ModelConfig(path="world")
    with pytest.raises(ConfigError, match=r"studies\.judge='nobody': allowed are base"):
        check(config, "studies")
    config.selfeval.methods = ["sentprob"]
    with pytest.raises(ConfigError, match="probdiff"):
        check(config, "studies")


def test_several_annotators_have_conflicts_of_their_own_and_a_kappa(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs = prepared
    verdicts_of = {"ann": [1, 1, -1], "bob": [1, -1, -1], "cy": [1, 1, 1]}
    rows = [
        {"id": f"world:{i}", "verdict": v, "annotator": who}
        for who, verdicts in verdicts_of.items()
        for i, v in enumerate(verdicts)
    ]
    config.studies.verdicts = str(tmp_path / "people.jsonl")
    write_rows_atomic(tmp_path / "people.jsonl", rows)
    studies = run(config, inputs, tmp_path / "out")
    assert {who: c["degree"] for who, c in studies["conflicts"].items()} == {"ann": 1 / 2, "bob": 0, "cy": 1 / 2}
    kappa = {tuple(k["of"]): k["kappa"] for k in studies["kappas"]}
    # By hand: ann and bob agree on 2 of 3; by chance on (2/3)(1/3) + (1/3)(2/3) = 4/9; cy's verdicts are all the same.
    assert kappa["ann", "bob"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9))
    assert kappa["ann", "cy"] == kappa["bob", "cy"] == 0
    assert "### Kappa of annotators" in (tmp_path / "out" / "report.md").read_text()


def test_answers_are_judged_against_each_other_beside_confidence_by_group(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs = prepared
    config.output_dir = str(tmp_path)
    other = {"world:0": 0.0, "world:1": 0.1, "world:2": 0.5, "world:3": -0.2, "world:4": 0.0}
    second = selfeval(tmp_path / "all" / "other", "other model", other)
    for directory, word in ((inputs["selfeval"], "ours"), (second, "theirs")):
        rows = list(read_rows(directory, "scores"))
        for n, row in enumerate(rows):
            row["category"] = "math" if n < 2 else "writing"
            row["response"] = "the same" if row["id"] == "world:4" else f"{word} {n}"
        write_rows_atomic(directory / "scores.jsonl", rows)
    selfeval(tmp_path / "all" / "strange", "strange", {f"else:{i}": 0.1 for i in range(5)})
    config.studies.against = [str(tmp_path / "all" / "*")]
    config.studies.official = {"Arena": {"own model": 1.0, "other model": 2.0}}
    config.studies.duels = "pairwise:external"
    with serving() as server:

        def better(text: str) -> str:
            if "ours 3" in text:
                return "[[A]]"
            first = text.index("ours") < text.index("theirs")
            return "[[A]]" if first == ("ours 0" in text) else "[[B]]"

        server.reply = better
        url = f"http://127.0.0.1:{server.server_port}/v1"
        config.evaluate.external = OpenAIEngineConfig(model="m", base_url=url, concurrency=1)
        studies = run(config, inputs, tmp_path / "out")
        assert len(server.billed) == 2 * 4, "equal answers are not asked about"
    duels = {d["group"]: d for d in studies["duels"]}
    shares = {g: (d["win"], d["tie"], d["lose"], d["n"], d["without"]) for g, d in duels.items()}
    assert shares == {
        "all": (1 / 4, 1 / 4, 2 / 4, 4, 1),
        "math": (1 / 2, 0, 1 / 2, 2, 0),
        "writing": (0, 1 / 2, 1 / 2, 2, 1),
    }
    assert (duels["math"]["confidence"], duels["math"]["other_confidence"]) == (1 / 2, 1)
    by = {(r["model"], r["group"], r["delta"]): r["confidence"] for r in studies["by_group"]}
    assert by["own model", "writing", -0.05] == 1 and by["other model", "writing", -0.05] == 2 / 3
    assert {r["model"] for r in studies["ranking"]} == {"own model", "other model"}, "other prompts are left out"
    assert [(o["score"], o["models"], o["spearman"]) for o in studies["official"]] == [("Arena", 2, pytest.approx(1))]
    report = (tmp_path / "out" / "report.md").read_text()
    assert "### Confidence by group" in report and "all (4) %" in report
