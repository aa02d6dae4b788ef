"""Stage ``studies``: the ProbDiff paper's studies (3.1, 4.2, 5.2) of what stage ``selfeval`` found, with plots."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed, tokens_of
from judgetrain.data.clustering import load_encoder
from judgetrain.engines.answers import answers_of, spending
from judgetrain.engines.base import Engine, Sampling
from judgetrain.engines.config import EngineConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.evaluate.report.report import write_report
from judgetrain.extras.probdiff_studies import measures
from judgetrain.extras.probdiff_studies.comparing import Asking, Row, Verdicts, compared, judged, won
from judgetrain.extras.probdiff_studies.models import SelfEvaluated, read_models, read_selfeval
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
"""Sampling of both studies' answers."""
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
    # The own run is read a second time below, cut to what all models have; judges look at all of it.
    own_run = read_selfeval(inputs["selfeval"])
    models = read_models(inputs["selfeval"], studied.against)
    questions = [Dialogue.from_row(row) for row in read_rows(inputs["dialogues"], "dialogues")]
    responses = list(read_rows(inputs["selfeval"], "responses"))
    # Of conversations the earlier turns hold the model's own answers, which are no part of the questions.
    dialogues = {dialogue.id: dialogue for dialogue in answered_dialogues(questions, responses)}
    model = scored_model(settings.scorer, settings.base)
    # One loaded model for both studies, freed before a judge is loaded.
    with loaded_once(lambda: load_scorer(model)) as scorer:
        _answers(_sample(dialogues, studied.prompts, settings, "answers"), scorer, settings, out)
        spread = _spread(_sample(dialogues, studied.spread_prompts, settings, "spread"), scorer, settings, out)
    repetition = []
    if studied.prompts:
        repetition = _repetition(settings, out)
    asking = Asking(settings=settings, inputs=inputs, out=out)
    verdicts: dict[str, Verdicts] = {}
    if studied.judge:
        verdicts[studied.judge] = judged(own_run, dialogues, asking)
    if studied.verdicts:
        verdicts |= read_verdicts(studied.verdicts, "studies.verdicts", own_run.d)
    duels = []
    if studied.duels:
        duels = won(models, dialogues, asking)
    official = _official(studied.official, models)
    facts: Row = {"repetition": repetition, "spread": measures.deviations(spread), "duels": duels}
    facts |= compared(models, verdicts, official)
    out.write_json("studies", facts)
    name = next(iter(models))
    plots = charts(name, spread, facts["spread"]["deviation"])
    write_report(out, f"ProbDiff studies: {name}", tables(facts, official), "studies.json", plots)


def _official(
    scores: Mapping[str, Mapping[str, float]], models: Mapping[str, SelfEvaluated]
) -> dict[str, dict[str, float]]:
    """Return official scores by the names of runs; a second run of one model has its model's score.

    Args:
        scores: by score and model.
        models: the runs by name.
    """
    by_run = {}
    for score, by_model in scores.items():
        by_run[score] = {name: by_model[run.model] for name, run in models.items() if run.model in by_model}
    return by_run


def _closed(engine: EngineConfig, settings: StudiesSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write table 1 of a model that gives no log-probabilities of a text, as GPT-4."""
    questions = map(Dialogue.from_row, read_rows(inputs["dialogues"], "dialogues"))
    dialogues = {dialogue.id: dialogue for dialogue in questions}
    answers = answers_of(engine, out.home, settings.seed)
    with (
        spending([engine], settings.studies, "studies", out) as budget,
        loaded_once(lambda: make_engine(engine, answers=answers, budget=budget)) as model,
    ):
        sample = _sample(dialogues, settings.studies.prompts, settings, "answers")
        _answers(sample, model, settings, out, spread=budget is None)
    facts = {"repetition": _repetition(settings, out)}
    out.write_json("studies", facts)
    write_report(out, f"ProbDiff studies: {engine.model_name}", [repeated(facts)], "studies.json")


def _sample(dialogues: Mapping[str, Dialogue], count: int, settings: StudiesSettings, study: str) -> list[Dialogue]:
    """Return dialogues drawn by the seed, in their order.

    Args:
        dialogues: by id.
        count: how many are drawn.
        settings: of the stage.
        study: its name, so that each study has a sample of its own.
    """
    # The study's name is part of the seed: more prompts for one study leave the other's finished shards as they are.
    rng = random.Random(derive_seed(settings.seed, "studies", study))
    places = rng.sample(range(len(dialogues)), min(count, len(dialogues)))
    in_order = list(dialogues.values())
    return [in_order[place] for place in sorted(places)]


def _answers(
    dialogues: Sequence[Dialogue],
    model: Callable[[], Engine | TokenScorer],
    settings: StudiesSettings,
    out: StageRun,
    spread: bool = True,
) -> None:
    """Write shards of repeated answers to the dialogues.

    Args:
        dialogues: to answer.
        model: that answers.
        settings: of the stage.
        out: the stage's directory.
        spread: whether other processes may answer some of them.
    """
    repetition = measures.Repetition(TIMES, load_scorer_prompts(settings.scorer.prompts).again)

    def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
        seed = out.shard_seed(index)
        answers_of_items, completions = measures.repeated_answers(model(), _chats(items), repetition, SAMPLING, seed)
        rows = []
        unanswered = 0
        for dialogue, answers in zip(items, answers_of_items, strict=True):
            rows.append({"id": dialogue.id, "answers": answers})
            unanswered += not all(answers)
        return ShardResult(rows, len(rows), {"no_answer": unanswered}, **tokens_of(completions))

    if dialogues:
        work = Work(process=process, load=model, spread=spread)
        out.sharded("answers", dialogues, settings.scorer.shard_size, work, "prompts")


def _chats(dialogues: Sequence[Dialogue]) -> list[Any]:
    """Return the messages of dialogues as engines take them."""
    return [tuple(map(asdict, dialogue.messages)) for dialogue in dialogues]


def _repetition(settings: StudiesSettings, out: StageRun) -> list[Row]:
    """Return how like the repeated answers are to the first ones."""
    assert settings.cluster is not None
    encoder = load_encoder(settings.cluster)
    answers = [row["answers"] for row in read_rows(out.directory, "answers")]
    return measures.repetition_report(answers, lambda texts: encoder.encode(texts, show_progress_bar=False))


def _spread(dialogues: Sequence[Dialogue], scorer: Lazy, settings: StudiesSettings, out: StageRun) -> list[list[float]]:
    """Write the log-probabilities of every prompt's sampled answers; a shard is one prompt."""

    def process(index: int, items: Sequence[Dialogue]) -> ShardResult:
        loaded = scorer()
        # The scorer counts over its whole life; a shard's cost is the difference.
        usage_before = loaded.usage
        spread = measures.logprob_spread(loaded, _chats(items), SAMPLES, SAMPLING, out.shard_seed(index))
        rows = []
        unscored = 0
        for dialogue, logprobs in zip(items, spread, strict=True):
            rows.append({"id": dialogue.id, "logprobs": logprobs})
            unscored += SAMPLES - len(logprobs)
        usage = loaded.usage - usage_before
        return ShardResult(rows, len(rows), {"unscored_answer": unscored}, **tokens_of([usage]))

    if not dialogues:
        return []

    # A prompt a shard: with its SAMPLES answers it takes as long as a shard should.
    out.sharded("spread", dialogues, 1, Work(process=process, load=scorer, spread=True), "prompts")
    return [row["logprobs"] for row in read_rows(out.directory, "spread")]
