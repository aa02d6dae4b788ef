"""Stage ``correct``: a judge finds the weak responses, and a model rewrites them (branching paper, section 5.5)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data import world
from judgetrain.data.sources import read_comparisons
from judgetrain.engines.answers import answers_of, spending
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling
from judgetrain.engines.config import SamplingConfig
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.engines.prompting import NO_ANSWER, answer_of
from judgetrain.errors import DataError
from judgetrain.evaluate.metrics.groups import mean
from judgetrain.extras.correct.stages import CorrectSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.kinds.pointwise import PointwiseJudge
from judgetrain.judges.method import Method
from judgetrain.judges.prompting.prompts import PromptSet, load_prompt_set, slots_of
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, JudgmentNode, cost_of
from judgetrain.schema import Comparison
from judgetrain.scorers.probdiff import average

BRANCHES = 3
"""Criteria that a response is judged by (the paper's), or all where the judge names fewer."""
SHARD = 32
"""Comparisons finished together: what a kill costs."""


def _load(settings: CorrectSettings, models: Models) -> "Corrector":
    """The judge, and the model that rewrites: its own where ``correct.engine`` names none."""
    config = settings.correct
    judge = models.judge(Method.parse(config.judge), min(BRANCHES, settings.criteria or BRANCHES))
    engine = judge.engine
    if config.engine is not None:
        answers = answers_of(config.engine, models.out.home, settings.seed)
        engine = make_engine(config.engine, answers=answers, budget=models.budget)
    rater = models.judge(Method.parse(config.rater)) if config.rater else None
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
    engines = settings.teacher, settings.external, config.engine
    with (
        spending(engines, config, "correct", out) as budget,
        loaded_once(lambda: _load(settings, Models(settings, inputs, out, budget))) as models,
    ):

        def process(index: int, items: Sequence[Comparison]) -> ShardResult:
            return _shard(models().correct(items, out.shard_seed(index)))

        out.sharded("corrections", comparisons, SHARD, process, "comparisons", models, spread=budget is None)
    table = refinement(Correction(**row) for row in read_rows(out.directory, "corrections"))
    out.write_json("refinement", table)
    out.note("refinement", table)
    if table["rewritten"]:
        told = f"{table['rewritten']} of {table['scored']} responses rewritten ({table['refine_rate']:.1%})"
        out.log(f"correct: {told}", keep=True)
    if table["rated"] is not None:
        out.log(
            f"correct: rated {table['rated']:.2f} before, {table['rated_after'] or 0:.2f} after, over all responses",
            keep=True,
        )


def _comparisons(settings: CorrectSettings) -> list[Comparison]:
    source = settings.correct.source
    if source.type == "world":
        assert settings.world is not None
        return world.eval_comparisons(world.of_source(settings.world, source), settings.seed)
    return list(read_comparisons(source, "correct.source", labelled=False))


def _shard(done: "Corrected") -> ShardResult:
    dropped: Counter[str] = sum((Counter(t.failures) for t in done.trees), Counter())
    dropped.update(f"correction:{c.failure}" for c in done.corrections if c.failure)
    dropped["unscored"] += sum(c.score is None for c in done.corrections)
    tokens = [(int(cost.prompt_tokens), int(cost.generated_tokens)) for cost in map(cost_of, done.trees)]
    tokens += [(c.prompt_tokens, c.generated_tokens) for c in done.completions]
    return ShardResult(
        [asdict(c) for c in done.corrections],
        len(done.corrections),
        dropped,
        prompt_tokens=sum(prompt for prompt, _ in tokens),
        generated_tokens=sum(generated for _, generated in tokens),
        counts_out=sum(c.corrected is not None for c in done.corrections),
    )


Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
THRESHOLD = 3.0
"""Responses whose mean score is below this are rewritten (the paper's)."""

_ANALYSIS = (
    r"^[^\w\n]*Analysis of Response {side}[^\w\n:]*:(.*?)"
    r"(?=^[^\w\n]*(?:Response [AB] Score|Analysis of Response|Comparison)\b|\Z)"
)


@dataclass(frozen=True)
class Correction:
    """One response of a comparison, and what became of it."""

    comparison_id: str
    side: Side
    model: str
    query: str
    response: str
    score: float | None
    """Mean over the readable judgments; None if there is none."""
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
    """What the judge says of one response: by criterion, its score and analysis; other responses are left out.

    From the judgment that showed the response first, else from the other order; unreadable ones say nothing.
    """
    material, order = f"{tree.comparison.response_a}\n{tree.comparison.response_b}", "AB" if side == "A" else "BA"
    parts = []
    for criterion in tree.criteria:
        for guideline in criterion.guidelines:
            nodes = sorted(guideline.judgments, key=lambda j: j.order != order)
            node = next((j for j in nodes if j.verdict is not None), None)
            if node:
                parts.append(_part(criterion, node, side, material))
    return "\n\n".join(parts)


def _part(criterion: CriterionNode, node: JudgmentNode, side: Side, material: str) -> str:
    shown = side if node.order == "AB" else "AB"["BA".index(side)]
    answer = answer_of(node.text, material) or ""
    found = re.search(_ANALYSIS.format(side=shown), answer, re.IGNORECASE | re.MULTILINE | re.DOTALL)
    score = node.score_a if side == "A" else node.score_b
    analysis = (found[1].strip() if found else "") or "(no analysis)"
    return f"{criterion.text}\nScore: {score:g} of 5\nAnalysis: {analysis}"


@dataclass(frozen=True)
class Corrector:
    """Who judges, who rewrites, and who rates (:class:`Correction`), if anybody does.

    ``prompts`` has a step ``correction``. ``single``: both sides are one response, which is judged against itself (its
    score is the mean of both) and corrected once.
    """

    judge: BranchingJudge
    engine: Engine
    prompts: PromptSet
    sampling: SamplingConfig
    rater: PointwiseJudge | None = None
    single: bool = False

    def correct(self, comparisons: Sequence[Comparison], seed: int) -> Corrected:
        """Judge comparisons, and rewrite the responses that score below :data:`THRESHOLD`."""
        trees = self.judge.sample(comparisons, derive_seed(seed, "before"))
        sides = SIDES[:1] if self.single else SIDES
        of = [item for item in comparisons for _ in sides]
        judged = [_judged(tree, side, self.single) for tree in trees for side in sides]
        low = [i for i, c in enumerate(judged) if c.score is not None and c.score < THRESHOLD]
        requests = [self._request(judged[i], of[i]) for i in low]
        completions = self.engine.generate(requests, derive_seed(seed, "correct")) if requests else []
        for index, completion in zip(low, completions, strict=True):
            judged[index] = _taken(judged[index], completion)
        if self.rater is not None:
            judged = self._rated(judged, of, self.rater, derive_seed(seed, "rated"))
        return Corrected(judged, trees, completions)

    def close(self) -> None:
        """Free the models."""
        self.judge.close()
        if self.rater:
            self.rater.close()
        if self.engine is not self.judge.engine:
            self.engine.close()

    def _request(self, correction: Correction, comparison: Comparison) -> Request:
        slots = slots_of(comparison) | {"response": correction.response, "judgment": correction.evaluation}
        messages = self.prompts.render("correction", slots)
        return Request(messages=messages, sampling=Sampling.of(self.sampling), step="correction", slots=slots)

    @staticmethod
    def _rated(
        corrections: Sequence[Correction], of: Sequence[Comparison], rater: PointwiseJudge, seed: int
    ) -> list[Correction]:
        """The corrections with a rating of every response, and of every new text."""
        new = [i for i, c in enumerate(corrections) if c.corrected is not None]
        shown = [replace(item, response_a=c.response) for item, c in zip(of, corrections, strict=True)]
        shown += [replace(of[i], response_a=corrections[i].corrected or "") for i in new]
        given = [None if reply.answer is None else float(reply.answer) for reply in rater.rate(shown, seed)]
        after = dict(zip(new, given[len(corrections) :], strict=True))
        return [replace(c, rated=given[i], rated_after=after.get(i)) for i, c in enumerate(corrections)]


def _judged(tree: EvaluationTree, side: Side, single: bool) -> Correction:
    item = tree.comparison
    response, model = (item.response_a, item.model_a) if side == "A" else (item.response_b, item.model_b)
    scores = {s: average([j.score_a if s == "A" else j.score_b for _, _, j in tree.judgments()]) for s in SIDES}
    score = average([*scores.values()] if single else [scores[side]])
    return Correction(item.id, side, model, item.dialogue.query, response, score, evaluation_of(tree, side))


def _taken(correction: Correction, completion: Completion) -> Correction:
    """The correction with its new text, or with the reason why the old one stays."""
    if completion.finish_reason in UNANSWERED:
        return replace(correction, failure=completion.finish_reason)
    if completion.finish_reason == "length":
        return replace(correction, failure="cut_off")
    answer = answer_of(completion.text, "\n".join((correction.query, correction.response, correction.evaluation)))
    if answer is None:
        return replace(correction, failure=NO_ANSWER)
    text = answer.strip()
    if not text or text == correction.response.strip():
        return replace(correction, failure="unchanged" if text else "empty")
    return replace(correction, corrected=text)


def refinement(corrections: Iterable[Correction]) -> dict[str, Any]:
    """The manifest's table: how many were rewritten, and what that did to their scores.

    ``refine_rate``: share of the scored responses that were rewritten. ``rated`` and ``rated_after``: an external
    rater's mean over all responses that have both ratings, before and with the rewritten ones in the place of the old,
    from 1 to 10 (both: the paper's table 3).
    """
    everything = list(corrections)
    scored = [c for c in everything if c.score is not None]
    rewritten = [c for c in scored if c.corrected is not None]
    ratings = [(c.rated, c.rated if c.corrected is None else c.rated_after) for c in everything]
    both = [(before, after) for before, after in ratings if before is not None and after is not None]
    return {
        "responses": len(everything),
        "scored": len(scored),
        "rewritten": len(rewritten),
        "refine_rate": round(len(rewritten) / len(scored), 6) if scored else None,
        "failures": dict(sorted(Counter(c.failure for c in everything if c.failure).items())),
        "rated": mean([before for before, _ in both]),
        "rated_after": mean([after for _, after in both]),
    }
