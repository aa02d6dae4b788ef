"""Stage ``responses``: several models answer the sampled dialogues, and their answers are paired at random (A.1).

Or pairs are constructed so that their better side is known: a good answer, and one that is worse by how it is made. A
good answer to a similar but other query is the rejected side in "Self-Taught Evaluators" (Wang et al. 2024,
arXiv:2408.02666, section 3.2). Which side stands first is drawn, and every pair says how it was made.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.stages import ResponsesSettings
from judgetrain.data.world import with_truth
from judgetrain.data.world.rule import load_world
from judgetrain.engines.answers import Budget, answers_of, spending
from judgetrain.engines.base import Request, Sampling, shard_of
from judgetrain.engines.config import EngineConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.errors import DataError, causes
from judgetrain.schema import Comparison, Dialogue

SHARD = 256
HINTS = {
    "no_responses": "name models in responses.models, or the columns of the responses in dialogues.sources[].fields",
    "empty_response": "look at the models' answers in responses-*.jsonl (do prompts fit?), or at the sources' rows",
    "too_long": "pairs have more text than responses.max_chars allows: raise it",
    "identical_responses": "both responses say the same: raise responses.sampling.temperature, or name other models",
}
"""What helps where no comparison is left, by the reason."""


def run(settings: ResponsesSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``comparisons.jsonl``; with response models, also their answers as ``responses-MODEL`` shards."""
    sample = [Dialogue.from_row(row) for row in read_rows(inputs["cluster"], "sample")]
    dropped: Counter[str] = Counter()
    models = settings.responses.models
    responses = _answers(sample, settings, out) if models else {}
    made = _constructed(settings.responses.contrast, sample, responses, inputs, out)
    left = [d for d in sample if d.id not in made]
    if models:
        rules = [source.rule for source in settings.sources if source.type == "world" and source.rule is not None]
        world = load_world(rules[0] if rules else settings.seed)
        made |= {c.id: with_truth(world, c) for c in pair(left, responses, out.seed, dropped)}
        places = {d.id: i for i, d in enumerate(sample)}
        comparisons = sorted(made.values(), key=lambda c: places[c.id])
    else:
        comparisons = [*made.values(), *_existing(inputs["dialogues"], {d.id for d in left}, dropped)]
    if limit := settings.responses.max_chars:
        short = [c for c in comparisons if c.characters <= limit]
        dropped["too_long"] += len(comparisons) - len(short)
        comparisons = short
    if not comparisons:
        raise DataError(f"no comparison could be made of {len(sample)} dialogues: {causes(dropped, HINTS, '')}")
    out.write_rows("comparisons", (c.to_row() for c in comparisons))
    out.note("pairs", {"comparisons": len(comparisons), **dropped})
    if not models:
        out.count(in_=len(sample), out=len(comparisons))
    out.count(dropped=dropped)


def _answers(sample: Sequence[Dialogue], settings: ResponsesSettings, out: StageRun) -> dict[str, dict[str, str]]:
    """The models' answers, by model and dialogue id; a single model answers twice, with other seeds."""
    responses, cut, models = {}, {}, settings.responses.models
    twice = [(f"{model.name}-{i}", model.engine) for model in models for i in (1, 2)]
    writers = twice if len(models) == 1 else [(model.name, model.engine) for model in models]
    with spending([m.engine for m in models], settings.responses, "responses", out) as budget:
        for name, engine in writers:
            _answer(name, engine, sample, settings, out, budget if engine.paid else None)
            rows = list(read_rows(out.directory, f"responses-{name}"))
            responses[name] = {row["dialogue_id"]: row["text"] for row in rows}
            cut[name] = sum(row["finish_reason"] == "length" for row in rows)
    out.note("cut_at_max_new_tokens", cut)
    return responses


def _constructed(
    kinds: Sequence[str],
    sample: Sequence[Dialogue],
    responses: Mapping[str, Mapping[str, str]],
    inputs: Mapping[str, Path],
    out: StageRun,
) -> dict[str, Comparison]:
    """The pairs whose better side is known by how they are made, by dialogue; none where none are asked for.

    Good answers are those of the models; without models the references, and of labelled comparisons the better side.
    """
    if not kinds:
        return {}
    texts, labelled = responses, set[str]()
    if not texts:
        better = {d.id: d.reference for d in sample if d.reference}
        for found in map(Comparison.from_row, read_rows(inputs["dialogues"], "comparisons")):
            if found.label in ("A", "B"):
                better.setdefault(found.dialogue.id, found.response_a if found.label == "A" else found.response_b)
            if found.label or found.rating_a:
                labelled.add(found.dialogue.id)
        texts = {"reference": better}
    made, counts = constructed(kinds, sample, texts, inputs["cluster"], out.seed, labelled)
    if not responses:  # the good side is the reference: a judge that is shown it would have nothing to learn
        made = {name: replace(c, dialogue=replace(c.dialogue, reference=None)) for name, c in made.items()}
    facts = dict(sorted(counts.items()))
    out.note("contrast", facts)
    out.log(f"responses: {len(made)} of {len(sample)} pairs constructed: {json.dumps(facts)}")
    return made


def _answer(
    name: str,
    config: EngineConfig,
    dialogues: Sequence[Dialogue],
    settings: ResponsesSettings,
    out: StageRun,
    budget: Budget | None,
) -> None:
    limits = Sampling.of(settings.responses.sampling)

    def request(dialogue: Dialogue) -> Request:
        messages = tuple({"role": m.role, "content": m.content} for m in dialogue.messages)
        return Request(messages=messages, sampling=limits, slots={"query": dialogue.query, "context": dialogue.context})

    # The name is part of the seed: two that ask one model alike are to answer differently.
    answers = answers_of(config, out.home, derive_seed(settings.seed, name))
    with loaded_once(lambda: make_engine(config, name=name, answers=answers, budget=budget)) as engine:

        def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
            done = engine().generate([request(d) for d in items], derive_seed(out.shard_seed(index), name))
            return shard_of([{"dialogue_id": d.id, "model": name} for d in items], done)

        copy, spread = config.gpus, budget is None  # a model of 72B beside others makes no worker of theirs larger
        out.sharded(f"responses-{name}", dialogues, SHARD, process, "responses", engine, spread=spread, gpus=copy)


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
        about, rubric = replace(dialogue, rubric=None), dialogue.rubric
        yield Comparison(dialogue.id, about, a, b, model_a, model_b, None, dialogue.category, rubric=rubric)


def _existing(directory: Path, sampled: set[str], dropped: Counter[str]) -> Iterator[Comparison]:
    unanswered = set(sampled)
    for comparison in map(Comparison.from_row, read_rows(directory, "comparisons")):
        if comparison.dialogue.id not in sampled:
            continue
        unanswered.discard(comparison.dialogue.id)
        a, b = comparison.response_a.strip(), comparison.response_b.strip()
        if not a or not (b or comparison.alone):
            dropped["empty_response"] += 1
        elif a == b:
            dropped["identical_responses"] += 1
        else:
            yield comparison
    if unanswered:
        dropped["no_responses"] += len(unanswered)


MOST_ERRORS = 3
"""Numbers that are changed in one answer."""
STEPS = (1, 2, 3, 10)
"""By how much: up as often as down, to as many digits, or the larger or the longer number would be the wrong one."""
NUMBER = re.compile(r"(?<![\w.,])\d+(?![\w]|[.,]\d)")
"""A whole number, which is no part of a word or of a longer number."""
LEAST_WORDS = 4
"""Words of a sentence that can be put in another order."""
MOST_SIMILAR = 0.7
"""Queries with a larger cosine may have answers that are as good, and are no neighbours (docs/real_text.md)."""

Texts = Mapping[str, Mapping[str, str]]
"""Answers by who wrote them and by dialogue id."""


class Neighbours:
    """The dialogues of a sample by how near their queries are, by the embeddings of stage cluster."""

    def __init__(self, directory: Path, dialogues: Sequence[Dialogue]) -> None:
        places = {row["id"]: number for number, row in enumerate(read_rows(directory, "clusters"))}
        rows = [places[dialogue.id] for dialogue in dialogues]
        self._dialogues, self._numbers = dialogues, {d.id: i for i, d in enumerate(dialogues)}
        self._embeddings = np.asarray(np.load(directory / "embeddings.npy", mmap_mode="r")[rows], dtype=np.float32)

    def of(self, dialogue: Dialogue) -> Iterator[Dialogue]:
        """The others, the nearest first, but those whose cosine is above :data:`MOST_SIMILAR`.

        Of another category, where the dialogue has one: a good answer to a query of the same kind may be as good here
        (docs/training.md has the counts).
        """
        cosine = self._embeddings @ self._embeddings[self._numbers[dialogue.id]]
        for i in np.argsort(-cosine, kind="stable"):
            other = self._dialogues[i]
            same = dialogue.category and other.category == dialogue.category
            if cosine[i] <= MOST_SIMILAR and not same and other.query.strip() != dialogue.query.strip():
                yield other


def constructed(
    kinds: Sequence[str], dialogues: Sequence[Dialogue], texts: Texts, cluster: Path, seed: int, leave: Collection[str]
) -> tuple[dict[str, Comparison], Counter[str]]:
    """Labelled pairs by dialogue, and counts: of pairs by kind, and as ``KIND:REASON`` of what could not be made.

    A dialogue gets a pair of the first of the kinds (``responses.contrast``), tried in a drawn order, for which one can
    be made; where several wrote a good answer, whose it is is drawn, and so is which side stands first: by the seed and
    the dialogue's id alone. ``texts`` are good answers, ``cluster`` is the directory of stage cluster. The ids to
    ``leave`` get none; what is said in them still serves other queries.
    """
    neighbours = Neighbours(cluster, dialogues) if "nearby" in kinds else None
    found, counts = dict[str, Comparison](), Counter[str]()
    for dialogue in dialogues:
        rng = random.Random(derive_seed(seed, "contrast", dialogue.id))
        for kind in rng.sample(kinds, len(kinds)) if dialogue.id not in leave else ():
            writers = sorted(name for name, said in texts.items() if said.get(dialogue.id, "").strip())
            if not writers:
                counts[f"{kind}:no_good_answer"] += 1
                continue
            said = texts[writer := rng.choice(writers)]
            good = said[dialogue.id].strip()
            if neighbours and kind == "nearby":
                others = ((other.id, said.get(other.id, "").strip()) for other in neighbours.of(dialogue))
                worse = next(((text, f"an answer to {name}") for name, text in others if text and text != good), None)
                lacking = "no_neighbour"
            else:
                worse, lacking = _other_numbers(good, rng) or _other_order(good, rng), "no_place_for_errors"
            if worse is None:
                counts[f"{kind}:{lacking}"] += 1
                continue
            counts[kind] += 1
            bad, how = worse
            about = dialogue.id, replace(dialogue, rubric=None), good, bad, writer, writer
            told = f"{kind}: {how}"
            pair = Comparison(*about, label="A", group=dialogue.category, made=told, rubric=dialogue.rubric)
            found[dialogue.id] = pair if rng.random() < 0.5 else pair.swapped()
            break
    longer = ((len(c.response_a) > len(c.response_b)) == (c.label == "A") for c in found.values())
    counts["better_is_longer"] = sum(longer)
    return found, counts


def sentences(text: str) -> list[str]:
    """The sentences of a text, by their closing marks; lines that end without one count, too."""
    return [found.strip() for found in re.split(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+", text) if found.strip()]


def _other_numbers(text: str, rng: random.Random) -> tuple[str, str] | None:
    """The text with at most ``MOST_ERRORS`` of its numbers changed, and what was put in for what.

    The number of an item in a list says nothing, and stays.
    """

    def counts_an_item(place: re.Match[str]) -> bool:
        line = text[: place.start()].rpartition("\n")[2]
        return not line.strip(" \t*#(->+") and re.match(r"[.):]\**(\s|$)", text[place.end() :]) is not None

    places = [place for place in NUMBER.finditer(text) if not counts_an_item(place)]
    changed: list[str] = []
    for place in sorted(rng.sample(places, min(len(places), MOST_ERRORS)), key=lambda p: -p.start()):
        wrong = wrong_number(place[0], rng)
        text = text[: place.start()] + wrong + text[place.end() :]
        changed.insert(0, f"{wrong} for {place[0]}")
    return (text, ", ".join(changed)) if changed else None


def wrong_number(digits: str, rng: random.Random) -> str:
    """Another whole number of as many digits, as often smaller as larger where there are such on either side."""
    right, up = int(digits), rng.choice((True, False))
    for side in (1, -1) if up else (-1, 1):
        near = [found for step in STEPS if (found := right + side * step) >= 0]
        if fitting := [found for found in near if len(str(found)) == len(str(right))]:
            return str(rng.choice(fitting))
    raise AssertionError("every number has a neighbour of as many digits")


def _other_order(text: str, rng: random.Random) -> tuple[str, str] | None:
    for sentence in rng.sample(found := sentences(text), len(found)):
        words = sentence.split()
        other = rng.sample(words, len(words))
        if len(words) >= LEAST_WORDS and other != words:
            return text.replace(sentence, " ".join(other), 1), "the words of a sentence in another order"
    return None
