"""Agreement of rules that judge nothing, on the world: floors for every judge, and the ceilings above them.

A floor reads perfectly, since sentences are known, but does not know what counts. Floors without labels may use
everything else: all texts, how often a property is shown, which writer wrote what, which criteria the annotator names.
Floors with labels are fitted to some labelled comparisons. Ceilings know what counts; bounds learn it as the method
does, but from perfect readings.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING

import numpy as np

from judgetrain.data.world import counting, labelled_comparison, linking, queries
from judgetrain.data.world.engine import Annotator, criterion_name
from judgetrain.data.world.rule import World, load_world
from judgetrain.schema import Comparison, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LISTS = 40
"""Lists that the annotator writes for a kind, to count the properties that it names most and least."""
FEW = 4
"""Properties that count as those named, or shown, most or least."""
LABELS = 70
"""Labelled comparisons that the floors with labels are fitted to."""
UNLABELLED = 2200
"""Other comparisons that floors may look at."""
NO_LABEL = "no label"
FEW_LABELS = f"{LABELS} labels"
BOUND = f"{UNLABELLED} comparisons without a label"
BOTH = f"{UNLABELLED} comparisons, {LABELS} with a label"
FORM = f"{LABELS} labels and the rule's form"
ALL_LABELS = f"{UNLABELLED} labels"
THE_RULE = "the rule"
"""The names of what floors, bounds and ceilings need."""
ROUNDS = 50
"""Rounds of the power iteration."""
RIDGE = 3.0
"""The penalty of the regressions on labels."""
ROUNDING = 1e-9
"""A lead up to this is a tie: the sums of floats that are equal may differ so much."""
CONFIDENCE = 3.0
"""The weight of a label that a rule gets right in the vote of rules, on the scale of logarithms."""
SPARSENESS = 1.5
"""The penalty for each property that a rule counts, on the same scale."""
MOST_COUNTED = 4
"""The most properties that a rule of the sparse vote counts."""


@dataclass(frozen=True)
class PerfectReading:
    """Comparisons as a perfect reader sees them.

    Args:
        leads: grade of A less grade of B, by property [comparison, property].
        shown: how often either response shows a property [comparison, property].
        longer: words of A less words of B [comparison].
        kinds: the kind of each query [comparison].
        writers: who wrote A and B [comparison].
        labels: 1 for A, -1 for B, 0 for a tie [comparison].
    """

    leads: "Floats"
    shown: "Floats"
    longer: "Floats"
    kinds: list[str]
    writers: list[tuple[str, str]]
    labels: "Floats"


def read(world: World, comparisons: Sequence[Comparison]) -> PerfectReading:
    """Return labelled comparisons as a perfect reader sees them."""
    signs = {"A": 1.0, "B": -1.0, "tie": 0.0}
    # Without an error: what a floor lacks is to know what counts, not to read.
    grades_a = _grades(world, [comparison.response_a for comparison in comparisons])
    grades_b = _grades(world, [comparison.response_b for comparison in comparisons])
    words_a = [len(comparison.response_a.split()) for comparison in comparisons]
    words_b = [len(comparison.response_b.split()) for comparison in comparisons]
    return PerfectReading(
        leads=grades_a - grades_b,
        shown=(grades_a > 0).astype(float) + (grades_b > 0),
        longer=np.array(words_a, dtype=float) - np.array(words_b),
        kinds=[world.language.kind_of(comparison.dialogue.query) for comparison in comparisons],
        writers=[(comparison.model_a, comparison.model_b) for comparison in comparisons],
        labels=np.array([signs[comparison.label or "tie"] for comparison in comparisons]),
    )


def _grades(world: World, responses: Sequence[str]) -> "Floats":
    """Return the grade of each property in each response [response, property]."""
    grades = np.zeros((len(responses), len(world.language.properties)))
    for row, response in enumerate(responses):
        for column, name in enumerate(world.language.properties):
            grades[row, column] = world.language.grade(response, name)
    return grades


def other_comparisons(world: World, seed: int, count: int) -> list[Comparison]:
    """Return comparisons of training queries by the world's writers, as stage responses makes them, with the truth."""
    rng = random.Random(f"floors {seed}")
    comparisons = []
    # The first of many are the same as few, so that figures by number of comparisons differ in nothing else.
    for number, query in enumerate(rng.sample(queries("train"), UNLABELLED)[:count]):
        comparisons.append(labelled_comparison(world, query, f"world-floor:{number:05d}", rng))
    return comparisons


def all_floors(world: World, comparisons: Sequence[Comparison], seed: int) -> dict[str, dict[str, "Floats"]]:
    """Return the leads of every floor, bound and ceiling on comparisons, by what it needs and by its name.

    Floors look at :data:`UNLABELLED` other comparisons. Of these, :data:`LABELS` have a label for the floors with few
    labels, and all for the bound with all labels.
    """
    tested = read(world, comparisons)
    others = other_comparisons(world, seed, UNLABELLED)
    seen = read(world, others)
    labelled = read(world, others[:LABELS])
    count = len(world.language.properties)
    return {
        NO_LABEL: without_labels(world, tested, seen, seed),
        FEW_LABELS: with_labels(tested, labelled),
        BOUND: without_reading(comparisons, tested, others, seen),
        BOTH: {"agreement_and_vote": by_agreement_and_vote(tested, seen, labelled)},
        FORM: {
            "vote_of_pairs_by_kind": by_vote(tested, labelled, _ordered_pairs(count), np.zeros(count * (count - 1)))
        },
        ALL_LABELS: with_labels(tested, seen),
        THE_RULE: ceilings(world, tested),
    }


def without_reading(
    comparisons: Sequence[Comparison], tested: PerfectReading, others: Sequence[Comparison], seen: PerfectReading
) -> dict[str, "Floats"]:
    """Return the leads of what learns without labels what goes together, by name.

    Args:
        comparisons: the comparisons to give verdicts on.
        tested: the same, read perfectly.
        others: comparisons that may be looked at, without their labels.
        seen: the same, read perfectly.
    """
    return {
        "agreement": by_agreement(tested, seen),
        "agreement_of_raw_texts": by_raw_texts(comparisons, tested.kinds, others, seen.kinds),
        "agreement_of_linked_texts": by_linked_texts(comparisons, tested.kinds, others, seen.kinds),
    }


@cache
def floor_names() -> dict[str, list[str]]:
    """Return the names of all floors, bounds and ceilings, by what they need."""
    world = load_world(0)

    # Names hang on no figure, so that a few comparisons of any world do.
    comparisons = other_comparisons(world, 0, 40)
    reading = read(world, comparisons)
    return {
        NO_LABEL: list(without_labels(world, reading, reading, 0)),
        FEW_LABELS: list(with_labels(reading, reading)),
        BOUND: list(without_reading(comparisons, reading, comparisons, reading)),
        BOTH: ["agreement_and_vote"],
        FORM: ["vote_of_pairs_by_kind"],
        ALL_LABELS: list(with_labels(reading, reading)),
        THE_RULE: list(ceilings(world, reading)),
    }


def by_agreement(reading: PerfectReading, seen: PerfectReading) -> "Floats":
    """Return the leads of a perfect reader who learns what counts from which properties go together, by kind.

    This is what the method learns without labels, from judgments that are never wrong: the two properties of a kind
    that the leading eigenvector of the covariances without their diagonal holds most.
    """
    return _some(reading, _going_together(seen, set(reading.kinds)), 2)


def _going_together(seen: PerfectReading, kinds: Collection[str]) -> dict[str, "Floats"]:
    """Return how much each property goes together with the others, by kind: the leading eigenvector [property]."""
    where = np.array(seen.kinds)
    together: dict[str, Floats] = {}
    for kind in kinds:
        together[kind] = leading_eigenvector(seen.leads[where == kind])
    return together


def leading_eigenvector(leads: "Floats") -> "Floats":
    """Return the leading eigenvector [column] of the correlations between columns, without their diagonal.

    Args:
        leads: [comparison, column].
    """
    if len(leads) < 2:
        # Nothing goes together in one comparison.
        return np.ones(leads.shape[1])
    # A column that never differs has no correlation with any other.
    with np.errstate(invalid="ignore", divide="ignore"):
        between = np.atleast_2d(np.nan_to_num(np.corrcoef(leads.T)))
    # Without the diagonal: a property never vouches for itself.
    np.fill_diagonal(between, 0.0)
    weights = np.ones(len(between))
    for _ in range(ROUNDS):
        # A property that goes against the others counts for nothing, and not the other way round.
        weights = np.maximum(between @ weights, 0.0)
        # All weights may fall to 0 where properties go together nowhere.
        weights = weights / max(float(np.linalg.norm(weights)), 1e-9)
    return weights


def by_agreement_and_vote(reading: PerfectReading, seen: PerfectReading, labelled: PerfectReading) -> "Floats":
    """Return the leads of a perfect reader who takes what counts from what goes together, and the order from labels.

    This is what the method can learn from many comparisons of which some have a label. Of the two properties of a kind
    that go together most, the labels of the kind say which counts twice; without any, both count alike.
    """
    together = _going_together(seen, set(reading.kinds))
    leads = np.zeros(len(reading.kinds))
    for kind in set(reading.kinds):
        first, second = np.argsort(-together[kind], kind="stable")[:2]
        # The first counts twice, the second does, or both count alike.
        rules = np.zeros((3, reading.leads.shape[1]))
        rules[0, [first, second]] = (2.0, 1.0)
        rules[1, [first, second]] = (1.0, 2.0)
        rules[2, [first, second]] = (1.0, 1.0)
        inside = np.array(reading.kinds) == kind
        labels_of_kind = _labelled_of(labelled, kind)
        leads[inside] = _vote(rules, np.zeros(len(rules)), reading.leads[inside], *labels_of_kind)
    return leads


def by_raw_texts(
    comparisons: Sequence[Comparison], kinds: Sequence[str], others: Sequence[Comparison], kinds_seen: Sequence[str]
) -> "Floats":
    """Return the leads of counting alone: no label, no reading, not even the vocabulary (:mod:`.counting`).

    Args:
        comparisons: to give verdicts on.
        kinds: the kind of each of their queries, as a clustering of queries would find it.
        others: comparisons whose texts are counted.
        kinds_seen: the kind of each of their queries.
    """
    counted = counting.exclusive_groups(_texts(others))
    seen = _group_leads(counted, others)
    tested = _group_leads(counted, comparisons)
    where = np.array(kinds_seen)
    leads = np.zeros(len(comparisons))
    for kind in set(kinds):
        weights = leading_eigenvector(seen[where == kind])

        # Stable, so that equal weights choose the same groups on every machine.
        best = np.argsort(-weights, kind="stable")[:2]
        inside = np.array(kinds) == kind
        leads[inside] = tested[inside][:, best].sum(axis=1)
    return leads


def by_linked_texts(
    comparisons: Sequence[Comparison],
    kinds: Sequence[str],
    others: Sequence[Comparison],
    kinds_seen: Sequence[str],
    likeness: linking.Likeness = linking.likeness_of_letters,
) -> "Floats":
    """Return verdicts [comparison] by counting in both sets of texts, and linking what they say (:mod:`.linking`).

    What counts is learned from the other comparisons, as by agreement. Every pair of things that the comparisons' texts
    say then votes, as likely as it is the pair that counts. Without two things to link, every verdict is a tie.

    Args:
        comparisons: to give verdicts on, without their labels, all at once.
        kinds: the kind of each of their queries, as a clustering of queries would find it.
        others: comparisons whose texts are counted.
        kinds_seen: the kind of each of their queries.
        likeness: how alike two sentences are; by default how they look.
    """
    known, new = linking.two_sets(_texts(others), _texts(comparisons))
    if len(known.groups) < 2:
        return np.zeros(len(comparisons))
    weights = linking.links(known, new, likeness)
    seen = known.grades[0::2] - known.grades[1::2]
    tested = new.grades[0::2] - new.grades[1::2]

    # Each rule counts two things alike.
    firsts, seconds = np.array(list(permutations(range(len(new.groups)), 2))).T
    things = np.eye(len(new.groups))
    by_rule = _signs(tested @ (things[firsts] + things[seconds]).T)
    where = np.array(kinds_seen)
    leads = np.zeros(len(comparisons))
    for kind in set(kinds):
        together = leading_eigenvector(seen[where == kind])
        first, second = np.argsort(-together, kind="stable")[:2]
        inside = np.array(kinds) == kind
        leads[inside] = _most_votes(by_rule[inside], weights[first, firsts] * weights[second, seconds])
    return leads


def _texts(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the texts of all responses, those of a comparison one after the other."""
    return [text for comparison in comparisons for text in (comparison.response_a, comparison.response_b)]


def _group_leads(groups: Sequence[frozenset[str]], comparisons: Sequence[Comparison]) -> "Floats":
    """Return which groups of phrases A shows and B does not: 1, 0 or -1 [comparison, group]."""
    shown_a = counting.shown(groups, [comparison.response_a for comparison in comparisons])
    shown_b = counting.shown(groups, [comparison.response_b for comparison in comparisons])
    return shown_a - shown_b


def verdicts(leads: "Floats") -> list[Verdict]:
    """Return the verdicts of leads [comparison]: A above 0, B below, a tie within :data:`ROUNDING`."""
    named: dict[float, Verdict] = {1.0: "A", 0.0: "tie", -1.0: "B"}
    return [named[sign] for sign in _signs(leads).tolist()]


def _signs(leads: "Floats") -> "Floats":
    """Return the signs of leads; 0 within :data:`ROUNDING`."""
    return np.where(np.abs(leads) < ROUNDING, 0.0, np.sign(leads))


def agreement(leads: "Floats", reading: PerfectReading) -> float:
    """Return the share of comparisons in which the leads give the label, ties too."""
    return float(np.mean(_signs(leads) == reading.labels))


def without_labels(world: World, reading: PerfectReading, seen: PerfectReading, seed: int) -> dict[str, "Floats"]:
    """Return the leads of the floors that need no label, by name.

    Args:
        world: the world of the comparisons.
        reading: the comparisons to give verdicts on.
        seen: others that may be looked at, without their labels.
        seed: the seed of random verdicts and of the annotator's lists.
    """
    names = list(world.language.properties)
    count = len(reading.kinds)
    rng = np.random.default_rng(seed)
    named = _named(world, random.Random(seed))
    shown = _by_kind(seen.kinds, seen.shown)
    moved = _by_kind(seen.kinds, np.abs(seen.leads))
    # The decoy is what an annotator thinks of first, and counts for nothing.
    decoys = [names.index(world.deciding[kind].decoy) for kind in reading.kinds]
    floors = {
        "always_tie": np.zeros(count),
        "random": rng.choice([-1.0, 0.0, 1.0], count),
        "longer": reading.longer,
        "shorter": -reading.longer,
        "how_many_shown": np.sign(reading.leads).sum(axis=1),
        "sum_of_all": reading.leads.sum(axis=1),
        "decoy": reading.leads[np.arange(count), decoys],
        "better_writer": _by_writer(seen, reading),
        "writers_differ_in": _by_differences_of_writers(seen, reading),
    }
    # Whoever calls a tie unless one response shows two properties more.
    how_many = floors["how_many_shown"]
    floors["two_more_shown"] = np.where(np.abs(how_many) <= 1, 0.0, how_many)
    for rule, by_kind in (("named", named), ("shown", shown), ("moved", moved)):
        most = _some(reading, by_kind, FEW)
        least = _some(reading, {kind: -values for kind, values in by_kind.items()}, FEW)
        floors |= {f"{rule}_most": most, f"{rule}_least": least, f"{rule}_least_reversed": -least}
    for place, name in enumerate(names):
        floors[f"only_{name}"] = reading.leads[:, place]
    return floors


def with_labels(reading: PerfectReading, labelled: PerfectReading) -> dict[str, "Floats"]:
    """Return the leads of the floors that are fitted to labelled comparisons, by name.

    Args:
        reading: the comparisons to give verdicts on.
        labelled: the comparisons that the rules are fitted to.
    """
    # A kind has but a few labels, so that its weights are drawn towards those of all kinds.
    pooled = _ridge(labelled.leads, labelled.labels, np.zeros(labelled.leads.shape[1]))
    by_kind = {kind: _of_kind(labelled, kind, pooled) for kind in set(reading.kinds)}
    best = {kind: _single(labelled, kind) for kind in set(reading.kinds)}
    # Whether longer or shorter responses are preferred is fitted, too.
    longer = np.sign(np.sum(labelled.longer * labelled.labels))
    ridge_by_kind = []
    best_by_kind = []
    for leads, kind in zip(reading.leads, reading.kinds, strict=True):
        ridge_by_kind.append(leads @ by_kind[kind])
        best_by_kind.append(leads[best[kind]])
    return {
        "ridge": _decided(reading.leads @ pooled),
        "ridge_by_kind": _decided(np.array(ridge_by_kind)),
        "best_property_by_kind": np.array(best_by_kind),
        "sparse_vote_by_kind": by_vote(reading, labelled, *_sparse_rules(reading.leads.shape[1])),
        "length": longer * reading.longer,
    }


def _ordered_pairs(count: int) -> "Floats":
    """Return the weights of all rules of the world's shape [rule, property]: one property counts 2, another 1."""
    rules = []
    for primary, secondary in permutations(range(count), 2):
        weights = np.zeros(count)
        weights[primary] = 2.0
        weights[secondary] = 1.0
        rules.append(weights)
    return np.array(rules)


@cache
def _sparse_rules(count: int) -> tuple["Floats", "Floats"]:
    """Return rules that count up to :data:`MOST_COUNTED` properties once or twice, and what speaks for each at first.

    Nothing here knows how many properties count in this world, nor how much.
    """
    rules = []
    expected = []
    for counted in range(1, MOST_COUNTED + 1):
        for chosen in combinations(range(count), counted):
            for values in product((1.0, 2.0), repeat=counted):
                weights = np.zeros(count)
                weights[list(chosen)] = values
                rules.append(weights)
                expected.append(-SPARSENESS * counted)
    return np.array(rules), np.array(expected)


def by_vote(reading: PerfectReading, labelled: PerfectReading, rules: "Floats", expected: "Floats") -> "Floats":
    """Return verdicts [comparison] by a vote of rules for each kind, fitted to the kind's own labels.

    Args:
        reading: the comparisons to give verdicts on.
        labelled: the comparisons whose labels weigh the rules.
        rules: weights [rule, property].
        expected: what speaks for each rule before any label, as a logarithm [rule].
    """
    leads = np.zeros(len(reading.kinds))
    for kind in set(reading.kinds):
        inside = np.array(reading.kinds) == kind
        leads[inside] = _vote(rules, expected, reading.leads[inside], *_labelled_of(labelled, kind))
    return leads


def _labelled_of(labelled: PerfectReading, kind: str) -> tuple["Floats", "Floats"]:
    """Return the leads and the labels of the labelled comparisons of a kind."""
    inside = np.array(labelled.kinds) == kind
    return labelled.leads[inside], labelled.labels[inside]


def _vote(rules: "Floats", expected: "Floats", leads: "Floats", labelled_leads: "Floats", labels: "Floats") -> "Floats":
    """Return verdicts [comparison] by the vote of rules, each weighed by how many labels it gets right.

    Args:
        rules: weights [rule, property].
        expected: what speaks for each rule before any label, as a logarithm [rule].
        leads: [comparison, property].
        labelled_leads: [labelled comparison, property].
        labels: [labelled comparison].
    """
    # For each rule, the labels that it gives.
    right = (_signs(labelled_leads @ rules.T) == labels[:, None]).sum(axis=0)
    belief = expected + CONFIDENCE * right

    # Less the largest, lest exponentials overflow; shares of the vote stay the same.
    weights = np.exp(belief - belief.max())
    return _most_votes(_signs(leads @ rules.T), weights)


def _most_votes(by_rule: "Floats", weights: "Floats") -> "Floats":
    """Return the verdict with the most votes [comparison], from those of rules [comparison, rule] and their weights."""
    verdicts_of_sign = np.array([-1.0, 0.0, 1.0])
    votes = np.stack([(by_rule == sign) @ weights for sign in verdicts_of_sign], axis=1)
    return verdicts_of_sign[votes.argmax(axis=1)]


def ceilings(world: World, reading: PerfectReading) -> dict[str, "Floats"]:
    """Return the leads of perfect readers who know what counts: the primary property, both alike, and the rule."""
    names = list(world.language.properties)
    rows = np.arange(len(reading.kinds))
    primary_places = [names.index(world.deciding[kind].primary) for kind in reading.kinds]
    secondary_places = [names.index(world.deciding[kind].secondary) for kind in reading.kinds]
    primary = reading.leads[rows, primary_places]
    secondary = reading.leads[rows, secondary_places]
    return {"primary": primary, "both_alike": primary + secondary, "rule": 2 * primary + secondary}


def _named(world: World, rng: random.Random) -> dict[str, "Floats"]:
    """Return how often the annotator names each property among the first, by kind of query."""
    names = list(world.language.properties)
    decoys = {kind: deciding.decoy for kind, deciding in world.deciding.items()}
    annotator = Annotator(world.language, 0.0, decoys)
    by_kind = {}
    for query in world.language.first_queries:
        kind = world.language.kind_of(query)
        if kind in by_kind:
            continue
        counts = Counter[str]()
        for _ in range(LISTS):
            lines = annotator.criteria(query, FEW, rng).splitlines()
            counts.update(criterion_name(line.partition(". ")[2]) for line in lines)
        by_kind[kind] = np.array([float(counts[name]) for name in names])
    return by_kind


def _by_kind(kinds: Sequence[str], values: "Floats") -> dict[str, "Floats"]:
    """Return the mean of the values over the comparisons of each kind."""
    where = np.array(kinds)
    return {kind: values[where == kind].mean(axis=0) for kind in set(kinds)}


def _some(reading: PerfectReading, by_kind: Mapping[str, "Floats"], count: int) -> "Floats":
    """Return the leads by the properties that stand highest for the query's kind, together."""
    chosen = {kind: np.argsort(-values, kind="stable")[:count] for kind, values in by_kind.items()}
    return np.array([lead[chosen[kind]].sum() for lead, kind in zip(reading.leads, reading.kinds, strict=True)])


def _by_writer(seen: PerfectReading, reading: PerfectReading) -> "Floats":
    """Return the leads by writers: the better writer showed more than the other in more of the seen comparisons."""
    wins = Counter[str]()
    # Without their labels: who shows more is taken to be better.
    signs = np.sign(seen.leads.sum(axis=1))
    for (writer_a, writer_b), sign in zip(seen.writers, signs, strict=True):
        wins[writer_a] += sign
        wins[writer_b] -= sign
    return np.array([float(wins[writer_a] - wins[writer_b]) for writer_a, writer_b in reading.writers])


def _by_differences_of_writers(seen: PerfectReading, reading: PerfectReading) -> "Floats":
    """Return the leads by the two properties of a kind that the better writers show more than the worse ones.

    Who is better is taken from who shows more over all comparisons.
    """
    wins = Counter[str]()
    for (writer_a, writer_b), lead in zip(seen.writers, seen.leads.sum(axis=1), strict=True):
        wins[writer_a] += lead
        wins[writer_b] -= lead
    ranks = {writer: rank for rank, (writer, _) in enumerate(reversed(wins.most_common()))}
    better = np.array([float(ranks[writer_a] - ranks[writer_b]) for writer_a, writer_b in seen.writers])
    where = np.array(seen.kinds)
    differences = {}
    for kind in set(seen.kinds):
        inside = where == kind
        differences[kind] = better[inside] @ seen.leads[inside]
    return _some(reading, differences, 2)


def _ridge(leads: "Floats", labels: "Floats", expected: "Floats") -> "Floats":
    """Return weights [property] fitted to labels by ridge regression, drawn towards the expected ones.

    Args:
        leads: [comparison, property].
        labels: [comparison].
        expected: weights [property].
    """
    gram = leads.T @ leads + RIDGE * np.eye(leads.shape[1])
    return expected + np.linalg.solve(gram, leads.T @ (labels - leads @ expected))


def _of_kind(labelled: PerfectReading, kind: str, pooled: "Floats") -> "Floats":
    """Return weights fitted to the labels of one kind, or those of all kinds together where it has no label."""
    inside = np.array(labelled.kinds) == kind
    if not inside.any():
        return pooled
    return _ridge(labelled.leads[inside], labelled.labels[inside], pooled)


def _single(labelled: PerfectReading, kind: str) -> int:
    """Return the place of the property that agrees most often with the labels of a kind."""
    inside = np.array(labelled.kinds) == kind
    # A kind without a label takes the property that is best over all kinds.
    rows = inside if inside.any() else np.ones(len(inside), dtype=bool)
    right = np.sign(labelled.leads[rows]) == labelled.labels[rows, None]
    return int(np.argmax(right.mean(axis=0)))


def _decided(leads: "Floats", tie: float = 0.25) -> "Floats":
    """Return leads of a regression, with 0 for those up to ``tie``: a quarter of the lead that A has over a tie."""
    return np.where(np.abs(leads) > tie, leads, 0.0)
