"""A judge of the quickstart asked as a user would: one comparison of two short answers at a time, greedily.

    python -m tests.benchmarks.short_answers outputs/artifacts/dpo/FINGERPRINT --branches 1 3 10

Each answer is two sentences long: one shows what matters most for its query and then chats, the other shows something
that is off its topic. Prints how many verdicts are right in both orders, ties, and how many are not readable or differ
between the orders, with the first few comparisons as they were judged.
"""

from __future__ import annotations

import random
from collections import Counter

from scipy.stats import binomtest

from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import queries
from judgetrain.data.world.writers import sentence
from judgetrain.judges import Comparison, load_judge
from tests.benchmarks.common import parser_of


def comparisons(n: int, seed: int) -> list[Comparison]:
    """Held-out queries with a good and a bad answer, in either place."""
    language, rng = load_language(), random.Random(seed)
    found = []
    for query in rng.sample(list(queries("heldout")), n):
        kind = language.kinds[language.kind_of(query)]
        chat = rng.choice(language.fillers).format(thing=rng.choice(language.things))
        good = f"{sentence(language, kind.primary, 2, rng)} {chat}"
        bad = sentence(language, rng.choice(kind.off_topic), 2, rng)
        first = rng.random() < 0.5
        a, b = (good, bad) if first else (bad, good)
        found.append(Comparison.of(query, a, b, id=str(len(found)), label="A" if first else "B"))
    return found


def _kind(verdict: str, label: str) -> str:
    """What a verdict over both orders is beside the label."""
    if verdict == label:
        return "right"
    return {"tie": "tie", "A": "wrong", "B": "wrong"}.get(verdict, "none")


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("judge")
    parser.add_argument("--branches", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--show", type=int, default=3)
    options = parser.parse_args()
    asked = comparisons(options.n, options.seed)
    print("| branches | right % (95% interval) | right | tie | wrong | no verdict |\n" + "| --- " * 6 + "|")
    shown = []
    for k in options.branches:
        judge = load_judge(options.judge, branches=k)
        said = [judge.compare(each).verdict for each in asked]
        judge.close()
        kinds = Counter(_kind(verdict, str(each.label)) for verdict, each in zip(said, asked, strict=True))
        ends = binomtest(kinds["right"], len(asked)).proportion_ci(method="wilson")
        share = f"{100 * kinds['right'] / len(asked):.1f} ({100 * ends.low:.1f}–{100 * ends.high:.1f})"
        print(f"| {k} | {share} | {kinds['right']} | {kinds['tie']} | {kinds['wrong']} | {kinds['none']} |", flush=True)
        shown = said
    for each, verdict in list(zip(asked, shown, strict=True))[: options.show]:
        print(
            f"\n{each.dialogue.query}\n  A: {each.response_a}\n  B: {each.response_b}\n  {verdict}, label {each.label}"
        )


if __name__ == "__main__":
    main()
