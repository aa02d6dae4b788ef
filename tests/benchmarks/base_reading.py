"""How rightly a base reads responses of each shape, by criteria of the quickstart's world, before it is a judge.

    python -m tests.benchmarks.base_reading                       # the shipped base
    python -m tests.benchmarks.base_reading --model DIR --n 96    # another, as phases of pretraining leave it

Each comparison is asked about greedily, in the form of the pretraining text. Of those in which a faithful reviewer sees
a difference: how many are read rightly, and how many the wrong way round (the rest as equal, or not at all).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from judgetrain.data.contrast import sentences
from judgetrain.data.world.annotator import Annotator
from judgetrain.data.world.language import Language, load_language
from judgetrain.data.world.splits import pretraining_queries
from judgetrain.data.world.writers import write_response
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.registry import make_engine
from judgetrain.judges.prompting.parsing import parse_judgment
from tests.benchmarks.common import parser_of

GREEDY = Sampling(temperature=0.0, max_new_tokens=64)
Shaped = Callable[[str, str, random.Random], tuple[str, str]]
SHAPES: dict[str, Shaped] = {
    "as the world's writers write": lambda a, b, rng: (a, b),
    'one is "", ".", ":" or a few words': lambda a, b, rng: (rng.choice(["", ".", ":", "what i think :", "answer"]), b),
    "one is an opening sentence": lambda a, b, rng: (sentences(a)[0], b),
    "both are two sentences long": lambda a, b, rng: (_two(a, rng), _two(b, rng)),
    "one is set as a list": lambda a, b, rng: ("\n".join(f"1. {each}" for each in sentences(a)), b),
}


def _two(text: str, rng: random.Random) -> str:
    return " ".join(rng.sample(sentences(text), 2))


def cases(language: Language, shape: Shaped, n: int, rng: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Queries, criteria (six in ten on something that the responses differ in) and responses, in either order."""
    pool = pretraining_queries(language)
    for _ in range(n):
        query = rng.choice(pool)
        pair = list(shape(*(write_response(language, query, rng.uniform(0.2, 0.9), rng) for _ in range(2)), rng))
        rng.shuffle(pair)
        differ = [name for name in language.properties if len({language.grade(text, name) for text in pair}) > 1]
        name = rng.choice(differ) if differ and rng.random() < 0.6 else rng.choice(list(language.properties))
        yield query, rng.choice(language.properties[name].criteria), pair[0], pair[1]


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="world")
    parser.add_argument("--n", type=int, default=96, help="comparisons of a shape")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    language = load_language()
    faithful = Annotator(language, error_rate=0.0, bare_is_worst=True)
    engine = make_engine(TransformersEngineConfig(model=ModelConfig(path=options.model), batch_size=32), name="base")
    print("| responses | of decided ones read rightly % | the wrong way round % | decided |\n| --- | --- | --- | --- |")
    for title, shape in SHAPES.items():
        rng = random.Random(f"{options.seed} {title}")
        asked, wanted = [], []
        for query, criterion, a, b in cases(language, shape, options.n, rng):
            guideline = faithful.sound_guideline(criterion)
            prompt = (
                f"Review the responses.\nQuery: {query}\nCriterion: {criterion}\nGuideline: {guideline}\n"
                f"Response A: {a}\nResponse B: {b}\nJudge by: {criterion}"
            )
            asked.append(Request(messages=({"role": "user", "content": prompt},), sampling=GREEDY))
            wanted.append(_sign(faithful.judgment(criterion, guideline, a, b, rng)))
        said = [_sign(answer.text) for answer in engine.generate(asked, seed=options.seed)]
        decided = [(want, got) for want, got in zip(wanted, said, strict=True) if want]
        right, wrong = (sum(got == sign * want for want, got in decided) for sign in (1, -1))
        print(f"| {title} | {100 * right / len(decided):.1f} | {100 * wrong / len(decided):.1f} | {len(decided)} |")


def _sign(judgment: str) -> int | None:
    """Which response a judgment's scores prefer: 1 the first, -1 the second, 0 neither; None: it cannot be read."""
    read = parse_judgment(judgment)
    if read.first is None or read.second is None:
        return None
    return (read.first > read.second) - (read.first < read.second)


if __name__ == "__main__":
    main()
