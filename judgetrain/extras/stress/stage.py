"""Stage ``stress``: a writer's responses, every proxy's scores of them, and what best of n makes of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.shards import read_rows, tokens_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun, adopt
from judgetrain.data import world
from judgetrain.engines.answers import Budget, answers_of, spending
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.evaluate.report.report import write_report
from judgetrain.extras.stress.config import SHARD, StressConfig
from judgetrain.extras.stress.proxies import Case, Rows, Scores, scores_of, truth
from judgetrain.extras.stress.result import charts, result_of, table
from judgetrain.extras.stress.stages import StressSettings, shown
from judgetrain.judges.factory import Models
from judgetrain.judges.method import BASELINE, Method
from judgetrain.schema import Dialogue

RESPONSES = "responses"
SAMPLED = Sampling(temperature=1.0, top_p=1.0, max_new_tokens=512)
"""How the writer writes: best of n means something where the n responses are drawn from the writer itself."""
FORMAT = 2
"""Raised when the code changes what stands in a shard."""


def run(settings: StressSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``stress.json``, ``report.md`` and ``report.html``, and say what each proxy came to.

    Shards ``responses`` keep what was written, shards ``scores-METHOD`` what each method made of it; those of earlier
    runs with other proxies are taken over.
    """
    config = settings.stress
    assert settings.world is not None
    dialogues = [c.dialogue for c in world.eval_comparisons(settings.world, settings.seed)[: config.prompts]]
    with spending((*settings.asked_engines, config.writer), config, "stress", out) as budget:
        models = Models(settings, inputs, out, budget)
        mark = _write(dialogues, settings, budget, out)
        rows = read_rows(out.directory, RESPONSES)
        cases = [Case(d, row["responses"]) for d, row in zip(dialogues, rows, strict=True)]
        found = {shown(Method.parse(m)): _scored(m, cases, mark, models, settings) for m in config.methods}
    result = result_of(truth(cases), found, out.seed)
    out.write_json("stress", asdict(result))
    out.note("stress", [asdict(row) for row in result.summary])
    for line in result.summary:
        out.log(f"stress: {line.proxy}: {line.verdict}; won {line.gained}, lost after the peak {line.fall}")
    write_report(out, f"{out.recipe}: best of n", [table(result)], "stress.json", charts(result))


def _write(dialogues: Sequence[Dialogue], settings: StressSettings, budget: Budget | None, out: StageRun) -> str:
    """Fill the shards of responses; gives what decides them."""
    config, hashes = settings.stress, ContentHashes.of_run(out.home)
    assert config.writer is not None
    writer, samples = config.writer, config.samples
    used = hashes.identity(StressConfig(writer=writer, samples=samples, methods=[]))
    rows = [d.to_row() for d in dialogues]
    mark = fingerprint({"format": FORMAT, "seed": settings.seed, "dialogues": rows, "used": used})
    adopt(RESPONSES, mark, out)
    answers = answers_of(writer, out.home, settings.seed)
    with loaded_once(lambda: make_engine(writer, name="writer", answers=answers, budget=budget)) as engine:

        def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
            done = engine().generate([_request(d) for d in items for _ in range(samples)], out.shard_seed(index))
            texts = iter(c.text for c in done)
            made = [{"dialogue_id": d.id, "responses": list(islice(texts, samples))} for d in items]
            empty = sum(not c.text.strip() for c in done)
            return ShardResult(
                made, len(done), {"empty_response": empty}, counts_out=len(done) - empty, **tokens_of(done)
            )

        spread = budget is None
        out.sharded(RESPONSES, dialogues, SHARD, process, "prompts", engine, spread=spread, gpus=writer.gpus)
    return mark


def _request(dialogue: Dialogue) -> Request:
    return Request(
        messages=tuple({"role": m.role, "content": m.content} for m in dialogue.messages),
        sampling=SAMPLED,
        slots={"query": dialogue.query, "context": dialogue.context},
    )


def _scored(text: str, cases: Sequence[Case], mark: str, models: Models, settings: StressSettings) -> Rows:
    """What a method makes of the responses, out of its shards, which are filled where they are not there."""
    out, method, hashes = models.out, Method.parse(text), ContentHashes.of_run(models.out.home)
    name = f"scores-{method.file_name}" + (f"@{method.most or 1}" if method.has_branches else "")
    # Other methods, the prompts and the writer decide nothing here.
    asked = hashes.identity(replace(settings, stress=StressConfig(methods=[text])).active())
    adopt(name, fingerprint({"responses": mark, "judge": models.identity(method, hashes), "asked": asked}), out)
    gpus = settings.scorer.gpus if method.kind == "scorer" and settings.scorer else models.gpus(method)
    with scores_of(method, models, settings) as scores:
        spread = models.budget is None and method.kind != BASELINE  # no model: a worker would take longer to ask
        out.sharded(name, cases, SHARD, _shard_of(scores), "prompts", spread=spread, gpus=gpus)
    return [row["scores"] for row in read_rows(out.directory, name)]


def _shard_of(scores: Scores) -> Callable[[int, Sequence[Case]], ShardResult]:
    def process(index: int, items: Sequence[Case]) -> ShardResult:
        found, cost = scores(items)
        rows = [{"dialogue_id": c.dialogue.id, "scores": row} for c, row in zip(items, found, strict=True)]
        unreadable, total = sum(row.count(None) for row in found), sum(map(len, found))
        spent = {name: round(cost[name]) for name in ("prompt_tokens", "generated_tokens")}
        facts = {"calls": round(cost["calls"])}
        return ShardResult(rows, total, {"unreadable": unreadable}, counts_out=total - unreadable, facts=facts, **spent)

    return process
