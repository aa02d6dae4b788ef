"""Stage ``stress``: a writer's responses, every proxy's scores of them, and what best of n makes of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.reuse import adopt
from judgetrain.artifacts.shards import read_rows, tokens_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun
from judgetrain.data import world
from judgetrain.data.sources import read_dialogues
from judgetrain.engines.answers import Budget, answers_of, spending
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.once import loaded_once
from judgetrain.engines.registry import make_engine
from judgetrain.errors import DataError
from judgetrain.judges.factory import Models
from judgetrain.judges.method import BASELINE, BRANCHING, Method
from judgetrain.judges.settings import EXTERNAL
from judgetrain.schema import Dialogue
from judgetrain.serving.stress.config import TRUTH, StressConfig
from judgetrain.serving.stress.proxies import Case, Scores, scores_of, truth
from judgetrain.serving.stress.result import result_of
from judgetrain.serving.stress.stages import StressSettings, shown
from judgetrain.serving.stress.text import console, page

RESPONSES = "responses"
FORMAT = 1
"""Raised when the code changes what stands in a shard."""


def run(settings: StressSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``stress.json`` and ``stress.html``, and print the table.

    Shards ``responses`` keep what was written, shards ``scores-METHOD`` what each method made of it; those of earlier
    runs with other proxies are taken over.
    """
    config = settings.stress
    dialogues = _prompts(settings)
    with spending((*settings.asked_engines, config.writer), config, "stress", out) as budget:
        models = Models(settings, inputs, out, budget)
        mark = _write(dialogues, settings, budget, out)
        cases = [
            Case(d, row["responses"]) for d, row in zip(dialogues, read_rows(out.directory, RESPONSES), strict=True)
        ]
        named = [config.gold, *config.methods] if config.gold != TRUTH else config.methods
        scored = _scored([Method.parse(text) for text in named], cases, mark, models, settings)
    found = {shown(m): scored[shown(m)] for m in map(Method.parse, config.methods)}
    gold = truth(cases) if config.gold == TRUTH else scored[shown(Method.parse(config.gold))]
    result = result_of(config, gold, found, out.seed)
    out.write_json("stress", result.to_json())
    out.note("stress", [asdict(row) for row in result.summary])
    write_text_atomic(out.path("stress.html"), page(result, f"{out.recipe}: best of n"))
    out.tell(console(result))
    out.log(f"stress: page: {out.path('stress.html')}")


def _prompts(settings: StressSettings) -> list[Dialogue]:
    config = settings.stress
    if config.source.type == "world":
        assert settings.world is not None
        found = [c.dialogue for c in world.eval_comparisons(settings.world, settings.seed)[: config.prompts]]
    else:
        found = list(islice(read_dialogues(config.source, "stress.source"), config.prompts))
    if len(found) < 2:
        raise DataError(f"stress.source holds {len(found)} prompts; expected at least 2, since intervals are over them")
    return found


def _write(dialogues: Sequence[Dialogue], settings: StressSettings, budget: Budget | None, out: StageRun) -> str:
    """Fill the shards of responses; gives what decides them."""
    config, hashes = settings.stress, ContentHashes.of_run(out.home)
    assert config.writer is not None
    writer, limits = config.writer, Sampling.of(config.sampling)
    used = StressConfig(
        writer=writer, sampling=config.sampling, samples=config.samples, shard_size=config.shard_size, methods=[]
    )
    rows = [d.to_row() for d in dialogues]
    mark = fingerprint({"format": FORMAT, "seed": settings.seed, "dialogues": rows, "used": hashes.identity(used)})
    adopt(RESPONSES, mark, out)
    answers = answers_of(writer, out.home, settings.seed)
    with loaded_once(lambda: make_engine(writer, name="writer", answers=answers, budget=budget)) as engine:

        def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
            requests = [_request(d, limits) for d in items for _ in range(config.samples)]
            done = engine().generate(requests, out.shard_seed(index))
            texts = iter(c.text for c in done)
            made = [{"dialogue_id": d.id, "responses": list(islice(texts, config.samples))} for d in items]
            empty = sum(not c.text.strip() for c in done)
            return ShardResult(
                made, len(done), {"empty_response": empty}, counts_out=len(done) - empty, **tokens_of(done)
            )

        size, copy = config.shard_size, writer.gpus
        out.sharded(RESPONSES, dialogues, size, process, "prompts", engine, spread=budget is None, gpus=copy)
    return mark


def _request(dialogue: Dialogue, limits: Sampling) -> Request:
    return Request(
        messages=tuple({"role": m.role, "content": m.content} for m in dialogue.messages),
        sampling=limits,
        slots={"query": dialogue.query, "context": dialogue.context},
        readable=lambda completion: bool(completion.text.strip()),
    )


def _scored(
    methods: Sequence[Method], cases: Sequence[Case], mark: str, models: Models, settings: StressSettings
) -> dict[str, list[list[float | None]]]:
    """What methods make of the responses, by name, out of their shards, which are filled where they are not there.

    A judge that is asked with several numbers of branches is asked once.
    """
    out, groups = models.out, dict[str, list[Method]]()
    for method in methods:
        groups.setdefault(method.name, []).append(method)
    hashes, found = ContentHashes.of_run(out.home), dict[str, list[list[float | None]]]()
    for members in groups.values():
        name, first = f"scores-{members[0].file_name}", members[0]
        judge = models.identity(first, hashes)
        asked = hashes.identity(_asked(first, models, settings))
        parts = {"format": FORMAT, "responses": mark, "methods": [*map(shown, members)], "judge": judge, "asked": asked}
        adopt(name, fingerprint(parts), out)
        with scores_of(members, models, settings) as scores:
            process, size = _shard_of(scores), settings.stress.shard_size
            spread = models.budget is None and first.kind != BASELINE  # no model: a worker would take longer to ask
            out.sharded(name, cases, size, process, "prompts", spread=spread, gpus=_gpus(first, models, settings))
        rows = list(read_rows(out.directory, name))
        found |= {shown(m): [row["scores"][shown(m)] for row in rows] for m in members}
    return found


def _gpus(method: Method, models: Models, settings: StressSettings) -> int:
    """How many GPUs a copy of what scores runs on, where there are any."""
    return settings.scorer.gpus if method.kind == "scorer" and settings.scorer else models.gpus(method)


_ASKING = {
    BRANCHING: ("aggregation", "early_stop", "judge", "criteria"),
    "one_step": ("one_step",),
    "at_once": ("at_once",),
    "rating": ("rating",),
    "scorer": ("scorer", "base"),
    BASELINE: (),
}
"""By kind of method, the settings that decide how it is asked."""


def _asked(method: Method, models: Models, settings: StressSettings) -> StressSettings:
    """The settings without what concerns other methods, the prompts and the responses."""
    kept = {"seed", *_ASKING[method.kind]}
    if method.names_model and models.own_engine(method) is not None:
        kept.add("engine")
    if method.kind == BRANCHING and method.target in ("base", *EXTERNAL):  # others bring their prompts
        kept.add("prompts")
    how = StressConfig(methods=[], mode=settings.stress.mode, shard_size=settings.stress.shard_size)
    changes: dict[str, Any] = {field.name: None for field in fields(settings) if field.name not in kept}
    return replace(settings, **changes | {"stress": how})


def _shard_of(scores: Scores) -> Callable[[int, Sequence[Case]], ShardResult]:
    def process(index: int, items: Sequence[Case]) -> ShardResult:
        found = scores(items)
        rows = [
            {"dialogue_id": c.dialogue.id, "scores": {name: row[i] for name, row in found.scores.items()}}
            for i, c in enumerate(items)
        ]
        flat = [value for scores in found.scores.values() for row in scores for value in row]
        cost = Counter({name: round(number) for name, number in found.cost.items()})
        return ShardResult(
            rows,
            len(flat),
            {"unreadable": flat.count(None)},
            prompt_tokens=cost["prompt_tokens"],
            generated_tokens=cost["generated_tokens"],
            counts_out=len(flat) - flat.count(None),
            facts={"calls": cost["calls"]},
        )

    return process
