"""Stage ``responses``: several models answer the sampled dialogues, and their answers are paired at random (A.1).

Or pairs are constructed so that their better side is known: a good answer, and one that is worse by how it is made. A
good answer to a similar but other query is the rejected side in "Self-Taught Evaluators" (Wang et al. 2024,
arXiv:2408.02666, section 3.2). Which side stands first is drawn, and every pair says how it was made.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from judgetrain.amounts import amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.losses import Losses
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.limits import fitting
from judgetrain.data.stages import ResponsesSettings
from judgetrain.data.votes import as_shown
from judgetrain.data.world import with_truth
from judgetrain.data.world.rule import load_world
from judgetrain.engines.answers import Budget, answers_of, spending
from judgetrain.engines.base import Request, Sampling, shard_of
from judgetrain.engines.config import EngineConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.errors import DataError, causes
from judgetrain.schema import Comparison, Dialogue
from judgetrain.thoughts import shown

SHARD = 256
"""Dialogues a shard of answers."""
HINTS = {
    "no_responses": "name models in responses.models, or the columns of the responses in dialogues.sources[].fields",
    "empty_response": "look at the models' answers in responses-*.jsonl (do prompts fit?), or at the sources' rows",
    "too_long": "pairs have more text than responses.max_chars allows: raise it",
    "identical_responses": "both responses say the same: raise responses.sampling.temperature, or name other models",
}
"""The remedy where no comparison is left, by the reason that dropped them."""

Texts = Mapping[str, Mapping[str, str]]
"""Answers by who wrote them and by dialogue id."""


def run(settings: ResponsesSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``comparisons.jsonl``; with response models, also their answers as ``responses-MODEL`` shards.

    Raises:
        DataError: no comparison is left; says why, and what to change.
    """
    sample = [Dialogue.from_row(row) for row in read_rows(inputs["cluster"], "sample")]
    dropped = Losses()
    models = settings.responses.models
    answers: dict[str, dict[str, str]] = {}
    if models:
        answers = _answers(sample, settings, out)
    constructed_pairs = _constructed(settings.responses.contrast, sample, answers, inputs, out)
    # Whoever has a constructed pair needs no drawn one.
    remaining = [dialogue for dialogue in sample if dialogue.id not in constructed_pairs]

    if models:
        # A check before the run makes sure that all sources of the world have one rule.
        rules = [source.rule for source in settings.sources if source.type == "world" and source.rule is not None]
        rule = settings.seed
        if rules:
            rule = rules[0]
        world = load_world(rule)
        drawn_pairs = {
            comparison.id: with_truth(world, comparison) for comparison in pair(remaining, answers, out.seed, dropped)
        }
        pairs = constructed_pairs | drawn_pairs
        # In the order of the sample, whichever way a pair was made.
        comparisons = [pairs[dialogue.id] for dialogue in sample if dialogue.id in pairs]
    else:
        ids = {dialogue.id for dialogue in remaining}
        comparisons = [*constructed_pairs.values(), *_existing(inputs["dialogues"], ids, dropped)]

    # After pairs are made: what is too long for a judge is a prompt with both responses.
    comparisons = fitting(comparisons, settings.responses.max_chars, dropped)
    for sentence in dropped.sentences(len(comparisons) + dropped.total(), HINTS):
        out.log(f"responses: {sentence}")
    if not comparisons:
        reasons = causes(dropped, HINTS, "")
        raise DataError(f"no comparison could be made of {amount(len(sample), 'dialogue')}: {reasons}")

    out.write_rows("comparisons", (comparison.to_row() for comparison in comparisons))
    out.note("pairs", {"comparisons": len(comparisons), **dropped})
    if not models:
        # With models, the shards of answers have been counted already.
        out.count(in_=len(sample), out=len(comparisons))
    out.count(dropped=dropped)


def _answers(sample: Sequence[Dialogue], settings: ResponsesSettings, out: StageRun) -> dict[str, dict[str, str]]:
    """Return the models' answers, by model and dialogue id; a single model answers twice, with two seeds."""
    models = settings.responses.models
    if len(models) == 1:
        name = models[0].name
        # Two names for one model, so that both answers stand side by side in all files.
        engines = {f"{name}-{number}": models[0].engine for number in (1, 2)}
    else:
        engines = {model.name: model.engine for model in models}

    answers: dict[str, dict[str, str]] = {}
    cut: dict[str, int] = {}
    with spending([model.engine for model in models], settings.responses, "responses", out) as budget:
        for name, engine in engines.items():
            # Only what costs money is counted.
            budget_of_writer = None
            if engine.paid:
                budget_of_writer = budget
            writer = _Writer(name, engine, settings, budget_of_writer)
            writer.answer(sample, out)
            rows = list(read_rows(out.directory, f"responses-{name}"))
            # What a reasoning model thought is no part of its answer.
            answers[name] = {row["dialogue_id"]: shown(row["text"]) for row in rows}
            # Answers that end in mid-sentence would teach a judge to look for that.
            cut[name] = sum(row["finish_reason"] == "length" for row in rows)
    out.note("cut_at_max_new_tokens", cut)
    return answers


@dataclass(frozen=True)
class _Writer:
    """A response model.

    Args:
        name: its name in comparisons, which is part of the seed.
        engine: the model.
        settings: of the stage.
        budget: limits what answers cost; None for a model that costs nothing.
    """

    name: str
    engine: EngineConfig
    settings: ResponsesSettings
    budget: Budget | None

    def answer(self, dialogues: Sequence[Dialogue], out: StageRun) -> None:
        """Write the answers to all dialogues as shards ``responses-NAME``."""
        config = self.engine
        name = self.name
        # The name is part of the seed: two writers that are one model are to answer differently.
        stored_answers = answers_of(config, out.home, derive_seed(self.settings.seed, name))
        with loaded_once(lambda: make_engine(config, name=name, answers=stored_answers, budget=self.budget)) as engine:

            def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
                requests = [self._request(dialogue) for dialogue in items]
                completions = engine().generate(requests, derive_seed(out.shard_seed(index), name))
                return shard_of([{"dialogue_id": dialogue.id, "model": name} for dialogue in items], completions)

            work = Work(
                process=process,
                load=engine,
                # What is spent is counted in one process.
                spread=self.budget is None,
                # Each model has workers of its own size: a large one does not enlarge those of the others.
                gpus=config.gpus,
            )
            out.sharded(f"responses-{name}", dialogues, SHARD, work, "responses")

    def _request(self, dialogue: Dialogue) -> Request:
        messages = tuple({"role": message.role, "content": message.content} for message in dialogue.messages)
        slots = {"query": dialogue.query, "context": dialogue.context}
        return Request(messages=messages, sampling=Sampling.of(self.settings.responses.sampling), slots=slots)


def _constructed(
    kinds: Sequence[str], sample: Sequence[Dialogue], answers: Texts, inputs: Mapping[str, Path], out: StageRun
) -> dict[str, Comparison]:
    """Return pairs whose better side is known by how they are made, by dialogue id.

    Args:
        kinds: the ways to make them (``responses.contrast``); none gives no pairs.
        sample: the dialogues.
        answers: the models' answers, which are the good ones. Without any, good answers are the references, and the
            better sides of labelled comparisons.
        inputs: the directories of the stages before.
        out: where counts are noted.
    """
    if not kinds:
        return {}
    good_answers = answers
    labelled: set[str] = set()
    if not answers:
        by_people, labelled = _good_answers(sample, inputs["dialogues"])
        good_answers = {"reference": by_people}
    neighbours = None
    if "nearby" in kinds:
        neighbours = Neighbours(inputs["cluster"], sample)
    contrasts = Contrasts(good_answers, neighbours)
    # Those with a label get no pair; their answers still serve other queries.
    unlabelled = [dialogue for dialogue in sample if dialogue.id not in labelled]
    pairs, counts = contrasts.pairs(kinds, unlabelled, out.seed)
    if not answers:
        # The good side is the reference: a judge that is shown it would have nothing to learn.
        for dialogue_id, comparison in pairs.items():
            pairs[dialogue_id] = replace(comparison, dialogue=replace(comparison.dialogue, reference=None))

    facts = dict(sorted(counts.items()))
    out.note("contrast", facts)
    out.log(f"responses: {len(pairs)} of {amount(len(sample), 'pair')} constructed: {json.dumps(facts)}")
    return pairs


def _good_answers(sample: Sequence[Dialogue], dialogues: Path) -> tuple[dict[str, str], set[str]]:
    """Return good answers that people gave, by dialogue id, and the ids of dialogues with a label or a rating.

    Args:
        sample: the dialogues; a reference goes before the better side of a comparison.
        dialogues: the directory of stage dialogues, with its comparisons.
    """
    answers = {dialogue.id: dialogue.reference for dialogue in sample if dialogue.reference}
    labelled = set()
    for comparison in map(Comparison.from_row, read_rows(dialogues, "comparisons")):
        dialogue_id = comparison.dialogue.id
        if comparison.label == "A":
            # A reference was written as an answer; the better of two responses may still be a poor one.
            answers.setdefault(dialogue_id, comparison.response_a)
        elif comparison.label == "B":
            answers.setdefault(dialogue_id, comparison.response_b)
        if comparison.label or comparison.rating_a:
            labelled.add(dialogue_id)
    return answers, labelled


def pair(dialogues: Iterable[Dialogue], responses: Texts, seed: int, dropped: Losses) -> Iterator[Comparison]:
    """Yield one comparison a dialogue: the answers of two models, drawn at random, in random order.

    The draw depends on the seed and the dialogue's id alone.

    Args:
        dialogues: the dialogues that the models answered.
        responses: the answers by model and dialogue id.
        seed: the seed of the draw.
        dropped: counts the dialogues without a comparison by reason: fewer than two answers, or two equal ones.
    """
    for dialogue in dialogues:
        # Sorted, so that the draw does not depend on the order of the configuration.
        models = sorted(model for model, texts in responses.items() if texts.get(dialogue.id, "").strip())
        if len(models) < 2:
            dropped.lose("empty_response", dialogue.id)
            continue
        # A generator a dialogue: its pair is the same whatever other dialogues there are.
        rng = random.Random(derive_seed(seed, dialogue.id))
        model_a, model_b = rng.sample(models, 2)
        response_a = responses[model_a][dialogue.id].strip()
        response_b = responses[model_b][dialogue.id].strip()
        # Nothing is to be learned from a choice between equals.
        if as_shown(response_a) == as_shown(response_b):
            dropped.lose("identical_responses", dialogue.id)
            continue
        yield Comparison(
            id=dialogue.id,
            dialogue=replace(dialogue, rubric=None),
            response_a=response_a,
            response_b=response_b,
            model_a=model_a,
            model_b=model_b,
            group=dialogue.category,
            rubric=dialogue.rubric,
        )


def _existing(directory: Path, sampled: set[str], dropped: Losses) -> Iterator[Comparison]:
    """Yield the comparisons of stage dialogues whose dialogue is sampled and whose responses can be compared.

    Args:
        directory: of stage dialogues.
        sampled: ids of dialogues.
        dropped: counts the others by reason.
    """
    # What is left in it at the end are dialogues that no row has responses to.
    without_responses = set(sampled)
    for comparison in map(Comparison.from_row, read_rows(directory, "comparisons")):
        if comparison.dialogue.id not in sampled:
            continue
        without_responses.discard(comparison.dialogue.id)
        response_a = comparison.response_a.strip()
        response_b = comparison.response_b.strip()
        # A rated response stands alone: its empty second side is no answer.
        lacks_b = not response_b and not comparison.alone
        if not response_a or lacks_b:
            dropped.lose("empty_response", comparison.id)
        elif as_shown(response_a) == as_shown(response_b):
            dropped.lose("identical_responses", comparison.id)
        else:
            yield comparison
    for dialogue_id in sorted(without_responses):
        dropped.lose("no_responses", dialogue_id)


MOST_ERRORS = 3
"""The most numbers that are changed in one answer."""
STEPS = (1, 2, 3, 10)
"""The differences of a wrong number from the right one.

It goes up as often as down and keeps its number of digits: otherwise the larger or the longer number would tell."""
NUMBER = re.compile(r"(?<![\w.,])\d+(?![\w]|[.,]\d)")
"""A whole number that is no part of a word or of a longer number."""
LEAST_WORDS = 4
"""The fewest words of a sentence that is put in another order."""
MOST_SIMILAR = 0.7
"""The largest cosine of two queries that are neighbours: above it, the other's answer may be as good here
(docs/results/real_text.md)."""


class Neighbours:
    """The dialogues of a sample by how near their queries are.

    Args:
        directory: of stage cluster, with its embeddings.
        dialogues: the sample.
    """

    def __init__(self, directory: Path, dialogues: Sequence[Dialogue]) -> None:
        # Embeddings stand in the order of all dialogues, of which the sample is a part.
        row_of = {row["id"]: number for number, row in enumerate(read_rows(directory, "clusters"))}
        rows = [row_of[dialogue.id] for dialogue in dialogues]
        self._dialogues = dialogues
        self._place_of = {dialogue.id: place for place, dialogue in enumerate(dialogues)}
        # Of millions of embeddings, those of the sample alone are read.
        embeddings = np.load(directory / "embeddings.npy", mmap_mode="r")
        self._embeddings = np.asarray(embeddings[rows], dtype=np.float32)

    def of(self, dialogue: Dialogue) -> Iterator[Dialogue]:
        """Yield the other dialogues, the nearest first, without those above :data:`MOST_SIMILAR`.

        Those of the same category are left out, too: a good answer to a query of the same kind may be as good here.
        """
        # Embeddings have length 1, so that their products are cosines.
        cosine = self._embeddings @ self._embeddings[self._place_of[dialogue.id]]
        for place in np.argsort(-cosine, kind="stable"):
            other = self._dialogues[place]
            same_category = dialogue.category and other.category == dialogue.category
            same_query = as_shown(other.query) == as_shown(dialogue.query)
            if cosine[place] <= MOST_SIMILAR and not same_category and not same_query:
                yield other


@dataclass
class Contrasts:
    """Makes worse answers, and counts by ``KIND:REASON`` where none could be made.

    Args:
        good_answers: good answers by who wrote them and by dialogue id.
        neighbours: where answers to other queries come from; None where no pair is made of them.
    """

    good_answers: Texts
    neighbours: Neighbours | None
    counts: Counter[str] = field(default_factory=Counter)

    def pairs(
        self, kinds: Sequence[str], dialogues: Sequence[Dialogue], seed: int
    ) -> tuple[dict[str, Comparison], Counter[str]]:
        """Return labelled pairs by dialogue id, and counts: of pairs by kind, and of failures as ``KIND:REASON``.

        A dialogue gets a pair of the first kind for which one can be made. The order in which kinds are tried and the
        side that stands first are drawn, by the seed and the dialogue's id alone.

        Args:
            kinds: the ways to make a pair (``responses.contrast``).
            dialogues: those that get a pair.
            seed: the seed of the draws.
        """
        pairs: dict[str, Comparison] = {}
        for dialogue in dialogues:
            # A generator a dialogue, of its own kind: the draws of drawn pairs stay as they are.
            rng = random.Random(derive_seed(seed, "contrast", dialogue.id))
            for kind in rng.sample(kinds, len(kinds)):
                comparison = self.pair(dialogue, kind, rng)
                if comparison is None:
                    continue
                # Where A were always better, a judge would learn to say A.
                if rng.random() >= 0.5:
                    comparison = comparison.swapped()
                pairs[dialogue.id] = comparison
                break

        # Length must not tell which side is better, so a user sees how often it does.
        self.counts["better_is_longer"] = 0
        for comparison in pairs.values():
            a_is_longer = len(comparison.response_a) > len(comparison.response_b)
            self.counts["better_is_longer"] += a_is_longer == (comparison.label == "A")
        return pairs, self.counts

    def pair(self, dialogue: Dialogue, kind: str, rng: random.Random) -> Comparison | None:
        """Return a pair of a kind in which A is better, or None where none can be made.

        Where several wrote a good answer, its writer is drawn.
        """
        writers = sorted(name for name, texts in self.good_answers.items() if texts.get(dialogue.id, "").strip())
        if not writers:
            self.counts[f"{kind}:no_good_answer"] += 1
            return None
        writer = rng.choice(writers)
        good = self.good_answers[writer][dialogue.id].strip()
        if self.neighbours is not None and kind == "nearby":
            worse = self._answer_to_another(dialogue, writer, self.neighbours)
            reason = "no_neighbour"
        else:
            worse = _other_numbers(good, rng) or _other_order(good, rng)
            reason = "no_place_for_errors"
        if worse is None:
            self.counts[f"{kind}:{reason}"] += 1
            return None

        self.counts[kind] += 1
        text, change = worse
        return Comparison(
            id=dialogue.id,
            dialogue=replace(dialogue, rubric=None),
            response_a=good,
            response_b=text,
            # One writer's name on both sides: who wrote a response must not tell which is better.
            model_a=writer,
            model_b=writer,
            label="A",
            group=dialogue.category,
            made=f"{kind}: {change}",
            rubric=dialogue.rubric,
        )

    def _answer_to_another(self, dialogue: Dialogue, writer: str, neighbours: Neighbours) -> tuple[str, str] | None:
        """Return a writer's answer to the nearest other query that it answered otherwise, and how to describe it."""
        answers = self.good_answers[writer]
        good = answers[dialogue.id].strip()
        for other in neighbours.of(dialogue):
            text = answers.get(other.id, "").strip()
            if text and text != good:
                return text, f"an answer to {other.id}"
        return None


_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, split at closing marks and at the ends of lines."""
    parts = [part.strip() for part in _END_OF_SENTENCE.split(text)]
    return [part for part in parts if part]


def _counts_an_item(text: str, place: re.Match[str]) -> bool:
    """Return whether a number of a text counts an item of a list: it opens its line, and a mark follows it."""
    line_before = text[: place.start()].rpartition("\n")[2]
    opens_line = not line_before.strip(" \t*#(->+")
    return opens_line and re.match(r"[.):]\**(\s|$)", text[place.end() :]) is not None


def _other_numbers(text: str, rng: random.Random) -> tuple[str, str] | None:
    """Return a text with up to :data:`MOST_ERRORS` of its numbers changed, and the changes in words, or None.

    The number of an item in a list says nothing, and stays.
    """
    places = [place for place in NUMBER.finditer(text) if not _counts_an_item(text, place)]
    changes: list[str] = []
    # A few at most, so that the worse answer is still one that a writer could have given.
    drawn = rng.sample(places, min(len(places), MOST_ERRORS))
    # From the end of the text to its beginning: earlier places stay where they are.
    for place in sorted(drawn, key=lambda place: -place.start()):
        wrong = wrong_number(place[0], rng)
        text = text[: place.start()] + wrong + text[place.end() :]
        changes.insert(0, f"{wrong} for {place[0]}")
    if not changes:
        return None
    return text, ", ".join(changes)


def wrong_number(digits: str, rng: random.Random) -> str:
    """Return another whole number of as many digits: larger as often as smaller, where there are both."""
    right = int(digits)
    # The other side is for numbers at the end of their range, as 10 or 99.
    signs = (-1, 1)
    if rng.choice((True, False)):
        signs = (1, -1)
    for sign in signs:
        near = [right + sign * step for step in STEPS]
        fitting = [number for number in near if number >= 0 and len(str(number)) == len(str(right))]
        if fitting:
            return str(rng.choice(fitting))
    raise AssertionError("every number has a neighbour of as many digits")


def _other_order(text: str, rng: random.Random) -> tuple[str, str] | None:
    """Return a text with the words of one sentence in another order, and the change in words, or None."""
    parts = sentences(text)
    for sentence in rng.sample(parts, len(parts)):
        words = sentence.split()
        shuffled = rng.sample(words, len(words))
        # A draw may leave the words in their order.
        if len(words) >= LEAST_WORDS and shuffled != words:
            # Only its first place in the text: the same sentence may stand there twice.
            return text.replace(sentence, " ".join(shuffled), 1), "the words of a sentence in another order"
    return None
