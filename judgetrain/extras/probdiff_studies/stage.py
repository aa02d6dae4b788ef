"""Stage ``studies``: the ProbDiff paper's studies (3.1, 4.2, 5.2) of what stage ``selfeval`` found, with plots."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.data.clustering import load_encoder
from judgetrain.engines.answers import answers_of, spending
from judgetrain.engines.base import Engine, Sampling
from judgetrain.engines.config import EngineConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.evaluate.report.report import write_report
from judgetrain.extras.probdiff_studies import measures
from judgetrain.extras.probdiff_studies.comparing import Row, Verdicts, compared, judged, won
from judgetrain.extras.probdiff_studies.models import read_models, read_selfeval
from judgetrain.extras.probdiff_studies.report import charts, repeated, tables
from judgetrain.extras.probdiff_studies.stages import StudiesSettings, read_verdicts
from judgetrain.extras.selfeval.stage import answered_dialogues
from judgetrain.schema import Dialogue
from judgetrain.scorers.config import load_scorer, scored_model
from judgetrain.scorers.encode import load_scorer_prompts

if TYPE_CHECKING:
    from judgetrain.scorers.statistics import TokenScorer

TIMES = 3
"""Answers to each prompt, one after the other (the paper's table 1)."""
SAMPLES = 100
"""Answers sampled to each prompt (the paper's figures 2 and 3)."""
SAMPLING = Sampling(temperature=0.7, top_p=1.0, max_new_tokens=512)
"""Of both studies' answers."""
Lazy = Callable[[], "TokenScorer"]


def run(settings: StudiesSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write shards of ``answers``, ``spread`` and ``verdicts``, ``studies.json``, ``report.md`` and ``report.html``.

    The model of ``scorer`` answers again and is loaded only if a shard is missing; nothing of stage selfeval is
    repeated. A study whose number of prompts is 0 is left out. Of ``studies.engine`` texts alone are read, and its
    repeated answers are all that is studied.
    """
    studied = settings.studies
    if studied.engine:
        _closed(studied.engine, settings, inputs, out)
        return
    own = read_selfeval(inputs["selfeval"])
    models = read_models(inputs["selfeval"], studied.against)
    asked = [Dialogue.from_row(row) for row in read_rows(inputs["dialogues"], "dialogues")]
    responses = list(read_rows(inputs["selfeval"], "responses"))
    dialogues = {d.id: d for d in answered_dialogues(asked, responses)}
    model = scored_model(settings.scorer, settings.base)
    with loaded_once(lambda: load_scorer(model)) as scorer:
        _answers(_sample(dialogues, studied.prompts, settings, "answers"), scorer, settings, out)
        spread = _spread(_sample(dialogues, studied.spread_prompts, settings, "spread"), scorer, settings, out)
    repetition = _repetition(settings, out) if studied.prompts else []
    verdicts: dict[str, Verdicts] = {}
    if studied.judge:
        verdicts[studied.judge] = judged(own, dialogues, settings, inputs, out)
    if studied.verdicts:
        verdicts |= read_verdicts(studied.verdicts, "studies.verdicts", own.d)
    duels = won(models, dialogues, settings, inputs, out) if studied.duels else []
    found: Row = {"repetition": repetition, "spread": measures.deviations(spread), "duels": duels}
    # By the models' own names: a second run of one keeps its official score.
    official = {
        score: {name: given[each.model] for name, each in models.items() if each.model in given}
        for score, given in studied.official.items()
    }
    found |= compared(models, verdicts, official)
    out.write_json("studies", found)
    plots = charts(next(iter(models)), spread, found["spread"]["deviation"])
    write_report(out, f"ProbDiff studies: {next(iter(models))}", tables(found, official), "studies.json", plots)


def _closed(engine: EngineConfig, settings: StudiesSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Table 1 of a model that gives no log-probabilities of a text, as GPT-4."""
    dialogues = {d.id: d for d in map(Dialogue.from_row, read_rows(inputs["dialogues"], "dialogues"))}
    answers = answers_of(engine, out.home, settings.seed)
    with (
        spending([engine], settings.studies, "studies", out) as budget,
        loaded_once(lambda: make_engine(engine, answers=answers, budget=budget)) as model,
    ):
        sample = _sample(dialogues, settings.studies.prompts, settings, "answers")
        _answers(sample, model, settings, out, spread=budget is None)
    found = {"repetition": _repetition(settings, out)}
    out.write_json("studies", found)
    write_report(out, f"ProbDiff studies: {engine.model_name}", [repeated(found)], "studies.json")


def _sample(dialogues: Mapping[str, Dialogue], count: int, settings: StudiesSettings, study: str) -> list[Dialogue]:
    chosen = random.Random(derive_seed(settings.seed, "studies", study)).sample(
        range(len(dialogues)), min(count, len(dialogues))
    )
    every = list(dialogues.values())
    return [every[i] for i in sorted(chosen)]


def _answers(
    dialogues: Sequence[Dialogue],
    model: Callable[[], Engine | TokenScorer],
    settings: StudiesSettings,
    out: StageRun,
    spread: bool = True,
) -> None:
    again = load_scorer_prompts(settings.scorer.prompts).again

    def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
        chats, seed = [tuple(map(asdict, d.messages)) for d in items], out.shard_seed(index)
        done, written = measures.repeated_answers(model(), chats, TIMES, SAMPLING, again=again, seed=seed)
        rows = [{"id": d.id, "answers": answers} for d, answers in zip(items, done, strict=True)]
        missing = {"no_answer": sum(not all(answers) for answers in done)}
        return ShardResult(rows, len(rows), missing, **tokens_of(written))

    if dialogues:
        out.sharded("answers", dialogues, settings.scorer.shard_size, process, "prompts", model, spread=spread)


def _repetition(settings: StudiesSettings, out: StageRun) -> list[Row]:
    assert settings.cluster is not None
    encoder = load_encoder(settings.cluster)
    answers = [row["answers"] for row in read_rows(out.directory, "answers")]
    return measures.repetition_report(answers, lambda texts: encoder.encode(texts, show_progress_bar=False))


def _spread(dialogues: Sequence[Dialogue], scorer: Lazy, settings: StudiesSettings, out: StageRun) -> list[list[float]]:
    """Write the log-probabilities of every prompt's sampled answers; a shard is one prompt."""

    def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
        ready, before = scorer(), scorer().usage
        chats = [tuple(map(asdict, d.messages)) for d in items]
        done = measures.logprob_spread(ready, chats, SAMPLES, SAMPLING, out.shard_seed(index))
        usage = ready.usage - before
        rows = [{"id": d.id, "logprobs": logprobs} for d, logprobs in zip(items, done, strict=True)]
        missing = {"unscored_answer": SAMPLES * len(items) - sum(map(len, done))}
        return ShardResult(rows, len(rows), missing, **tokens_of([usage]))

    if not dialogues:
        return []
    out.sharded("spread", dialogues, 1, process, "prompts", scorer, spread=True)
    return [row["logprobs"] for row in read_rows(out.directory, "spread")]
