"""What rules that judge nothing reach on the generated world, beside the ceilings: the table of docs/world.md.

    python -m tests.benchmarks.world_floors --rules 1 2 3 4 5 --n 300

No model and no training. Every rule is another world. Agreement in % with the truth, ties too, mean ± standard
deviation over rules. What is fitted is fitted to other comparisons than those that are counted.
"""

import random
from statistics import mean, stdev

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import WRITER_SKILLS, eval_comparisons, queries
from judgetrain.data.world.floors import agreement, ceilings, read, with_labels, without_labels
from judgetrain.data.world.rule import World, load_world
from judgetrain.schema import Comparison, Dialogue, Message
from tests.benchmarks.common import parser_of

LABELS = 70
UNLABELLED = 2200


def training_comparisons(world: World, seed: int, count: int) -> list[Comparison]:
    """Return comparisons as stage responses makes them, labelled by the truth."""
    rng = random.Random(f"floors {seed}")
    comparisons = []
    for number, query in enumerate(rng.sample(queries("train"), count)):
        names = rng.sample(list(WRITER_SKILLS), 2)
        response_a, response_b = (world.respond(query, WRITER_SKILLS[name], rng) for name in names)
        label = world.verdict(query, response_a, response_b)
        dialogue = Dialogue(f"floor{number}", "world", (Message("user", query),))
        comparisons.append(Comparison(dialogue.id, dialogue, response_a, response_b, *names, label))
    return comparisons


def of_rule(rule: int, n: int) -> dict[str, dict[str, float]]:
    """Return the agreement of every floor and ceiling on the held-out comparisons of a rule, by what they need."""
    world = load_world(rule)
    tested = read(world, eval_comparisons(WorldConfig(eval_comparisons=n, rule=rule), rule))
    others = training_comparisons(world, rule, UNLABELLED)
    seen = read(world, others)
    labelled = read(world, others[:LABELS])
    tables = {
        "no label": without_labels(world, tested, seen, rule),
        f"{LABELS} labels": with_labels(tested, labelled),
        f"{UNLABELLED} labels": with_labels(tested, seen),
        "the rule": ceilings(world, tested),
    }
    found = {}
    for needs, floors in tables.items():
        found[needs] = {name: agreement(leads, tested) for name, leads in floors.items()}
    return found


def main() -> None:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--rules", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--n", type=int, default=300)
    options = parser.parse_args()
    found = [of_rule(rule, options.n) for rule in options.rules]
    print(f"| needs | rule | agreement %, rules {', '.join(map(str, options.rules))}, n = {options.n} each |")
    print("| --- | --- | --- |")
    for needs, floors in found[0].items():
        rows = {name: [100 * by_rule[needs][name] for by_rule in found] for name in floors}
        for name, values in sorted(rows.items(), key=lambda row: -mean(row[1])):
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            print(f"| {needs} | {name} | {mean(values):.1f}{spread} |")


if __name__ == "__main__":
    main()
