"""Stage ``stress``: a writer's responses, every proxy's scores of them, and what best of n makes of both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from judgetrain.artifacts.fingerprint import ContentHashes, fingerprint
from judgetrain.artifacts.shards import read_rows, tokens_of
from judgetrain.artifacts.stage_run import ShardResult, StageRun, adopt, derive_seed
from judgetrain.data import world
from judgetrain.data.world.language import load_language
from judgetrain.engines.answers import Budget, answers_of, spending
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.evaluate.report.report import write_report
from judgetrain.extras.judge_reward.groups import Group, scalars
from judgetrain.extras.stress.config import MODE, SHARD, StressConfig
from judgetrain.extras.stress.result import charts, result_of, table
from judgetrain.extras.stress.stages import StressSettings, shown
from judgetrain.judges.base import Judge, Prediction
from judgetrain.judges.factory import Models
from judgetrain.judges.method import BASELINE, Method
from judgetrain.schema import Comparison, Dialogue
from judgetrain.scorers.encode import sample_of

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


Rows = Sequence[Sequence[float | None]]
"""The score of every response of every case; higher is better, None: nothing readable was said of it."""


@dataclass(frozen=True)
class Case:
    """A prompt and the responses to it."""

    dialogue: Dialogue
    responses: Sequence[str]


Scores = Callable[[Sequence[Case]], tuple[Rows, Counter[str]]]
"""The scores of cases, and what they cost: ``prompt_tokens``, ``generated_tokens`` and ``calls``."""


def truth(cases: Sequence[Case]) -> Rows:
    """The quality by the generated world's hidden rule, 0 to 6."""
    quality = load_language().quality
    return [[float(quality(case.dialogue.query, text)) for text in case.responses] for case in cases]


def length(cases: Sequence[Case], seed: int) -> Rows:
    """The number of characters, as the baseline ``longer`` compares them."""
    return [[float(len(text)) for text in case.responses] for case in cases]


def chance(cases: Sequence[Case], seed: int) -> Rows:
    """Chance alone: its gold curve is flat."""
    rngs = [random.Random(derive_seed(seed, "random", case.dialogue.id)) for case in cases]
    return [[rng.random() for _ in case.responses] for rng, case in zip(rngs, cases, strict=True)]


@contextmanager
def scores_of(method: Method, models: Models, settings: StressSettings) -> Iterator[Scores]:
    """A function that scores cases; its model is loaded at the first call, and freed at the end."""
    if method.kind == BASELINE:
        of = length if method.target == "longer" else chance
        yield lambda cases: (of(cases, settings.seed), Counter())
    elif method.kind == "scorer":
        with _scorer(method, models, settings) as scores:
            yield scores
    else:
        with loaded_once(lambda: models.judge(method, method.most or 1)) as judge:
            yield lambda cases: _compared(cases, judge(), settings.seed)


def _compared(cases: Sequence[Case], judge: Judge, seed: int) -> tuple[Rows, Counter[str]]:
    """The scalars that :data:`MODE` makes of comparisons within each case (``judge_reward/groups.py``).

    Responses that hold nothing are not shown to the judge and have no score.
    """
    cost = Counter[str]()

    def ask(pairs: Sequence[Comparison]) -> list[Prediction]:
        found = judge.compare_all(pairs, seed)
        for prediction in found:
            cost.update(asdict(prediction.whole_cost))
        return found

    groups = [Group(case.dialogue.messages, [t for t in case.responses if t.strip()]) for case in cases]
    rows = zip(cases, map(iter, scalars(groups, ask, MODE)), strict=True)
    return [[next(row) if t.strip() else None for t in case.responses] for case, row in rows], cost


@contextmanager
def _scorer(method: Method, models: Models, settings: StressSettings) -> Iterator[Scores]:
    from judgetrain.scorers.methods import score
    from judgetrain.scorers.stages import load_scorer, scored_model

    config = settings.scorer
    assert config is not None
    model = scored_model(config, settings.base)
    with loaded_once(lambda: load_scorer(model)) as scorer:

        def scored(cases: Sequence[Case]) -> tuple[Rows, Counter[str]]:
            samples = [sample_of(case.dialogue, text) for case in cases for text in case.responses]
            before = scorer().usage
            found = iter(score(scorer(), samples, [method.target], config, settings.seed)[method.target].oriented)
            usage = scorer().usage - before
            cost = Counter({n: getattr(usage, n) for n in ("prompt_tokens", "generated_tokens", "calls")})
            return [[next(found) for _ in case.responses] for case in cases], cost

        yield scored
