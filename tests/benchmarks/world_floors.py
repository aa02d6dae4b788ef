"""What rules that judge nothing reach on the generated world, beside the ceilings: the table of docs/world.md.

    python -m tests.benchmarks.world_floors --rules 1 2 3 4 5 --n 300

No model and no training. Every rule is another world. Agreement in % with the truth, ties too, mean ± standard
deviation over rules. What is fitted is fitted to other comparisons than those that are counted, but for `surface`:
a logistic regression on words and lengths, cross-validated on the counted ones' own labels, over all kinds of query
and for each kind by itself.
"""

from statistics import mean, stdev

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.data.world.floors import agreement, all_floors, read
from judgetrain.data.world.rule import load_world
from judgetrain.judges.kinds.baselines import SurfaceJudge
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of


def of_rule(rule: int, n: int, surface: bool = False) -> dict[str, dict[str, float]]:
    """Return the agreement of every floor and ceiling on the held-out comparisons of a rule, by what they need."""
    world = load_world(rule)
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=n, rule=rule), rule)
    tested = read(world, comparisons)
    found: dict[str, dict[str, float]] = {}
    for needs, floors in all_floors(world, comparisons, rule).items():
        found[needs] = {name: agreement(leads, tested) for name, leads in floors.items()}
    if surface:
        kinds = [[c for c in comparisons if c.group == kind] for kind in world.deciding]
        right_by_kind = [_surface(of_kind) * len(of_kind) for of_kind in kinds]
        found["their own labels"] = {"surface": _surface(comparisons), "surface_by_kind": sum(right_by_kind) / n}
    return found


def _surface(comparisons: list[Comparison]) -> float:
    """Return the agreement of the cross-validated regression on words and lengths."""
    predictions = SurfaceJudge().compare_all(comparisons)
    return mean(p.verdict_ab == c.label for p, c in zip(predictions, comparisons, strict=True))


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--n", type=int, default=300)
    options = parser.parse_args()
    found = [of_rule(rule, options.n, surface=True) for rule in options.rules]
    print(f"| needs | rule | agreement %, rules {', '.join(map(str, options.rules))}, n = {options.n} each |")
    print("| --- | --- | --- |")
    for needs, floors in found[0].items():
        rows = {name: [100 * by_rule[needs][name] for by_rule in found] for name in floors}
        for name, values in sorted(rows.items(), key=lambda row: -mean(row[1])):
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            print(f"| {needs} | {name} | {mean(values):.1f}{spread} |")


if __name__ == "__main__":
    main()
