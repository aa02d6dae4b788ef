"""Random pairs of responses by different models (branching paper, A.1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.schema import Comparison, Dialogue


def pair(
    dialogues: Iterable[Dialogue], responses: Mapping[str, Mapping[str, str]], seed: int, dropped: Counter[str]
) -> Iterator[Comparison]:
    """One comparison a dialogue: two different models at random, in random order.

    ``responses``: model -> dialogue id -> text. Empty and identical responses are left out and counted. The draw
    depends on the seed and the dialogue's id alone.
    """
    for dialogue in dialogues:
        available = sorted(model for model, texts in responses.items() if texts.get(dialogue.id, "").strip())
        if len(available) < 2:
            dropped["empty_response"] += 1
            continue
        rng = random.Random(derive_seed(seed, dialogue.id))
        model_a, model_b = rng.sample(available, 2)
        a, b = (responses[model][dialogue.id].strip() for model in (model_a, model_b))
        if a == b:
            dropped["identical_responses"] += 1
            continue
        yield Comparison(dialogue.id, dialogue, a, b, model_a, model_b, None, dialogue.category)
