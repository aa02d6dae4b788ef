"""Pruning, labels, examples and pairs, against loops written here from the paper's definitions."""

import itertools
import re
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import BenchmarkConfig, SourceConfig
from judgetrain.engines.base import Request
from judgetrain.errors import DataError
from judgetrain.extras.correct.stage import Correction
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import StepsConfig, TreeConfig
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import EvaluationTree, prune
from judgetrain.label import stage as label_stage
from judgetrain.label.config import LabelConfig, TeacherConfig
from judgetrain.label.examples import Prompter, against_label, consensus
from judgetrain.label.labels import KnownLabels, ensemble_label
from judgetrain.label.pairs import Evidence
from judgetrain.label.stages import LabelSettings
from judgetrain.label.teacher_stage import orders_of, teaching_examples
from judgetrain.label.training_data import Drawing, TrainingData
from judgetrain.label.worth import Worth
from judgetrain.pipeline.config import Config
from judgetrain.rubrics import Criterion
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Message
from tests.builders.data import write_lines
from tests.builders.judges import noisy_trees
from tests.builders.label import ANY_EVIDENCE, tree_of
from tests.builders.scripted import ScriptedEngine, criteria, judged

PROMPTS = load_prompt_set("compact")
PROMPTER = Prompter(PROMPTS, 4)
TREES = noisy_trees("A" * 30)


def test_too_few_readable_branches_and_how_many_decide() -> None:
    for word, verdict, reason in (
        ("A???", None, "too_few_readable"),
        ("AA??", "A", None),
        ("????", None, "too_few_readable"),
    ):
        label = ensemble_label(tree_of((word,)), LabelConfig())
        assert (label.verdict, label.reason) == (verdict, reason)
    row = ensemble_label(tree_of(("AAAA", "tttt"), ("tttt", "tttt"), ("tttt", "tt?t")), LabelConfig()).to_row()
    assert row["votes"] == {"A": 4, "B": 0, "tie": 19, "unreadable": 1}
    assert (row["verdict"], row["share"], row["deciding_share"]) == ("A", 1.0, pytest.approx(4 / 23))


def test_rejected_judgments_may_agree_with_the_label() -> None:
    """Labelled A; on the second criterion the consensus is a tie, so that a lone A there is what is rejected."""
    tree = tree_of(("AAAA",), ("tttttA",), ("AAABAA",))
    data = TrainingData(Prompter(PROMPTS, 3), LabelConfig(max_pairs_per_level=99))
    data.add(tree)
    verdicts = {j.id: j.verdict for _, _, j in tree.judgments()}
    rejected_verdicts = Counter(verdicts[p.rejected_nodes[0]] for p in data.pairs if p.level == "judgment")
    assert rejected_verdicts == {"A": 2, "B": 2}


@pytest.mark.parametrize(
    ("rule", "kept", "against"), [("evidence", {"AAAA", "tttt"}, {"BBBB"}), ("paper", {"AAAA"}, {"BBBB", "tttt"})]
)
def test_who_is_pruned_and_why(rule: str, kept: set[str], against: set[str]) -> None:
    # The label is A. In AAAB order BA says two things, in AABB the orders do, and in A?AA a judgment cannot be read.
    data = TrainingData(PROMPTER, LabelConfig(rule=rule))
    words = [("AAAA", "AAAA", "AAAA"), ("AAAA", "BBBB", "tttt"), ("AAAB", "AABB", "A?AA")]
    data.add(tree_of(*words))
    every = [word for guidelines in words for word in guidelines]
    assert data.table()["branches"] == {
        "kept": 4 * sum(word in kept for word in every) + 2,  # of A?AA those of order BA
        "against_label": 4 * sum(word in against for word in every),
        "position_inconsistent": 2 + 4,  # AAAB's in order AB, AABB's all
        "self_inconsistent": 2 + 1,
        "unreadable": 1,
    }


def test_label_stage_end_to_end(tmp_path: Path) -> None:
    trees = StageRun(tmp_path / "tree", "tree", 0, Console())
    trees.write_rows("trees", (t.to_row() for t in TREES))
    config = Config(
        prompts="compact",
        tree=TreeConfig(criteria=4),
        label=LabelConfig(max_sft_per_tree=3, max_pairs_per_level=2, holdout=0.3, balance=[], **ANY_EVIDENCE),
    )
    out = StageRun(tmp_path / "one", "label", 0, Console())
    label_stage.run(LabelSettings.of(config), {"tree": tmp_path / "tree"}, out)
    names = ("sft-train", "sft-heldout", "pairs-train", "pairs-heldout")
    rows = {name: list(read_rows(out.directory, name)) for name in names}
    train, heldout = (
        {r["comparison_id"] for n in rows if n.endswith(s) for r in rows[n]} for s in ("train", "heldout")
    )
    assert train and heldout and not train & heldout
    labels = {r["comparison_id"]: r["verdict"] for r in read_rows(out.directory, "labels")}
    leaves = {j.id: (t, j) for t in TREES for _, _, j in t.judgments()}
    kept = {k for t in TREES for k, b in prune(t).items() if b.kept}
    sft = rows["sft-train"] + rows["sft-heldout"]
    for row in (r for r in sft if r["level"] == "judgment"):
        tree, node = leaves[row["nodes"][0]]
        assert node.id in kept
        assert node.verdict in (labels[tree.comparison.id], "tie")
    per_tree = Counter(r["comparison_id"] for r in sft if r["level"] == "judgment")
    assert max(per_tree.values()) <= 3
    pairs = rows["pairs-train"] + rows["pairs-heldout"]
    assert max(Counter((r["comparison_id"], r["level"]) for r in pairs).values()) <= 2
    assert {r["level"] for r in pairs} == {"judgment", "guideline", "criteria"}
    table = out.notes["yield"]
    assert sum(table["branches"].values()) == 30 * 32
    assert sum(table["trees"].values()) == 30
    truth = Counter("right" if labels[t.comparison.id] == "A" else "wrong" for t in TREES if labels[t.comparison.id])
    assert table["label_vs_truth"] == dict(truth)


def test_pairs_on_one_prompt_are_all_held_out_or_none(tmp_path: Path) -> None:
    # Ten prompts of three pairs each, under other ids and written a little otherwise.
    trees = []
    for place, tree in enumerate(TREES):
        query = f"Query  {place // 3}" if place % 3 else f"query {place // 3}"
        dialogue = replace(tree.comparison.dialogue, messages=(Message("user", query),))
        trees.append(replace(tree, comparison=replace(tree.comparison, dialogue=dialogue)))
    inputs = StageRun(tmp_path / "tree", "tree", 0, Console())
    inputs.write_rows("trees", (tree.to_row() for tree in trees))
    label = LabelConfig(max_sft_per_tree=3, holdout=0.3, balance=[], **ANY_EVIDENCE)
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=label)
    out = StageRun(tmp_path / "one", "label", 0, Console())
    label_stage.run(LabelSettings.of(config), {"tree": inputs.directory}, out)

    prompt_of = {tree.comparison.id: tree.comparison.dialogue.query.casefold().split()[-1] for tree in trees}
    prompts: dict[str, set[str]] = {}
    comparisons: dict[str, set[str]] = {}
    for split in ("train", "heldout"):
        ids = {row["comparison_id"] for kind in ("sft", "pairs") for row in read_rows(out.directory, f"{kind}-{split}")}
        comparisons[split] = ids
        prompts[split] = {prompt_of[identifier] for identifier in ids}
    assert len(prompts["heldout"]) >= 2 and len(prompts["train"]) >= 5
    assert not prompts["heldout"] & prompts["train"]
    assert len(comparisons["heldout"]) > len(prompts["heldout"]), "there are several pairs on a held-out prompt"


@pytest.mark.parametrize(
    ("word", "failures", "message"),
    [
        ("????", {"judgment:too_long": 16, "criteria:none": 1}, "no label: 2 too_few_readable; 32 .*max_query_chars"),
        (
            "????",
            {"criteria:none": 3, "judgment:no_scores": 2},
            "6 criteria:none, 4 .* look at the texts .*constrained",
        ),
        ("AABB", {}, "lost: 8 position_inconsistent; verdicts follow the order.*teacher.both_orders=true"),
    ],
)
def test_where_nothing_is_left_the_dominant_cause_is_said_with_what_helps(
    word: str, failures: dict[str, int], message: str
) -> None:
    data = TrainingData(PROMPTER)
    for index in range(2):
        data.add(replace(tree_of((word,), index=index), failures=failures))
    assert not data.sft
    assert re.search(message, data.nothing_left())


NONE = {"judgment": "It names none."}
ROWS = [NONE | {"query": f"Name river {i}.", "response": f"Blue {i}.", "corrected": f"Rhine {i}."} for i in range(40)]


def labelled(directory: Path, rows: list[dict[str, Any]], **benchmark: Any) -> tuple[StageRun, dict[str, list[Any]]]:
    """Run the stage with correction rows, and return it with its correction examples by split."""
    trees = StageRun(directory / "tree", "tree", 0, Console())
    trees.write_rows("trees", (t.to_row() for t in TREES[:6]))
    config = Config(prompts="compact", tree=TreeConfig(criteria=4), label=LabelConfig(holdout=0.3, **ANY_EVIDENCE))
    if rows:
        config.label.corrections = SourceConfig(path=write_lines(directory / "c.jsonl", rows))
    if benchmark:
        config.dialogues.decontaminate = [BenchmarkConfig("b", SourceConfig(**benchmark))]
    out = StageRun(directory / "out", "label", 0, Console())
    label_stage.run(LabelSettings.of(config), {"tree": directory / "tree"}, out)
    split = ("sft-train", "sft-heldout")
    return out, {n: [r for r in read_rows(out.directory, n) if r["level"] == "correction"] for n in split}


def said(split: dict[str, list[Any]]) -> dict[str, str]:
    """Return the prompts of the examples by what they teach."""
    rows_of_both = [row for rows in split.values() for row in rows]
    return {row["completion"][0]["content"]: row["prompt"][-1]["content"] for row in rows_of_both}


def test_they_are_examples_of_their_own_level(tmp_path: Path) -> None:
    without, _ = labelled(tmp_path / "a", [])
    out, split = labelled(tmp_path / "b", ROWS)
    prompts_by_level = said(split)
    assert sum(map(len, split.values())) == len(ROWS) and 0 < len(split["sft-heldout"]) < 25, "a share is held out"
    before, after = (len(list(read_rows(run.directory, "sft-train"))) for run in (without, out))
    assert after == before + len(split["sft-train"])
    for row in ROWS:
        prompt = prompts_by_level[row["corrected"]]
        assert row["response"] in prompt and row["judgment"] in prompt and row["corrected"] not in prompt
    assert out.notes["yield"]["corrections"] == {"taken": len(ROWS)}


def test_rows_that_hold_a_benchmark_s_query_are_left_out_and_counted(tmp_path: Path) -> None:
    held = [{"query": ROWS[i]["query"], "response_a": "x", "response_b": "y", "label": "A"} for i in (3, 8)]
    benchmark = {"name": "b", "path": write_lines(tmp_path / "b.jsonl", held), "format": "comparison"}
    out, split = labelled(tmp_path, ROWS, **benchmark)
    assert {*said(split)} == {row["corrected"] for i, row in enumerate(ROWS) if i not in (3, 8)}
    assert out.totals()["counts"]["dropped"]["corrections:contaminated"] == 2


def test_what_stage_correct_wrote_is_taken_as_it_is(tmp_path: Path) -> None:
    # Its rows call the judgment evaluation, and have no corrected response where the old one was good enough.
    corrections = [
        Correction(f"c{i}", "A", "m", row["query"], row["response"], 2.0, row["judgment"], row["corrected"])
        for i, row in enumerate(ROWS)
    ]
    corrections[5] = replace(corrections[5], score=4.0, corrected=None)
    out, split = labelled(tmp_path, [asdict(c) for c in corrections])
    assert {*said(split)} == {r["corrected"] for r in ROWS} - {ROWS[5]["corrected"]}
    assert all("It names none." in prompt for prompt in said(split).values())
    assert out.totals()["counts"]["dropped"]["corrections:not_corrected"] == 1


def test_corrections_hold_no_thoughts(tmp_path: Path) -> None:
    row = dict(ROWS[0])
    for name in ("response", "judgment", "corrected"):
        row[name] = f"<think>Let me see.</think>{row[name]}"
    # As messages, too, and one that was cut before there was an answer.
    row["response"] = [{"role": "assistant", "content": row["response"]}]
    _, split = labelled(tmp_path / "a", [row, *ROWS[1:]])
    _, plain = labelled(tmp_path / "b", ROWS)
    assert said(split) == said(plain)
    with pytest.raises(DataError, match=r"c\.jsonl:1: expected text in the columns .*: corrected has none"):
        labelled(tmp_path / "c", [ROWS[0] | {"corrected": "<think>Let me"}])
    wrong = {"corrected": [{"role": "bot", "content": 7}]}
    with pytest.raises(DataError, match=r"c\.jsonl:1: column corrected: message 0: expected a role and a content"):
        labelled(tmp_path / "d", [ROWS[0] | wrong])


def test_a_row_without_a_judgment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"c\.jsonl:2: expected text in the columns .*: judgment has none"):
        labelled(tmp_path, [ROWS[0], {**ROWS[1], "judgment": " "}])


BOTH = Prompter(PROMPTS, 2, reference=True)
PAIR = Comparison.of("q", "good answer", "bad", reference="the gold one", label="A")


def answer(request: Request, occurrence: int) -> str:
    """Score good 5 and bad 1 by c1, but for each second judgment of good, which slips to 1; and both 3 by c2."""
    if request.step == "criteria":
        return criteria(2)
    if request.step == "guideline":
        return f"by {request.slots['criterion']} {occurrence}"

    def score(text: str) -> int:
        if request.slots["criterion"].startswith("c2"):
            return 3
        return 1 if text.startswith("bad") or occurrence % 2 else 5

    if request.step == "score":
        return f"Score: {score(request.slots['response'])}\nAnalysis: seen {occurrence}."
    return judged(score(request.slots["response_a"]), score(request.slots["response_b"]), str(occurrence))


def tree(orders: tuple[str, ...] = RESPONSES, judgments: int = 2) -> EvaluationTree:
    shape = Shape(count=2, criteria=2, guidelines=2, judgments=judgments, orders=orders)  # type: ignore[arg-type]
    return grow([PAIR], TreeModel(ScriptedEngine(answer), PROMPTS, StepsConfig(criteria=2)), shape, 0)[0]


def test_a_judgment_is_right_when_its_score_stands_on_the_right_side_of_its_siblings() -> None:
    first = tree().criteria[0].guidelines[0].judgments
    assert [(j.order, j.score_a, j.score_b, j.verdict) for j in first] == [
        ("A", 5, 1, "A"), ("A", 1, 1, "tie"), ("B", 5, 1, "A"), ("B", 1, 1, "tie"),
    ]  # fmt: skip


def test_two_siblings_are_one_piece_of_evidence() -> None:
    node = tree().criteria[0]
    assert against_label(node.judgments, "A") == (2, 0, 2), "two guidelines, two judgments of response A each"
    steady = [j for j in node.judgments if j.verdict == "A"]
    assert consensus(steady, 0.9) == "A" and consensus(steady[:2], 0.9) is None, "one sibling pair is not enough"


@pytest.mark.parametrize(("orders", "kinds"), [(RESPONSES, 1), (ORDERS, 1), ((*ORDERS, *RESPONSES), 2)])
def test_examples_and_pairs_are_made_for_both_ways_of_reading(orders: tuple[str, ...], kinds: int) -> None:
    config = LabelConfig(max_sft_per_tree=99, max_pairs_per_level=99, levels=["criteria", "guideline", "judgment"])
    data = TrainingData(BOTH, config)
    data.add(tree(orders, 6))
    prompts = {row["prompt"][0]["content"].split("\n")[0] for row in data.sft if row["level"] == "judgment"}
    openings = {"Score the response.", "Score the responses."}
    assert prompts <= openings and len(prompts) == kinds
    assert all("Reference: the gold one" in row["prompt"][0]["content"] for row in data.sft)
    judgments = [pair for pair in data.pairs if pair.level == "judgment"]
    for pair in judgments:
        assert pair.chosen.startswith("Score: 5" if pair.chosen.startswith("Score") else "Response A Score")
        assert pair.chosen.split()[0] == pair.rejected.split()[0], "one prompt, one form"
    assert any(pair.level == "criteria" for pair in data.pairs)


@pytest.mark.parametrize("ranked", [True, False])
def test_no_judgment_that_is_ranked_is_taken_without_the_other_response_s(ranked: bool) -> None:
    alone = []
    drawn_ids = set()
    for most, seed in itertools.product((1, 3, 4), range(5)):
        data = TrainingData(BOTH, LabelConfig(max_sft_per_tree=most), drawing=Drawing(seed, ranked))
        data.add(tree((*ORDERS, *RESPONSES), 6))
        shown = {row["nodes"][0] for row in data.sft if row["level"] == "judgment"}
        other = {node.translate(str.maketrans("AB", "BA")) for node in shown if not re.search("AB|BA", node)}
        alone += sorted(other - shown)
        drawn_ids.add((most, len(shown)))
    assert drawn_ids <= {(1, 1), (1, 2), (3, 2), (3, 3), (4, 3), (4, 4)} and {(3, 3), (4, 4)} <= drawn_ids
    assert bool(alone) != ranked, alone


def test_a_teacher_writes_both_forms_and_labels_are_scores() -> None:
    assert orders_of(TeacherConfig(both_orders=False), "both") == ("AB", "A", "B")
    assert orders_of(TeacherConfig(both_orders=True), "one") == ("A", "B")
    shape = Shape(count=2, criteria=1, orders=(*ORDERS, *RESPONSES))
    (taught,) = grow([PAIR], TreeModel(KnownLabels([PAIR]), PROMPTS, StepsConfig(criteria=2)), shape, 0)
    scores = {j.order: (j.score_a, j.score_b, j.verdict) for _, _, j in taught.judgments()}
    assert scores == dict.fromkeys(("AB", "BA", "A", "B"), (4, 2, "A"))
    rows = [row for row in teaching_examples(taught, BOTH) if row["level"] == "judgment"]
    assert sorted(row["completion"][0]["content"] for row in rows)[-2:] == ["Score: 2", "Score: 4"]


def test_a_response_of_several_pairs_is_scored_by_all_of_them() -> None:
    """Three responses in two pairs each: by its first pair alone the middling one would have the score of the best."""
    texts = ("best", "middling", "worst")
    pairs = [
        replace(PAIR, id=f"{a}{b}", response_a=texts[a], response_b=texts[b], label="A")
        for a, b in ((1, 2), (0, 1), (0, 2))
    ]
    shape = Shape(count=1, criteria=1, orders=RESPONSES)
    trees = grow(pairs, TreeModel(KnownLabels(pairs), PROMPTS, StepsConfig(criteria=1)), shape, 0)
    scores = [{j.order: (j.score_a, j.score_b) for _, _, j in tree.judgments()} for tree in trees]
    assert scores == [dict.fromkeys("AB", stated_scores) for stated_scores in ((3, 2), (4, 3), (4, 2))]


def test_criteria_of_a_rubric_count_as_people_weigh_them_until_labels_say_what_they_are_worth() -> None:
    """One of weight 3 says A, two of weight 1 say B: a vote gives B. Learned from labels, worth says what it says."""
    tree = tree_of(("AAAA",), ("BBBB",), ("BBBB",))
    given = []
    for node, weight in zip(tree.criteria, (3.0, 1.0, 1.0), strict=True):
        given.append(replace(node, given=Criterion(text=node.text, name=node.text, weight=weight)))
    weighted = replace(tree, criteria=tuple(given))
    nothing_for_a = {node.id: 0.0 for node in tree.criteria}
    sides = {tree.comparison.id: (0.1, 0.9)}
    unlabelled = Evidence(worth=Worth(nothing_for_a, sides, 0.5, labelled=0))
    labelled = Evidence(worth=Worth(nothing_for_a, sides, 0.5, labelled=200))
    assert TrainingData(PROMPTER).add(tree).verdict == "B"
    assert TrainingData(PROMPTER).add(weighted).verdict == "A"
    assert TrainingData(PROMPTER, evidence=unlabelled).add(weighted).verdict == "A"
    assert TrainingData(PROMPTER, evidence=labelled).add(weighted).verdict == "B"
    assert TrainingData(PROMPTER, evidence=unlabelled).add(tree).verdict == "B"
    assert TrainingData(PROMPTER, LabelConfig(rule="paper")).add(weighted).verdict == "B"
    # 3 of 5 parts for A against 2: by how far A is ahead of B among what decides.
    assert TrainingData(PROMPTER).add(weighted).share == pytest.approx(0.6)


def test_known_labels_rank_a_pair_by_its_label_not_by_scores_over_all_pairs() -> None:
    """x beats y, but loses two other pairs, and y wins two: their scores alone would rank y first."""
    texts = [("x", "y"), ("z", "x"), ("w", "x"), ("y", "v"), ("y", "u")]
    pairs = [replace(PAIR, id=a + b, response_a=a, response_b=b, label="A") for a, b in texts]
    shape = Shape(count=1, criteria=1, orders=RESPONSES)
    (tree, *_) = grow(pairs, TreeModel(KnownLabels(pairs), PROMPTS, StepsConfig(criteria=1)), shape, 0)
    scores = {judgment.order: judgment.score_a for _, _, judgment in tree.judgments()}
    # Of x (4, 2, 2) and of y (2, 4, 4): the mean as a whole number is 3 for both.
    assert scores["A"] == 3
    leads = {}
    for row in teaching_examples(tree, BOTH, by_label=True):
        if row["level"] == "judgment":
            leads[row["prompt"][-1]["content"].partition("Response: ")[2].split()[0]] = row["ahead"]
    assert leads == {"x": 1.0, "y": -1.0}
