"""Scores of branches under the judge that wrote them, on the shipped base in the Initial judge's place."""

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from scipy.stats import chisquare

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.world import engine as world_engine
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.schema import DISCOUNT, EvaluationTree
from judgetrain.label import rewards as branch_scores
from judgetrain.label import stage as label_stage
from judgetrain.label.config import LabelConfig
from judgetrain.label.examples import Prompter
from judgetrain.label.labels import ensemble_label
from judgetrain.label.pairs import Evidence, PairBuilder
from judgetrain.label.rewards import Rewards, branch_rewards, nodes_of, read_scores
from judgetrain.label.stages import LabelSettings
from judgetrain.label.training_data import TrainingData
from judgetrain.label.worth import FEWEST, Worth, learn
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison, Verdict
from judgetrain.scorers.encode import Sample, TokenStatistics
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.label import ANY_EVIDENCE, PROMPTER, tree_of
from tests.builders.pipeline import check_stage
from tests.builders.watched import contents, interrupted

BASE = Path(world_engine.__file__).parent / "base"
TWO = Prompter(load_prompt_set("compact"), 2)
Prepared = tuple[Config, dict[str, Path], list[EvaluationTree]]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    trees = [tree_of(("AAAA", "AABA"), ("BBB?", "AAtA"), index=i) for i in range(3)]
    trees = [replace(t, comparison=replace(t.comparison, label="A")) for t in trees]
    StageRun(tmp_path / "tree", "tree", 0, Console()).write_rows("trees", (t.to_row() for t in trees))
    shutil.copytree(BASE, tmp_path / "initial" / "model")
    config = Config(prompts="compact")
    config.tree.criteria = 2
    config.label.signals = ["probdiff", "sentprob_mean"]
    monkeypatch.setattr(branch_scores, "SHARD", 2)
    config.scorer.max_new_tokens = 6
    return config, {"tree": tmp_path / "tree", "initial": tmp_path / "initial"}, trees


def out(directory: Path) -> StageRun:
    return StageRun(directory, "label", 5, Console())


def test_percentiles_are_those_of_scores_read_off_one_by_one(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs, trees = prepared
    rewards = branch_rewards(LabelSettings.of(config), inputs, TWO, out(tmp_path / "label"))
    scorer = TokenScorer.from_pretrained(str(BASE))
    raw: dict[str, dict[str, float]] = {"judgment": {}, "guideline": {}}
    for tree in trees:
        for criterion, guideline, judgment in tree.judgments():
            texts = {("guideline", guideline.id): (TWO.guideline(tree.comparison, criterion.text), guideline.text)}
            if judgment.verdict is not None:
                shown = TWO.judgment(tree.comparison, criterion.text, guideline.text, judgment)
                texts["judgment", judgment.id] = shown, judgment.text
            for (level, node), (prompt, text) in texts.items():
                (statistics_of_text,) = scorer.statistics([Sample(tuple(prompt), text)])
                assert isinstance(statistics_of_text, TokenStatistics)
                raw[level][node] = statistics_of_text.mean_logprob
    scores = rewards.scores["sentprob_mean"]
    assert set(scores) == set(rewards.scores["probdiff"]) == {*raw["judgment"], *raw["guideline"]}
    for level, values in raw.items():
        ordered = sorted(values, key=lambda node: (round(values[node], 4), scores[node]))
        assert [scores[n] for n in ordered] == sorted(scores[n] for n in values), level
        assert fmean(scores[n] for n in values) == pytest.approx(0.5)
    rows = {row["node"]: row for row in read_scores(tmp_path / "label")}
    assert all(rows[n]["sentprob_mean"] == pytest.approx(v, abs=1e-4) for vs in raw.values() for n, v in vs.items())


def test_an_interrupted_run_goes_on_and_equal_texts_are_scored_once(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs, trees = prepared
    label_stage.run(LabelSettings.of(config), inputs, out(tmp_path / "whole"))
    sizes = interrupted(monkeypatch, branch_scores, "score", 2)
    with pytest.raises(KeyboardInterrupt):
        label_stage.run(LabelSettings.of(config), inputs, out(tmp_path / "killed" / "cut"))
    label_stage.run(LabelSettings.of(config), inputs, out(tmp_path / "killed" / "cut"))
    halves = [len({repr(n[2]) for t in ts for n in nodes_of(t, TWO)}) for ts in (trees[:2], trees[2:])]
    one_cut_short = [halves[0], halves[1], halves[1]]
    assert [len(samples) for _, samples, *_ in sizes] == [*one_cut_short, *halves]
    cut = contents(tmp_path / "killed" / "cut")
    whole = contents(tmp_path / "whole")
    names = [name for name in whole if ".json" in name]
    assert "branch-scores-sentprob_mean-00001-of-00002.jsonl" in names
    for name in names:
        assert cut[name] == whole[name]


def test_a_text_without_a_score_is_counted_and_left_without(prepared: Prepared, tmp_path: Path) -> None:
    config, inputs, trees = prepared
    first = trees[0].criteria[0]
    empty = replace(first.guidelines[0], text="", judgments=())
    bare = replace(trees[0], criteria=(replace(first, guidelines=(empty,)),))
    StageRun(inputs["tree"], "tree", 0, Console()).write_rows("trees", [bare.to_row()])
    config.label.signals = ["sentprob_mean"]
    run = out(tmp_path / "label")
    rewards = branch_rewards(LabelSettings.of(config), inputs, TWO, run)
    assert rewards.scores == {"sentprob_mean": {}}
    assert run.totals()["counts"]["dropped"] == {"reward:sentprob_mean:empty_response": 1}


def test_without_signals_no_model_is_loaded(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, inputs, _ = prepared
    config.label.signals = []
    monkeypatch.setattr(branch_scores, "load_scorer", lambda *given: pytest.fail("loaded"))
    label_stage.run(LabelSettings.of(config), {"tree": inputs["tree"]}, out(tmp_path / "label"))
    assert not list((tmp_path / "label").glob("*scores*"))


@pytest.mark.parametrize(
    ("signals", "prompt", "message"),
    [
        (["glassbox"], "full", "label.signals: 'glassbox' is no scorer"),
        (["decensem_exp"], "full", "label.signals: decensem_exp scores a model on a prompt"),
        (["probdiff"], "nosuch", "scorer.revision_prompt"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_the_stage(signals: list[str], prompt: str, message: str) -> None:
    config = Config(prompts="compact")
    config.label.signals = signals
    config.scorer.revision_prompt = prompt
    with pytest.raises(ConfigError, match=message):
        check_stage("label", config)


def scored(tree: EvaluationTree, **raised: float) -> Rewards:
    """Rewards in which every node has 0.5 but those named, as in ``c0_g0_1=0.9``."""
    scores = {j.id: 0.5 for _, _, j in tree.judgments()} | {g.id: 0.5 for c in tree.criteria for g in c.guidelines}
    named = {f"d0/{name.replace('_', '/')}": value for name, value in raised.items()}
    assert set(named) <= set(scores)
    return Rewards({"softmax_var": scores | named})


@pytest.mark.parametrize(
    ("words", "raised", "verdict", "source"),
    [
        (("AABB", "tttt"), {"c0_g0_2": 0.9}, "B", "reward"),
        (("AABB", "tttt"), {"c0_g0_0": 0.9}, "A", "reward"),
        (("AABB", "tttt"), {}, "tie", "ensemble"),  # equal scores decide nothing
        (("tttt",), {"c0_g0_2": 0.9}, "tie", "ensemble"),  # there are no sides
    ],
)
def test_a_tied_vote_goes_to_the_side_with_the_better_scores(
    words: tuple[str, ...], raised: dict[str, float], verdict: str, source: str
) -> None:
    tree = tree_of(words)
    label = ensemble_label(tree, LabelConfig())
    broken = scored(tree, **raised).break_tie(tree, label)
    assert (broken.verdict, broken.source) == (verdict, source)
    assert Rewards().break_tie(tree, label) is label, "no scores"
    data = TrainingData(PROMPTER, LabelConfig(), Evidence(rewards=scored(tree, **raised)))
    data.add(tree)
    assert data.table()["trees"] == {f"label_{verdict}": 1} and data.labels[0]["ensemble_verdict"] == "tie"


def pairs_of(tree: EvaluationTree, rewards: Rewards, skipped: Counter[str]) -> list:  # type: ignore[type-arg]
    builder = PairBuilder(PROMPTER, LabelConfig(**ANY_EVIDENCE), rewards, skipped)
    return builder.pairs(tree, ensemble_label(tree, LabelConfig()), random.Random(0))


def test_a_pair_keeps_every_part_and_its_margin_is_their_mean() -> None:
    tree = tree_of(("AAAB", "ABAB"), ("BBBB", "ABBB"), ("AAAA", "AAAA"))
    rewards = scored(tree, c0_g0_2=0.9, c0_g0_3=0.1, c0_g0=0.8, c0_g1=0.6)
    plain = {(p.chosen_nodes, p.rejected_nodes): p for p in pairs_of(tree, Rewards(), Counter())}
    weighed = pairs_of(tree, rewards, Counter())
    assert {p.level for p in weighed} == {"judgment", "guideline", "criteria"}
    scores = rewards.scores["softmax_var"]
    criteria = {c.id: [scores[j.id] for g in c.guidelines for j in g.judgments] for c in tree.criteria}
    for pair in weighed:
        sides = []
        for node in (pair.chosen_nodes[0], pair.rejected_nodes[0]):
            sides.append(sum(criteria[node]) / len(criteria[node]) if node in criteria else scores[node])
        share = ensemble_label(tree, LabelConfig()).share
        branches = pair.reward["branches"]
        difference = pytest.approx(sides[0] - sides[1])
        assert pair.reward == {"ensemble": share, "branches": branches, "softmax_var": difference}
        assert pair.margin == pytest.approx((branches + sides[0] - sides[1]) / 2)
        assert pair.margin >= 0
        assert branches == plain[pair.chosen_nodes, pair.rejected_nodes].margin


def test_pairs_that_the_scores_speak_against_are_left_out_and_counted() -> None:
    # The margin of the branches is 1/4: half of the difference of their net success, 1 and 1/2.
    tree = tree_of(("AAAB", "AAAA"))
    skipped = Counter[str]()
    levels = {p.level: p.margin for p in pairs_of(tree, scored(tree, c0_g0=0.9, c0_g1=0.5), skipped)}
    assert "guideline" not in levels and skipped["guideline:low_margin"] == 1
    levels = {p.level: p.margin for p in pairs_of(tree, scored(tree, c0_g0=0.6, c0_g1=0.5), skipped)}
    assert levels["guideline"] == pytest.approx((0.25 - 0.1) / 2)
    # 0.29 - 0.54 is below -0.25 by rounding alone: both sides are even, and nothing speaks against the pair.
    levels = {p.level: p.margin for p in pairs_of(tree, scored(tree, c0_g0=0.54, c0_g1=0.29), skipped)}
    assert levels["guideline"] == 0


NAMES = [f"{word}: the response {word}s" for word in "add bend call dig end fit get hit kick load mix nod".split()]
NAMES += [f"{word}: has {word} enough" for word in "salt wit charm depth pace tone".split()]
KINDS = {"how do i cook {} for my {}": NAMES[0:2], "write a poem about {} to my {}": NAMES[13:15]}
THINGS = ["soup", "rain", "bread", "stars", "tea", "snow", "corn"]
PEOPLE = ["boss", "aunt", "class", "friend", "team"]


def world(number: int, seed: int) -> tuple[list[EvaluationTree], dict[str, list[str]], dict[str, Verdict]]:
    """Return trees of six criteria, which two of them follow the better side, and what that is.

    The two err in 10% of the trees, the others say what they like.
    """
    rng = random.Random(seed)
    trees = []
    deciding = {}
    truth = {}
    for i in range(number):
        kind = list(KINDS)[i % 2]
        both = KINDS[kind]
        listed = rng.sample([*both, *rng.sample([n for n in NAMES if n not in both], 4)], 6)
        side = rng.choice("AB")
        verdicts = [
            (side if rng.random() < 0.9 else "ABt"[i % 3]) if name in both else rng.choice("AABBt") for name in listed
        ]
        tree = tree_of(*[(verdict * 2,) for verdict in verdicts], index=i)
        query = kind.format(rng.choice(THINGS), rng.choice(PEOPLE)) + f" , number {i}"
        criteria = tuple(replace(c, text=text) for c, text in zip(tree.criteria, listed, strict=True))
        comparison = replace(Comparison.of(query, f"one {i}", f"two {i}"), id=f"d{i}", label=side)  # type: ignore[arg-type]
        trees.append(replace(tree, comparison=comparison, criteria=criteria))
        deciding[comparison.id], truth[comparison.id] = both, side  # type: ignore[assignment]
    return trees, deciding, truth


def by_vote(tree: EvaluationTree) -> Verdict | None:
    return ensemble_label(tree, LabelConfig()).verdict


def learned(trees: list[EvaluationTree], labels: Mapping[str, Verdict] | None = None) -> Worth:
    worth = learn(trees, lambda tree: (labels or {}).get(tree.comparison.id))
    assert worth is not None
    return worth


def leading(worth: Worth, tree: EvaluationTree) -> set[str]:
    return {criterion.text for criterion in worth.ranked(tree)[:2]}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_decides_is_found_without_a_label_and_the_labels_get_better(seed: int) -> None:
    trees, deciding, truth = world(400, seed)
    worth = learned(trees)
    first = [leading(worth, tree) == {*deciding[tree.comparison.id]} for tree in trees]
    labels = [worth.label(tree, ensemble_label(tree, LabelConfig())) for tree in trees]
    right = [label.verdict == truth[tree.comparison.id] for tree, label in zip(trees, labels, strict=True)]
    voted = [by_vote(tree) == truth[tree.comparison.id] for tree in trees]
    assert sum(first) > 0.75 * len(trees) and 0.02 < worth.explained < 1
    assert sum(voted) < 0.75 * len(trees) and sum(right) > 0.8 * len(trees), "one criterion alone has nine in ten"
    assert all(0.5 <= label.share <= 1 for label in labels)


def test_criteria_that_follow_nothing_in_common_are_worth_nothing_without_labels() -> None:
    # Each criterion is right by itself half of the time: their votes have no more to say than chance.
    rng = random.Random(1)
    trees = []
    for tree in world(300, 1)[0]:
        verdicts = [(rng.choice(["AA", "BB"]),) for _ in tree.criteria]
        judged = tree_of(*verdicts).criteria
        criteria = tuple(replace(c, guidelines=j.guidelines) for c, j in zip(tree.criteria, judged, strict=True))
        trees.append(replace(tree, criteria=criteria))
    assert learn(trees) is None


def test_given_labels_teach_as_well_and_alone_where_criteria_do_not_agree() -> None:
    trees, deciding, truth = world(300, 5)
    worth = learned(trees, truth)
    assert sum(leading(worth, t) == {*deciding[t.comparison.id]} for t in trees) > 0.95 * len(trees)


def test_a_few_labels_beside_many_trees_say_which_of_two_that_agree_is_the_better_side() -> None:
    # Two pairs of criteria agree, each about something else; the labels follow the second pair.
    rng = random.Random(4)
    trees = []
    texts = [NAMES[0], NAMES[1], NAMES[13], NAMES[14]]
    labels: dict[str, Verdict] = {}
    for i, tree in enumerate(world(400, 4)[0]):
        one = rng.choice("AB")
        other = rng.choice("AB")
        noisy = [verdict if rng.random() < 0.9 else rng.choice("AB") for verdict in (one, one, other, other)]
        criteria = tree_of(*[(verdict * 2,) for verdict in noisy], index=i).criteria
        criteria = tuple(replace(c, text=text) for c, text in zip(criteria, texts, strict=True))
        trees.append(replace(tree, criteria=criteria))
        if i % 4 == 0:
            labels[tree.comparison.id] = other  # type: ignore[assignment]
    worth = learned(trees, labels)
    assert sum(leading(worth, tree) == {*texts[2:]} for tree in trees) > 0.95 * len(trees)


def test_a_criterion_in_three_wordings_does_not_outvote_one_that_counts_twice() -> None:
    # The label follows the first, and where that is even, the second, which half of the trees state three times.
    rng = random.Random(2)
    thrice = ["wit: shows wit to please the reader", "wit: shows wit to please a reader", "wit: shows wit, to please"]
    trees = []
    against = []
    for i, tree in enumerate(world(400, 7)[0]):
        first = rng.choice("ABt")
        second = rng.choice("AB")
        third = rng.choice("ABt")
        wordings = thrice if i % 2 else thrice[:1]
        texts = [NAMES[0], *wordings, rng.choice([n for n in NAMES if n[:3] not in ("add", "wit")])]
        scores = [first, *second * len(wordings), third]
        criteria = tree_of(*[(word * 2,) for word in scores], index=i).criteria
        label = second if first == "t" else first
        criteria = tuple(replace(c, text=text) for c, text in zip(criteria, texts, strict=True))
        trees.append(replace(tree, criteria=criteria, comparison=replace(tree.comparison, label=label)))  # type: ignore[arg-type]
        against += [tree.comparison.id] if i % 2 and {first, second} == {"A", "B"} else []
    worth = learned(trees, {t.comparison.id: t.comparison.label for t in trees if t.comparison.label})
    against_trees = [tree for tree in trees if tree.comparison.id in against]
    labels = [worth.label(tree, ensemble_label(tree, LabelConfig())).verdict for tree in against_trees]
    right = [label == tree.comparison.label for label, tree in zip(labels, against_trees, strict=True)]
    assert len(against_trees) > 50 and sum(right) > 0.7 * len(against_trees)
    assert all(is_right or label == "tie" for is_right, label in zip(right, labels, strict=True)), (
        "three never outvote one"
    )
    assert all(worth.ranked(tree)[0].text == NAMES[0] for tree in against_trees)


def test_a_tree_has_no_part_in_what_its_own_criteria_are_worth() -> None:
    trees, _, truth = world(200, 3)
    mirrored = tree_of(*[("BB" if c.judgments[0].verdict == "A" else "AA",) for c in trees[0].criteria], index=0)
    judged = [replace(c, guidelines=m.guidelines) for c, m in zip(trees[0].criteria, mirrored.criteria, strict=True)]
    other = [replace(trees[0], criteria=tuple(judged)), *trees[1:]]
    one, two = (learned(some_trees, truth) for some_trees in (trees, other))
    for criterion in trees[0].criteria:
        assert two.criteria[criterion.id] == pytest.approx(one.criteria[criterion.id], abs=1e-9)
    assert two.sides["d0"] != one.sides["d0"], "but what they say of this comparison is theirs"


def test_a_criterion_without_a_word_does_not_stop_the_learning() -> None:
    # A judge now and then writes a line of marks alone, beside more names than are told apart by their letters.
    trees, deciding, truth = world(200, 3)
    for i in range(5):
        criteria = (replace(trees[i].criteria[0], text="... : ..."), *trees[i].criteria[1:])
        trees[i] = replace(trees[i], criteria=criteria)
    worth = learned(trees, truth)
    assert sum(leading(worth, t) == {*deciding[t.comparison.id]} for t in trees[5:]) > 0.9 * len(trees)


def test_where_there_is_nothing_to_learn_there_is_no_worth() -> None:
    trees, _, _ = world(FEWEST - 1, 0)
    assert learn(trees) is None
    rng = random.Random(0)
    noise = [
        replace(t, criteria=tuple(replace(c, guidelines=tree_of((rng.choice(["AA", "BB"]),)).criteria[0].guidelines)
                                  for c in t.criteria))
        for t in world(120, 0)[0]
    ]  # fmt: skip
    labels = {t.comparison.id: rng.choice("AB") for t in noise}
    assert learn(noise, lambda t: labels[t.comparison.id]) is None  # type: ignore[arg-type,return-value]
    same = [replace(t, comparison=replace(Comparison.of("one", "a", "b"), id=t.comparison.id)) for t in world(80, 0)[0]]
    assert learn(same) is None, "there is no other query to learn from"


def test_what_could_not_be_read_is_ranked_by_what_others_say_of_its_like() -> None:
    trees, deciding, _ = world(200, 4)
    unread = tree_of(*[("??",)] * 6, index=0).criteria
    blind = [replace(c, guidelines=u.guidelines) for c, u in zip(trees[0].criteria, unread, strict=True)]
    worth = learned([replace(trees[0], criteria=tuple(blind)), *trees[1:]])
    assert leading(worth, trees[0]) == {*deciding["d0"]} and worth.sides["d0"] == (0.0, 0.0)


def test_lists_by_worth_are_taught_against_random_ones() -> None:
    trees, _, _ = world(120, 6)
    criteria_worth = learned(trees)
    config = LabelConfig(levels=["criteria"])
    data = TrainingData(Prompter(load_prompt_set("compact"), 6), config, Evidence(worth=criteria_worth))
    for tree in trees:
        data.add(tree)
    listed = {t.comparison.id: [f"{i}. {c.text}" for i, c in enumerate(criteria_worth.ranked(t), 1)] for t in trees}
    worth = {(t.comparison.id, c.text): criteria_worth.criteria[c.id] for t in trees for c in t.criteria}
    criteria_of = {tree.comparison.id: [criterion.id for criterion in tree.criteria] for tree in trees}
    assert len(data.pairs) >= 3 * len(trees)
    for pair in data.pairs:
        name = pair.comparison_id
        assert pair.chosen.splitlines() == listed[name], "what is worth most first"
        sides = [[line.split(". ", 1)[1] for line in side.splitlines()] for side in (pair.chosen, pair.rejected)]
        assert sorted(sides[0]) == sorted(sides[1])
        totals = [sum(worth[name, text] * DISCOUNT**i for i, text in enumerate(side)) for side in sides]
        assert pair.margin == pytest.approx(totals[0] - totals[1]) and pair.margin > 0
    taught = [row for row in data.sft if row["level"] == "criteria"]
    assert all(row["completion"][0]["content"].splitlines() == listed[row["comparison_id"]] for row in taught)
    # Any order is as likely to be rejected as another: of six criteria each leads a sixth of the rejected lists.
    places = Counter(criteria_of[p.comparison_id].index(p.rejected_nodes[0]) for p in data.pairs)
    assert chisquare([places[place] for place in range(6)]).pvalue > 1e-3
    assert 0 < data.table()["criteria_worth"]["explained"] < 1
