"""Run stage ``correct``: a judge finds weak responses, and a model rewrites them (branching paper, section 5.5)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from judgetrain.amounts import amount
from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data import world
from judgetrain.data.sources import read_comparisons
from judgetrain.engines.answers import answers_of, spending
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling
from judgetrain.engines.config import SamplingConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.engines.prompting import NO_ANSWER
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.groups import mean
from judgetrain.extras.correct.stages import CorrectSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.aggregation import given_weight
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.pointwise import PointwiseJudge
from judgetrain.judges.kinds.tree_scores import score_of
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import PromptSet, load_prompt_set, slots_of
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode, cost_of
from judgetrain.rubrics import HIGHEST, LOWEST
from judgetrain.schema import Comparison
from judgetrain.scorers.probdiff import average
from judgetrain.thoughts import answer_of

BRANCHES = 3
"""Criteria that a response is judged by (the paper's number), or all where the judge names fewer."""
SHARD = 32
"""Comparisons finished together; the unit of resume."""


def _load(settings: CorrectSettings, models: Models) -> "Corrector":
    """Return the judge, the rater, and the model that rewrites: the judge's own where ``correct.engine`` names none."""
    config = settings.correct

    # A judge cannot be asked for more criteria than it was trained to name.
    judge = models.judge(Method.parse(config.judge), min(BRANCHES, settings.criteria or BRANCHES))

    # One loaded model for both: the judge's weights are not held twice.
    engine = judge.engine
    if config.engine is not None:
        answers = answers_of(config.engine, models.out.home, settings.seed)
        engine = make_engine(config.engine, answers=answers, budget=models.budget)
    rater = None
    if config.rater:
        rater = models.judge(Method.parse(config.rater))
    prompts = load_prompt_set(config.prompts, "correction", "correct.prompts")
    return Corrector(judge, engine, prompts, config.sampling, rater, config.single)


def run(settings: CorrectSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write ``corrections`` shards, one row a response, and ``refinement.json`` (also in the manifest's notes).

    External models are asked within ``correct.max_requests`` and ``correct.max_tokens``, and for nothing twice.
    """
    config = settings.correct
    comparisons = _comparisons(settings)
    if not comparisons:
        raise DataError("correct.source holds no comparison: give one with responses to correct")

    # All of them share one budget: what the user limits is the stage, not each server.
    engines = (settings.teacher, settings.external, config.engine)
    with (
        spending(engines, config, "correct", out) as budget,
        loaded_once(lambda: _load(settings, Models(settings, inputs, out, budget))) as corrector,
    ):

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            return _shard(corrector().correct(items, out.shard_seed(index)))

        # A budget is counted in this process, so its requests stay here.
        work = Work(process=process, load=corrector, spread=budget is None)
        out.sharded("corrections", comparisons, SHARD, work, "comparisons")

    # Over all shards, those of an earlier run among them.
    table = refinement(Correction(**row) for row in read_rows(out.directory, "corrections"))
    out.write_json("refinement", table)
    out.note("refinement", table)
    if table["rewritten"]:
        share = f"{table['rewritten']} of {amount(table['scored'], 'response')} rewritten ({table['refine_rate']:.1%})"
        out.log(f"correct: {share}", keep=True)
    if table["rated"] is not None:
        out.log(
            f"correct: rated {table['rated']:.2f} before, {table['rated_after'] or 0:.2f} after, over all responses",
            keep=True,
        )


def _comparisons(settings: CorrectSettings) -> list[Comparison]:
    """Return the comparisons whose responses are corrected."""
    source = settings.correct.source
    if source.type == "world":
        assert settings.world is not None
        return world.eval_comparisons(world.of_source(settings.world, source), settings.seed)
    return list(read_comparisons(source, "correct.source", labelled=False))


def _shard(corrected: "Corrected") -> ShardResult:
    """Return corrections as a finished shard."""
    dropped = Counter[str]()
    prompt_tokens = 0
    generated_tokens = 0
    for tree in corrected.trees:
        dropped.update(tree.failures)
        cost = cost_of(tree)
        prompt_tokens += int(cost.prompt_tokens)
        generated_tokens += int(cost.generated_tokens)
    for completion in corrected.completions:
        prompt_tokens += completion.prompt_tokens
        generated_tokens += completion.generated_tokens
    for correction in corrected.corrections:
        if correction.failure:
            dropped[f"correction:{correction.failure}"] += 1

    # Without a score a response is neither good nor weak, and is left as it is.
    dropped["unscored"] += sum(correction.score is None for correction in corrected.corrections)
    return ShardResult(
        [asdict(correction) for correction in corrected.corrections],
        len(corrected.corrections),
        dropped,
        prompt_tokens=prompt_tokens,
        generated_tokens=generated_tokens,
        counts_out=sum(correction.corrected is not None for correction in corrected.corrections),
    )


Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
THRESHOLD = 3.0
"""Responses whose mean score is below this are rewritten (the paper's)."""

# From a response's heading to the next one: the frame's other headings end it, whatever signs of Markdown stand before
# them.
_ANALYSIS = (
    r"^[^\w\n]*Analysis of Response {side}[^\w\n:]*:(.*?)"
    r"(?=^[^\w\n]*(?:Response [AB] Score|Analysis of Response|Comparison)\b|\Z)"
)


@dataclass(frozen=True)
class Correction:
    """One response of a comparison, and its correction."""

    comparison_id: str
    side: Side
    model: str
    query: str
    response: str
    score: float | None
    """Mean over the readable judgments, by given criteria weighted; None if there is none."""
    evaluation: str = ""
    corrected: str | None = None
    failure: str | None = None
    """The new text, None where the response was good enough or ``failure`` says why none was had."""
    rated: float | None = None
    rated_after: float | None = None
    """An external rater's ratings of the old and the new text, each by itself."""


@dataclass(frozen=True)
class Corrected:
    """Corrections of some comparisons, with what they cost: all trees and completions."""

    corrections: list[Correction]
    trees: list[EvaluationTree]
    completions: list[Completion]


def evaluation_of(tree: EvaluationTree, side: Side) -> str:
    """Return the judge's evaluation of one response: by criterion, its score and analysis.

    Other responses are left out. It is from the judgment that showed the response first, else from the other order;
    unreadable ones are left out.
    """
    # Tags of reasoning that an analysis quotes from a response are not the judge's own.
    shown = f"{tree.comparison.response_a}\n{tree.comparison.response_b}"
    order = "BA"
    if side == "A":
        order = "AB"
    parts = []
    for criterion in tree.criteria:
        for guideline in criterion.guidelines:
            readable = [judgment for judgment in guideline.judgments if judgment.verdict is not None]

            # False sorts before True, and the sort is stable: judgments in the wanted order come first.
            readable.sort(key=lambda judgment: judgment.order != order)
            if readable:
                parts.append(_part(criterion, readable[0], side, shown))
    return "\n\n".join(parts)


def _part(criterion: CriterionNode, judgment: JudgmentNode, side: Side, shown: str) -> str:
    """Return a criterion with one response's score and analysis.

    Args:
        criterion: that was judged by.
        judgment: of both responses.
        side: the response.
        shown: both responses' texts, which an analysis may quote.
    """
    # In the order BA the judge calls the second response A.
    name: str = side
    if judgment.order == "BA":
        name = {"A": "B", "B": "A"}[side]
    answer = answer_of(judgment.text, shown) or ""
    match = re.search(_ANALYSIS.format(side=name), answer, re.IGNORECASE | re.MULTILINE | re.DOTALL)
    analysis = ""
    if match:
        analysis = match[1].strip()
    score = judgment.score_of(side)
    best = ""
    if judgment.inverted:
        # The rewriter would take a high score for praise.
        best = " (1 is best)"
    return f"{criterion.text}\nScore: {score:g} of 5{best}\nAnalysis: {analysis or '(no analysis)'}"


@dataclass(frozen=True)
class Corrector:
    """Judges responses and has the weak ones rewritten.

    Args:
        judge: of the responses.
        engine: rewrites them.
        prompts: with a step ``correction``.
        sampling: of the rewriting.
        rater: rates old and new texts (:class:`Correction`), if there is one.
        single: whether both sides are one response, which is judged against itself (its score is the mean of both) and
            corrected once.
    """

    judge: BranchingJudge
    engine: Engine
    prompts: PromptSet
    sampling: SamplingConfig
    rater: PointwiseJudge | None = None
    single: bool = False

    def correct(self, comparisons: Sequence[Comparison], seed: int) -> Corrected:
        """Judge comparisons, and rewrite the responses that score below :data:`THRESHOLD`."""
        # Seeds have names: a further step, or a rater, changes no draw of the others.
        trees = self.judge.sample(comparisons, derive_seed(seed, "before"))
        sides: Sequence[Side] = SIDES
        if self.single:
            sides = ("A",)

        # Flat lists by response, of which places below are indices.
        comparison_of = []
        corrections = []
        for comparison, tree in zip(comparisons, trees, strict=True):
            for side in sides:
                comparison_of.append(comparison)
                corrections.append(_judged(tree, side, self.single))

        # Only these are sent to the rewriter, in one batch.
        low = []
        for place, correction in enumerate(corrections):
            if correction.score is not None and correction.score < THRESHOLD:
                low.append(place)
        completions: list[Completion] = []
        if low:
            requests = [self._request(corrections[place], comparison_of[place]) for place in low]
            completions = self.engine.generate(requests, derive_seed(seed, "correct"))
        for place, completion in zip(low, completions, strict=True):
            corrections[place] = _rewritten(corrections[place], completion)
        # After the rewriting, so that old and new texts are rated in one call of the same rater.
        if self.rater is not None:
            corrections = self._rated(corrections, comparison_of, self.rater, derive_seed(seed, "rated"))
        return Corrected(corrections, trees, completions)

    def close(self) -> None:
        """Free the models."""
        self.judge.close()
        if self.rater:
            self.rater.close()

        # The judge has closed its own engine.
        if self.engine is not self.judge.engine:
            self.engine.close()

    def _request(self, correction: Correction, comparison: Comparison) -> Request:
        """Return the request for a new text."""
        slots = slots_of(comparison) | {"response": correction.response, "judgment": correction.evaluation}
        messages = self.prompts.render("correction", slots)
        return Request(messages=messages, sampling=Sampling.of(self.sampling), step="correction", slots=slots)

    @staticmethod
    def _rated(
        corrections: Sequence[Correction], comparison_of: Sequence[Comparison], rater: PointwiseJudge, seed: int
    ) -> list[Correction]:
        """Return the corrections with a rating of every response, and of every new text.

        Args:
            corrections: to rate.
            comparison_of: the comparison of each.
            rater: that is asked.
            seed: of the rater.
        """
        rewritten = [place for place, correction in enumerate(corrections) if correction.corrected is not None]

        # The rater reads response A alone, so each text is put there. New texts follow the old ones in one call.
        shown = []
        for comparison, correction in zip(comparison_of, corrections, strict=True):
            shown.append(replace(comparison, response_a=correction.response))
        for place in rewritten:
            shown.append(replace(comparison_of[place], response_a=corrections[place].corrected or ""))
        ratings: list[float | None] = []
        for reply in rater.rate(shown, seed):
            ratings.append(None if reply.answer is None else float(reply.answer))
        before = ratings[: len(corrections)]

        # The call's first ratings are of the old texts, one each; those behind them are of the new texts.
        after = dict(zip(rewritten, ratings[len(corrections) :], strict=True))
        rated = []
        for place, correction in enumerate(corrections):
            rated.append(replace(correction, rated=before[place], rated_after=after.get(place)))
        return rated


def _judged(tree: EvaluationTree, side: Side, single: bool) -> Correction:
    """Return a response with its score and evaluation, not yet corrected.

    Args:
        tree: of the comparison.
        side: the response.
        single: whether both sides are one response, so that its score is the mean of both.
    """
    comparison = tree.comparison
    if side == "A":
        response = comparison.response_a
        model = comparison.model_a
    else:
        response = comparison.response_b
        model = comparison.model_b

    # Both sides, as a single response stands on both.
    scores = {name: _mean_score(tree, name) for name in SIDES}
    score = scores[side]
    if single:
        score = average([*scores.values()])
    query = comparison.dialogue.query
    return Correction(comparison.id, side, model, query, response, score, evaluation_of(tree, side))


def _mean_score(tree: EvaluationTree, side: Side) -> float | None:
    """Return a response's mean score, 1 to 5; None where it has none.

    By criteria that people gave it is their weighted mean on their own scales (:func:`score_of`), as everywhere else: a
    high score by what a response must not do is a poor one. By the judge's own it is the mean of all judgments.
    """
    if given_weight(tree.criteria):
        share = score_of(tree.criteria, side)
        return None if share is None else LOWEST + (HIGHEST - LOWEST) * share
    return average([judgment.score_of(side) for _, _, judgment in tree.judgments()])


def _rewritten(correction: Correction, completion: Completion) -> Correction:
    """Return the correction with its new text, or with the reason why the old one stays."""
    if completion.finish_reason in UNANSWERED:
        return replace(correction, failure=completion.finish_reason)

    # Half a response is no correction, however good its beginning is.
    if completion.finish_reason == "length":
        return replace(correction, failure="cut_off")
    answer = answer_of(completion.text, "\n".join((correction.query, correction.response, correction.evaluation)))
    if answer is None:
        return replace(correction, failure=NO_ANSWER)
    text = answer.strip()
    if not text:
        return replace(correction, failure="empty")

    # A copy changes nothing, and would count in refine_rate as if it did.
    if text == correction.response.strip():
        return replace(correction, failure="unchanged")
    return replace(correction, corrected=text)


def refinement(corrections: Iterable[Correction]) -> dict[str, Any]:
    """Return the manifest's table: how many responses were rewritten, and what that did to their ratings.

    ``refine_rate``: share of the scored responses that were rewritten. ``rated`` and ``rated_after``: an external
    rater's mean over all responses that have both ratings, before and with the rewritten ones in the place of the old,
    from 1 to 10 (both: the paper's table 3).
    """
    responses = 0
    scored = 0
    rewritten = 0
    failures = Counter[str]()
    before = []
    after = []
    for correction in corrections:
        responses += 1
        if correction.failure:
            failures[correction.failure] += 1
        if correction.score is not None:
            scored += 1
            rewritten += correction.corrected is not None
        rated_after = correction.rated_after
        if correction.corrected is None:
            # The old text stays, and so does its rating.
            rated_after = correction.rated
        if correction.rated is not None and rated_after is not None:
            before.append(correction.rated)
            after.append(rated_after)
    refine_rate = None
    if scored:
        refine_rate = round(rewritten / scored, 6)
    return {
        "responses": responses,
        "scored": scored,
        "rewritten": rewritten,
        "refine_rate": refine_rate,
        "failures": dict(sorted(failures.items())),
        "rated": mean(before),
        "rated_after": mean(after),
    }
