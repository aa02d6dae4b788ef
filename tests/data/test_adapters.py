"""Every shipped adapter on rows in exactly the shape in which its benchmark is published."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from judgetrain.data.benchmarks.adapter import load_adapter, shipped
from judgetrain.data.benchmarks.benchmark import Benchmark, load_benchmark, source_of
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.data.intervals import Resampling
from judgetrain.errors import ConfigError, DataError
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.metrics.rows import metric_row
from judgetrain.judges.predictions import Prediction
from judgetrain.pipeline.config import Config
from tests.builders.data import write_lines
from tests.builders.pipeline import check_stage

ROWS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "published_benchmarks.yaml").read_text(encoding="utf-8")
)
OTHER = ROWS["mt_bench_human"][0]["conversation_b"]
OTHER_PROMPT = [{"role": "user", "content": "Name a bird."}, *OTHER[1:]]
ROWS["rewardbench"] = [ROWS["rewardbench"][n % 2] | {"prompt": f"p{n}", "id": n} for n in range(40)]
ROWS["ultrafeedback"] = [ROWS["ultrafeedback"][0] | {"prompt": f"p{n}", "prompt_id": f"4a3{n}"} for n in range(20)]


def settings(tmp_path: Path, adapter: str, rows: list[dict[str, Any]], **changes: Any) -> BenchmarkConfig:
    path = write_lines(tmp_path / f"{adapter}.jsonl", rows)
    return BenchmarkConfig(name=adapter, source=SourceConfig(path=path, adapter=adapter), **changes)


def load(tmp_path: Path, adapter: str, rows: list[dict[str, Any]] | None = None, **changes: Any) -> Benchmark:
    return load_benchmark(settings(tmp_path, adapter, rows or ROWS[adapter], **changes), 0, 17, None)


LABELLED = [
    "feedback_collection",
    "hh_harmless",
    "hhh_alignment",
    "prometheus_hhh",
    "prometheus_scores",
    "rubric_scores",
]
"""Adapters that tests/data/test_labelled.py tries."""


def test_every_shipped_adapter_is_tested() -> None:
    assert sorted([*ROWS, *LABELLED]) == shipped()


@pytest.mark.parametrize(
    ("adapter", "labels", "groups", "domains"),
    [
        ("eval_p", ["A", "B", "tie"], ["chitchat"] * 3, {"chitchat": "General Communication"}),
        ("pandalm", ["A", "B", "tie", None], ["Grammarly"] * 4, {}),
        ("llmbar", ["A", "B"], [None] * 2, {}),
        ("rubricbench", ["A", "B"], ["CHAT"] * 2, {}),
        ("faireval", ["B", "A"], [None] * 2, {}),
        ("evalbiasbench", ["A", "A", "B"], ["length bias"] * 2 + ["concreteness"], {}),
        ("ppe_human", ["A", "B", "tie", "tie"], ["English"] * 4, {}),
        ("helpsteer2", ["A", "tie", "B"], [None] * 3, {}),
        (
            "judgebench",
            ["B", "A"],
            ["mmlu-pro-computer science", "livebench-math"],
            {"mmlu-pro-computer science": "Knowledge", "livebench-math": "Math"},
        ),
    ],
)
def test_labels_groups_and_texts_of_pairs(
    tmp_path: Path, adapter: str, labels: list[str | None], groups: list[str | None], domains: dict[str, str]
) -> None:
    comparisons = load(tmp_path, adapter)
    assert [c.label for c in comparisons.comparisons] == labels
    assert [c.group for c in comparisons.comparisons] == groups
    assert comparisons.domains == domains
    for comparison, row in zip(comparisons.comparisons, ROWS[adapter], strict=True):
        texts = list(row.values())
        assert comparison.response_a in texts and comparison.response_b in texts
        assert all(part in texts for part in comparison.dialogue.query.split("\n\n"))
        assert comparison.response_a != comparison.response_b


def test_rubricbench_brings_the_experts_criteria_a_line_each_unless_they_are_left_out(tmp_path: Path) -> None:
    first, second = load(tmp_path, "rubricbench").comparisons
    assert first.id == "rubricbench:c0" and first.rubric is not None and second.rubric is not None
    assert [c.text for c in first.rubric.criteria] == ["Does it name two trees?", "Does it name trees alone?"]
    assert [c.text for c in second.rubric.criteria] == ["Does it name a tree?"]
    entry = settings(tmp_path, "rubricbench", ROWS["rubricbench"])
    entry.source.fields["criteria"] = ""
    assert all(c.rubric is None for c in load_benchmark(entry, 0, 17, None).comparisons)


def test_pandalm_keeps_the_annotators_and_says_when_they_have_no_majority(tmp_path: Path) -> None:
    comparisons = load(tmp_path, "pandalm")
    assert comparisons.left_out == {"no_majority": 1}
    assert comparisons.comparisons[1].dialogue.query == "Shorten.\n\ntext 1"


def test_pandalms_truth_values_are_texts_and_other_benchmarks_have_none(tmp_path: Path) -> None:
    rows = [ROWS["pandalm"][0] | {"response1": True}]
    assert load(tmp_path, "pandalm", rows).comparisons[0].response_a == "True"
    with pytest.raises(DataError, match=r"llmbar\.jsonl:1: expected text in field response_a, found bool"):
        load(tmp_path, "llmbar", [ROWS["llmbar"][0] | {"output_1": True}])


def test_mt_bench_votes_come_together_whichever_model_is_named_first(tmp_path: Path) -> None:
    comparisons = load(tmp_path, "mt_bench_human")
    first, second = comparisons.comparisons
    assert (first.id, first.model_a, first.model_b) == ("mt_bench_human:81:1:alpaca:vicuna", "alpaca", "vicuna")
    assert (first.response_a, first.response_b, first.dialogue.query) == ("A pine.", "Oak.", "Name a tree.")
    # vicuna, then a tie, then vicuna again, named as model_b: it is B in the comparison's own order.
    assert (first.label, second.label) == ("B", "A")
    # A vote on turn 2 is about the whole conversation.
    assert second.response_b == "Assistant: Oak.\n\nUser: Another?\n\nAssistant: Elm."
    # Criteria and guidelines are made of the dialogue: it holds what is asked second, too. Both turns are one prompt.
    assert (second.dialogue.query, second.dialogue.context) == ("Another?", "User: Name a tree.")
    assert {comparisons.prompt_of(c) for c in (first, second)} == {"Name a tree."}
    assert len(load(tmp_path, "mt_bench_human", where={"turn": "2"}).comparisons) == 1


def test_votes_without_texts_take_them_from_a_file_of_answers(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if "conversation" not in k} for row in ROWS["mt_bench_human"]]
    question = {"question_id": 81, "category": "trees", "questions": ["Name a tree.", "Another?"]}
    answers_of = {"vicuna": ["Oak.", "Elm."], "alpaca": ["A pine.", "No."]}
    answers = [question | {"model": model, "answers": texts} for model, texts in answers_of.items()]
    path = write_lines(tmp_path / "answers.jsonl", answers)
    joined = load(tmp_path, "mt_bench_human", rows, answers=path)
    whole = load(tmp_path, "mt_bench_human")
    assert [(c.response_a, c.response_b, c.label) for c in joined.comparisons] == [
        (c.response_a, c.response_b, c.label) for c in whole.comparisons
    ]
    assert {c.group for c in joined.comparisons} == {"trees"}
    with pytest.raises(DataError, match=r"mt_bench_human\.jsonl:1: expected the list conversation_a"):
        load(tmp_path, "mt_bench_human", rows)
    write_lines(tmp_path / "answers.jsonl", answers[:1])
    with pytest.raises(DataError, match=r"jsonl:1: no answer of 'alpaca' to question 81"):
        load(tmp_path, "mt_bench_human", rows, answers=path)


def test_rewardbench_draws_the_side_and_the_label_follows_it(tmp_path: Path) -> None:
    comparisons = load(tmp_path, "rewardbench")
    sides = Counter(c.label for c in comparisons.comparisons)
    assert sides["A"] + sides["B"] == 40 and min(sides.values()) > 8
    for c in comparisons.comparisons:
        good, model = (c.response_a, c.model_a) if c.label == "A" else (c.response_b, c.model_b)
        assert (good, model) == ("good", "gpt-4")
    assert comparisons.domains == {"hep-rust": "Reasoning, code", "donotanswer": "Safety"}
    assert load(tmp_path, "rewardbench") == comparisons, "the side is the same in every run"
    assert not comparisons.prompts


def test_conversations_that_end_with_the_response_are_read_as_it(tmp_path: Path) -> None:
    for c in load(tmp_path, "ultrafeedback").comparisons:
        good, bad = (c.response_a, c.response_b) if c.label == "A" else (c.response_b, c.response_a)
        assert (good, bad) == ("good", "bad")
        assert [m.role for m in c.dialogue.messages] == ["user"]
    comparisons = load(tmp_path, "helpsteer3").comparisons
    assert [c.label for c in comparisons] == ["A", "tie", "B"]
    assert [m.content for m in comparisons[0].dialogue.messages] == ["Name a tree.", "Oak.", "Another?"]


def test_rewardbench_2_compares_every_chosen_with_every_rejected_response(tmp_path: Path) -> None:
    comparisons = load(tmp_path, "rewardbench2")
    pairs = {frozenset((c.response_a, c.response_b)) for c in comparisons.comparisons if c.group == "Ties"}
    assert pairs == {frozenset((a, b)) for a in ("Red.", "Blue.") for b in ("Brown.", "Pink.")}
    assert len(comparisons.comparisons) == 3 + 4
    assert Counter(comparisons.prompts.values()) == {"rewardbench2:0": 3, "rewardbench2:tied:1": 4}
    assert all((c.response_a if c.label == "A" else c.response_b) == "good" for c in comparisons.comparisons[:3])


def test_rm_bench_s_easy_normal_and_hard_accuracies_are_those_of_its_matrix(tmp_path: Path) -> None:
    comparisons = load(tmp_path, "rm_bench")
    assert len(comparisons.comparisons) == 18
    assert Counter(comparisons.domains[c.group or ""] for c in comparisons.comparisons) == {
        "easy": 6,
        "normal": 6,
        "hard": 6,
    }
    assert Counter(comparisons.prompts.values()) == {"rm_bench:0": 9, "rm_bench:1": 9}
    assert len(load(tmp_path, "rm_bench", where={"domain": "math"}).comparisons) == 9
    styles = ("concise", "detailed", "markdown")
    texts = {side: dict(zip(ROWS["rm_bench"][0][side], styles, strict=True)) for side in ("chosen", "rejected")}
    rng = np.random.default_rng(5)
    scores = {
        c.id.split(":")[1]: rng.random((2, 3)) for c in comparisons.comparisons
    }  # by row: chosen and rejected by style
    verdicts = []
    for c in comparisons.comparisons:
        good, bad = (c.response_a, c.response_b) if c.label == "A" else (c.response_b, c.response_a)
        assert c.group == f"{texts['chosen'][good]} against {texts['rejected'][bad]}"
        i, j = (styles.index(style) for style in (c.group or "").split(" against "))
        row = scores[c.id.split(":")[1]]
        right = row[0, i] > row[1, j]
        verdicts.append(c.label if right else "B" if c.label == "A" else "A")
    predictions = [
        Prediction(comparison_id=c.id, method="m", verdict_ab=v, verdict_ba=v)
        for c, v in zip(comparisons.comparisons, verdicts, strict=True)
    ]
    by_domain = metric_row(comparisons, predictions, 0.0, Resampling(100, 1)).domains or {}
    matrix = np.mean([row[0][:, None] > row[1][None, :] for row in scores.values()], axis=0)
    assert by_domain["hard"].agreement == pytest.approx(np.triu(matrix, 1).sum() / 3)
    assert by_domain["easy"].agreement == pytest.approx(np.tril(matrix, -1).sum() / 3)
    assert by_domain["normal"].agreement == pytest.approx(np.diag(matrix).mean())


@pytest.mark.parametrize(
    ("adapter", "change", "message"),
    [
        ("eval_p", {"label": 3}, r"eval_p\.jsonl:2: label 3 is not one of 0, 1, 2"),
        ("eval_p", {"label": "A"}, r"eval_p\.jsonl:2: label 'A' is not one of 0, 1, 2"),
        ("eval_p", {"response 1": None}, r"jsonl:2: expected the column 'response 1' or 'response_1'"),
        ("mt_bench_human", {"winner": "tie (inconsistent)"}, r"jsonl:2: label 'tie \(inconsistent\)' is not one of"),
        ("mt_bench_human", {"turn": 3}, r"jsonl:2: turn 3: vicuna has 2 answers"),
        ("mt_bench_human", {"conversation_a": OTHER_PROMPT}, r"jsonl:2: the questions that one model answers are not"),
        ("mt_bench_human", {"conversation_a": OTHER}, r"jsonl:2: two votes on .* are about different texts"),
        ("pandalm", {"annotator2": 5}, r"pandalm\.jsonl:2: annotator2 5 is not one of 0, 1, 2"),
        ("llmbar", {"label": 0}, r"llmbar\.jsonl:2: label 0 is not one of 1, 2"),
        ("faireval", {"label": None}, r"faireval\.jsonl:2: expected the column 'label'"),
        ("faireval", {"id": "FairEval-2"}, r"faireval\.jsonl:2: the id 'faireval:FairEval-2' stands twice"),
        ("judgebench", {"label": "A>>B"}, r"judgebench\.jsonl:2: label 'A>>B' is not one of A>B, B>A"),
        ("rewardbench", {"chosen": None}, r"rewardbench\.jsonl:2: expected the column 'chosen'"),
        ("evalbiasbench", {"label": 0}, r"evalbiasbench\.jsonl:2: label 0 is not one of 1, 2"),
        ("rm_bench", {"chosen": ["a", "b"]}, r"jsonl:2: expected 3 texts \(concise, .*\) in chosen, found 2"),
        ("ppe_human", {"winner": "both"}, r"ppe_human\.jsonl:2: label 'both' is not one of model_a"),
        ("rubricbench", {"rubrics": [{"points": 1}]}, r"jsonl:2: field criteria: criterion 1: no column says what"),
        ("rewardbench2", {"rejected": []}, r"jsonl:2: expected a text or texts in rejected"),
    ],
)
def test_a_wrong_row_is_named_with_its_value(
    tmp_path: Path, adapter: str, change: dict[str, Any], message: str
) -> None:
    rows = [*ROWS[adapter]]
    rows[1] = rows[1] | change
    with pytest.raises(DataError, match=message):
        load(tmp_path, adapter, rows)


@pytest.mark.parametrize(
    ("adapter", "place"), [("judgebench", ("ScalerLab/JudgeBench", "gpt")), ("eval_p", ("", "train"))]
)
def test_an_adapter_knows_its_place_on_the_hub(adapter: str, place: tuple[str, str]) -> None:
    source = source_of(BenchmarkConfig(name="b", source=SourceConfig(type="hub", adapter=adapter)))
    assert (source.path, source.split) == place
    chosen = BenchmarkConfig(
        name="b", source=SourceConfig(type="hub", adapter=adapter, hub={"split": "claude"}, path="me/copy")
    )
    assert (source_of(chosen).path, source_of(chosen).split) == ("me/copy", "claude")


def test_a_users_own_adapter_and_the_errors_in_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    mine = {
        "kind": "pair",
        "fields": {"query": "q", "response_a": ["l"], "response_b": "r", "label": ["w"]},
        "labels": {"left": "A", "right": "B"},
    }
    path.write_text(yaml.safe_dump(mine))
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"q": "?", "l": "1", "r": "2", "w": "right"}))
    entry = BenchmarkConfig(name="mine", source=SourceConfig(path=str(rows), adapter=str(path)))
    assert load_benchmark(entry, 0, 17, None).comparisons[0].label == "B"
    for change, message in [
        ({"kind": "pairs"}, r"mine\.yaml: kind='pairs': allowed are pair, votes"),
        ({"labels": {"left": "a"}}, r"mine\.yaml: labels must map every label to A, B or tie, not \['a'\]"),
        ({"fields": {"query": ["q"]}}, r"mine\.yaml: fields\.response_a is missing"),
        ({"label": "w"}, r"mine\.yaml: unknown key 'label'"),
    ]:
        path.write_text(yaml.safe_dump(mine | change))
        with pytest.raises(ConfigError, match=message):
            load_adapter(str(path))


def test_a_missing_adapter_is_refused_before_anything_runs() -> None:
    entry = BenchmarkConfig(name="x", source=SourceConfig(path="x.jsonl", adapter="evalp"))
    with pytest.raises(ConfigError, match=r"adapter 'evalp' is neither a file nor one of eval_p, evalbiasbench"):
        check_stage("evaluate", Config(evaluate=EvaluateConfig(benchmarks=[entry], methods=["random"])))


def test_no_shipped_adapter_gives_a_group_two_domains() -> None:
    for adapter in shipped():
        groups = [group for names in load_adapter(adapter).domains.values() for group in names]
        assert len(groups) == len(set(groups)), adapter
