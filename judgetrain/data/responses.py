"""Stage ``responses``: several models answer the sampled dialogues, and their answers are paired at random (A.1)."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.config import ResponseModelConfig
from judgetrain.data.contrast import constructed
from judgetrain.data.stages import ResponsesSettings
from judgetrain.data.world.splits import with_truth
from judgetrain.engines.answers import Budget, answers_of, spending
from judgetrain.engines.base import Request, Sampling, shard_of
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.errors import DataError, causes
from judgetrain.schema import Comparison, Dialogue

SHARD = 256
HINTS = {
    "no_responses": "the sources bring no responses: name models that answer in responses.models, or the columns of "
    "the responses in dialogues.sources[].fields",
    "empty_response": "responses are empty: look at the models' answers in responses-*.jsonl (prompts that do not fit "
    "the context, responses.sampling.max_new_tokens), or at the sources' rows",
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
        made |= {c.id: with_truth(c) for c in pair(left, responses, out.seed, dropped)}
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
    twice = [(f"{model.name}-{i}", model) for model in models for i in (1, 2)]
    writers = twice if len(models) == 1 else [(model.name, model) for model in models]
    with spending([m.engine for m in models], settings.responses, "responses", out) as budget:
        for name, model in writers:
            _answer(name, model, sample, settings, out, budget if model.engine.paid else None)
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
    model: ResponseModelConfig,
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
    answers = answers_of(model.engine, out.home, derive_seed(settings.seed, name))
    with loaded_once(lambda: make_engine(model.engine, name=name, answers=answers, budget=budget)) as engine:

        def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
            done = engine().generate([request(d) for d in items], derive_seed(out.shard_seed(index), name))
            return shard_of([{"dialogue_id": d.id, "model": name} for d in items], done)

        copy = model.engine.gpus  # a model of 72B beside others makes no worker of theirs larger
        spread = budget is None
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
    """The comparisons that the sources brought, for the sampled dialogues."""
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
