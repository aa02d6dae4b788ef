"""Stage rubric by the command: what it reads, and that what it writes is read again here and elsewhere."""

import importlib.util
import json
import re
from contextlib import chdir
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from judgetrain.data.rubric_kinds import RubricByKind
from judgetrain.data.rubrics import read_rubric
from judgetrain.errors import DataError
from judgetrain.extras.rubric.evidence import evidence_of
from judgetrain.extras.rubric.reading import read_judged, trees_in
from judgetrain.judges.kinds.tree_reasons import reasons_of
from judgetrain.judges.predictions import Prediction
from judgetrain.judging.rows import row_of
from judgetrain.label.worth import collect
from tests.builders.pipeline import here
from tests.builders.rubrics import annotated

RULE = 2


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what the command makes of 300 evaluations with labels."""
    directory = tmp_path_factory.mktemp("rubric")
    rows = [json.dumps(tree.to_row()) for tree in annotated(RULE, 300)]
    (directory / "evaluations.jsonl").write_text("\n".join(rows), encoding="utf-8")
    with chdir(directory):
        run = here("rubric", "rubric.files=[evaluations.jsonl]", "rubric.kinds=4", f"output_dir={directory}")
    assert run.returncode == 0, run.stdout + run.stderr
    (made,) = (directory / "artifacts" / "rubric").iterdir()
    return made


def test_the_rubric_is_read_as_criteria_with_its_kinds(artifact: Path) -> None:
    rubric = read_rubric(artifact / "rubric.yaml")
    figures = json.loads((artifact / "rubric.json").read_text(encoding="utf-8"))
    assert isinstance(rubric, RubricByKind)
    assert len(rubric.kinds) == len(figures["kinds"]) == 4
    for kind, of_kind in zip(rubric.kinds, figures["kinds"], strict=True):
        assert kind.name == of_kind["name"]
        assert [one.name for one in kind.rubric.criteria] == [one["name"] for one in of_kind["criteria"]]
        for criterion, one in zip(kind.rubric.criteria, of_kind["criteria"], strict=True):
            assert criterion.weight == pytest.approx(one["weight"], abs=5e-4)
            assert criterion.guideline
        assert 3 <= len(kind.queries) <= 40
    assert sum(of_kind["trees"] for of_kind in figures["kinds"]) == 300


def test_each_kind_has_a_file_of_its_own_and_there_is_one_for_all(artifact: Path) -> None:
    rubric = read_rubric(artifact / "rubric.yaml")
    assert isinstance(rubric, RubricByKind)
    files = sorted(path.name for path in (artifact / "kinds").iterdir())
    assert len(files) == 5
    assert files[-1] == "all.yaml"
    assert read_rubric(artifact / "kinds" / "all.yaml").criteria == rubric.criteria
    assert read_rubric(artifact / "kinds" / files[0]) == rubric.kinds[0].rubric


def test_other_tools_forms_hold_the_same_criteria(artifact: Path) -> None:
    own = read_rubric(artifact / "kinds" / "all.yaml").criteria
    autorubric = read_rubric(artifact / "forms" / "all.autorubric.yaml").criteria
    verifiers = json.loads((artifact / "forms" / "all.verifiers.json").read_text(encoding="utf-8"))
    assert [(c.name, c.weight) for c in autorubric] == [(c.name, c.weight) for c in own]
    assert [(c["name"], c["weight"]) for c in verifiers] == [(c.name, c.weight) for c in own]
    assert all(set(c) == {"name", "text", "weight", "choices"} for c in verifiers)
    for criterion, other in zip(own, autorubric, strict=True):
        assert other.text.startswith(criterion.text)
        assert criterion.guideline
        assert criterion.guideline in other.text
        assert [level.score for level in other.scale] == [0, 0.25, 0.5, 0.75, 1]


@pytest.mark.skipif(importlib.util.find_spec("autorubric") is None, reason="AutoRubric is not installed")
def test_autorubric_reads_its_form(artifact: Path) -> None:
    from autorubric import Rubric

    own = read_rubric(artifact / "kinds" / "all.yaml").criteria
    rubric = Rubric.from_file(str(artifact / "forms" / "all.autorubric.yaml"))
    assert [criterion.name for criterion in rubric.rubric] == [criterion.name for criterion in own]


def test_the_page_and_the_prompt_name_every_kind_and_criterion(artifact: Path) -> None:
    rubric = read_rubric(artifact / "rubric.yaml")
    assert isinstance(rubric, RubricByKind)
    page = (artifact / "rubric.md").read_text(encoding="utf-8")
    prompt = (artifact / "prompt.txt").read_text(encoding="utf-8")
    for kind in rubric.kinds:
        assert f"## {kind.name}\n" in page
        assert kind.queries[0] in prompt
        for criterion in kind.rubric.criteria:
            assert f"| **{criterion.name}** |" in page
            assert criterion.line in prompt
    gains = re.findall(r"^- \*\*[AB] gains by it\.\*\*", page, flags=re.MULTILINE)
    assert len(gains) == sum(len(kind.rubric.criteria) for kind in rubric.kinds)


def test_an_example_calls_the_responses_as_the_judgment_does(artifact: Path) -> None:
    """The titles say what the labels say, and the letters are those of the comparisons that were judged."""
    label_of = {}
    for tree in annotated(RULE, 300):
        label_of[tree.comparison.response_a, tree.comparison.response_b] = tree.comparison.label
    page = (artifact / "rubric.md").read_text(encoding="utf-8")
    examples = re.findall(
        r"^- \*\*(.+)\.\*\* To: .+\n    - A: (.+)\n    - B: (.+)\n    - the judgment: (.+)$", page, flags=re.MULTILINE
    )
    assert len(examples) > 20
    of_a_kind = set()
    for title, response_a, response_b, judgment in examples:
        label = label_of[response_a, response_b]
        other = {"A": "B", "B": "A"}[str(label)]
        kinds = {
            f"{label} gains by it": "gains",
            f"{other} loses by it": "loses",
            f"It speaks for {other}, and the better one is {label}": "against",
        }
        assert title in kinds
        of_a_kind.add((kinds[title], label))
        # Both orders were judged, and one may say the opposite of the other.
        scores = dict(re.findall(r"Response ([AB]) Score: (\d)", judgment))
        ahead = "A" if scores["A"] > scores["B"] else "B"
        assert scores["A"] != scores["B"]
        assert ahead == (other if kinds[title] == "against" else label)
    assert {("gains", "A"), ("gains", "B"), ("loses", "A"), ("loses", "B")} <= of_a_kind


def test_a_verdict_of_stage_judge_is_the_tree_that_it_was_made_of(tmp_path: Path) -> None:
    trees = annotated(RULE, 6)
    rows = []
    for tree in trees:
        prediction = Prediction.of(tree.comparison, "j", "A", "A")
        prediction = replace(prediction, reasons=tuple(reasons_of(tree.criteria)))
        rows.append(json.dumps(row_of(tree.comparison, prediction, "j")))
    file = tmp_path / "verdicts.jsonl"
    file.write_text("\n".join(rows), encoding="utf-8")

    def numbers(these: object) -> list[object]:
        judgments = collect(these, lambda tree: tree.comparison.label)  # type: ignore[arg-type]
        return [judgments.queries, judgments.texts, judgments.margin.tolist(), judgments.labels.tolist()]

    assert numbers(read_judged([str(file)])) == numbers(trees)


def test_a_row_of_scores_that_lacks_a_column_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_text(json.dumps({"reasons": [], "response": "x", "score": 0.5}), encoding="utf-8")
    with pytest.raises(DataError, match=r"scores.jsonl.*1.*not a row of scores.jsonl.*messages"):
        list(read_judged([str(file)]))


def test_of_this_runs_trees_only_labels_from_elsewhere_are_known(tmp_path: Path) -> None:
    trees = annotated(RULE, 4)
    (tmp_path / "trees-00000-of-00001.jsonl").write_text(
        "".join(json.dumps(tree.to_row()) + "\n" for tree in trees), encoding="utf-8"
    )
    labels = []
    for tree, source in zip(trees, ("given", "ensemble", "external", "given"), strict=True):
        labels.append({"comparison_id": tree.comparison.id, "verdict": "B", "source": source})
    labels[3]["verdict"] = None
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels), encoding="utf-8")
    read = list(trees_in({"tree": tmp_path, "label": tmp_path}, []))
    assert [tree.comparison.label for tree in read] == ["B", None, "B", None]
    assert asdict(read[0].criteria[0]) == asdict(trees[0].criteria[0])


def test_criteria_in_other_words_are_one_type_where_their_judgments_agree() -> None:
    evidence = evidence_of(annotated(RULE, 200))
    assert len(evidence.names) == 10
    assert evidence.merged == []
