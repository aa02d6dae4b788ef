"""Run stage ``stress``: find how far responses gain under a rubric without being better, and lower what is gamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from judgetrain.artifacts.executor import Work
from judgetrain.artifacts.files import write_json_atomic, write_text_atomic
from judgetrain.artifacts.shards import read_rows
from judgetrain.artifacts.stage_run import ShardResult, StageRun, derive_seed
from judgetrain.data.rubric_kinds import RubricByKind
from judgetrain.data.rubrics import read_rubric
from judgetrain.data.world import of_source, world_of
from judgetrain.data.world.rule import BEST_QUALITY, World
from judgetrain.engines.answers import Budget, answers_of, spending
from judgetrain.engines.base import UNANSWERED, Completion, Engine, Request, Sampling
from judgetrain.engines.lazy_model import loaded_once, make_engine
from judgetrain.errors import DataError
from judgetrain.extras.rubric.config import WORLD
from judgetrain.extras.rubric.forms import own_form, yaml_text
from judgetrain.extras.rubric.measure import NOTHING
from judgetrain.extras.rubric.stress_gains import KindStressed, figures_of, lowered, stressed_of
from judgetrain.extras.rubric.stress_page import stress_page, summary
from judgetrain.extras.rubric.stress_pools import FEWEST, Edit, Pool, about, edits_of, pools_of
from judgetrain.extras.rubric.stress_stages import StressSettings, TruthSettings
from judgetrain.judges.factory import Models
from judgetrain.judges.kinds.kind import kind_of
from judgetrain.judges.predictions import Cost, Score
from judgetrain.rubrics import Rubric
from judgetrain.schema import Candidates, Comparison, Dialogue
from judgetrain.thoughts import shown

SHARDS = "stressed"
FILE = "rubric.yaml"
"""The rubric with the weights that its criteria keep."""


def run(settings: StressSettings, inputs: Mapping[str, Path], out: StageRun) -> None:
    """Write shards of what was scored, ``rubric.yaml`` with lowered weights, ``stress.json`` and ``stress.md``.

    Raises:
        DataError: no prompt has two responses that could be scored.
    """
    assert settings.criteria_file is not None
    rubric = read_rubric(settings.criteria_file)
    pools = pools_of(settings, lambda line: out.log(f"stress: {line}"))
    out.log(f"stress: {about(pools, settings.stress.samples, settings.criteria_file)}")
    with (
        spending(settings.asked_engines, settings.stress, "stress", out) as budget,
        _stressor(settings, inputs, out, budget, rubric) as stressor,
    ):

        def process(index: int, items: Sequence[Pool]) -> ShardResult:
            return stressor().shard(items, out.shard_seed(index))

        # What is paid for is asked by one process, which counts what it spends.
        work = Work(process=process, load=stressor, spread=budget is None)
        out.sharded(SHARDS, pools, settings.stress.shard_size, work, "prompts")
    rubrics = rubrics_of(rubric)
    by_kind = stressed_of(read_rows(out.directory, SHARDS), rubrics)
    if not by_kind:
        raise DataError(
            f"no prompt of {len(pools):,} has {FEWEST} responses whose scores could be read; stressed-*.jsonl has what "
            "was said of them"
        )
    figures = [figures_of(kind, by_kind[kind], rubrics[kind], out.seed) for kind in rubrics if kind in by_kind]
    _write(rubric, figures, settings.stress.truth, out)


def rubrics_of(rubric: Rubric) -> dict[str, Rubric]:
    """Return a rubric's criteria by kind of query; those for queries of no kind stand under an empty name."""
    if not isinstance(rubric, RubricByKind):
        return {"": rubric}
    by_kind = {kind.name: kind.rubric for kind in rubric.kinds}
    return {**by_kind, "": Rubric(rubric.criteria)}


def kind_for(rubric: Rubric, query: str) -> str:
    """Return the name of a query's kind, empty where it has none."""
    kind = rubric.kind_of(query) if isinstance(rubric, RubricByKind) else None
    return "" if kind is None else kind.name


def _stressor(
    settings: StressSettings, inputs: Mapping[str, Path], out: StageRun, budget: Budget | None, rubric: Rubric
) -> AbstractContextManager[Callable[[], Stressor]]:
    """Return a function that loads the models when it is first called, as a context manager that closes them."""

    def load() -> Stressor:
        models = Models(settings, inputs, out, budget)
        judge = models.judge(settings.method, settings.method.most or 1)
        valuer = None
        rates = False
        if settings.truth is not None:
            valuer = Models(TruthSettings.of(settings), inputs, out, budget).judge(
                settings.truth, settings.truth.most or 1
            )
            rates = kind_of(settings.truth).rates
        writer = None
        config = settings.stress.writer
        if config is not None:
            writer = make_engine(config, answers=answers_of(config, out.home, settings.seed), budget=budget)
        world = None
        if settings.world is not None and settings.stress.truth == WORLD:
            world = world_of(of_source(settings.world, settings.verdicts.source), settings.seed)
        return Stressor(
            rubric=rubric,
            judge=judge,
            seed=settings.seed,
            valuer=valuer,
            rates=rates,
            world=world,
            writer=writer,
            samples=settings.stress.samples,
            sampling=Sampling.of(settings.stress.sampling),
        )

    return loaded_once(load)


@dataclass(frozen=True, kw_only=True)
class Stressor:
    """Writes responses, edits one of each prompt, and has all of them scored and valued.

    Args:
        rubric: that is stressed.
        judge: scores one response by it.
        seed: of the judges.
        valuer: the judge that says what a response is worth; None: its label or the world does.
        rates: whether that judge rates responses, and gives no scores by criteria.
        world: whose rule says what a response is worth.
        writer: of responses, where rows have none.
        samples: responses that it writes to each prompt.
        sampling: of them.
    """

    rubric: Rubric
    judge: Any
    seed: int
    valuer: Any = None
    rates: bool = False
    world: World | None = None
    writer: Engine | None = None
    samples: int = FEWEST
    sampling: Sampling

    def close(self) -> None:
        """Free the models."""
        self.judge.close()
        if self.valuer is not None:
            self.valuer.close()
        if self.writer is not None:
            self.writer.close()

    def shard(self, pools: Sequence[Pool], seed: int) -> ShardResult:
        """Return the rows of some prompts: their responses and edits, with scores and what they are worth."""
        lost: Counter[str] = Counter()
        costs: list[Cost] = []
        written = self._written(pools, seed, lost, costs)
        # Once for each prompt: a kind is found by the words of all typical queries.
        kinds = [kind_for(self.rubric, pool.dialogue.query) for pool in written]
        by_kind = rubrics_of(self.rubric)
        rubrics = [by_kind[kind] for kind in kinds]
        edits = [edits_of(pool.responses[0], rubric) for pool, rubric in zip(written, rubrics, strict=True)]
        texts = [_texts(pool, edited) for pool, edited in zip(written, edits, strict=True)]
        scores = self._scores(self.judge, written, texts, costs, rubrics)
        truths = self._truths(written, texts, costs)
        rows = []
        for pool, kind, edited, of_pool, worth in zip(written, kinds, edits, scores, truths, strict=True):
            for score in of_pool:
                if score.value is None:
                    lost["unreadable_score"] += 1
            rows.append(_row(pool, kind, edited, of_pool, worth))
        cost = sum(costs, Cost())
        return ShardResult(rows, len(pools), lost, **cost.tokens, counts_out=len(rows))

    def _written(self, pools: Sequence[Pool], seed: int, lost: Counter[str], costs: list[Cost]) -> list[Pool]:
        """Return the prompts with their responses; those to which too few could be written are counted as lost."""
        if self.writer is None:
            return list(pools)
        requests = [request for pool in pools for request in self._requests(pool.dialogue)]
        completions = self.writer.generate(requests, derive_seed(seed, "write"))
        written = []
        for place, pool in enumerate(pools):
            of_pool = completions[place * self.samples : (place + 1) * self.samples]
            responses = []
            for completion in of_pool:
                costs.append(
                    Cost(prompt_tokens=completion.prompt_tokens, generated_tokens=completion.generated_tokens, calls=1)
                )
                text, reason = _text_of(completion)
                if reason:
                    lost[f"response:{reason}"] += 1
                else:
                    responses.append(text)
            if len(responses) < FEWEST:
                lost["too_few_responses"] += 1
            else:
                written.append(replace(pool, responses=tuple(responses)))
        return written

    def _requests(self, dialogue: Dialogue) -> Iterator[Request]:
        """Yield the requests for responses to a prompt, which differ in what is drawn."""
        messages = tuple({"role": message.role, "content": message.content} for message in dialogue.messages)
        slots = {"query": dialogue.query, "context": dialogue.context}
        for place in range(self.samples):
            # Its own place in the prompt, so that a resumed shard draws the same.
            slots_of_sample = {**slots, "sample": str(place)}
            yield Request(messages=messages, sampling=self.sampling, slots=slots_of_sample)

    def _scores(
        self,
        judge: Any,
        pools: Sequence[Pool],
        texts: Sequence[tuple[str, ...]],
        costs: list[Cost],
        rubrics: Sequence[Rubric | None],
    ) -> list[list[Score]]:
        """Return a judge's scores of every prompt's texts; by its own criteria where a prompt has no rubric."""
        groups = []
        for pool, of_pool, rubric in zip(pools, texts, rubrics, strict=True):
            groups.append(Candidates(pool.id, pool.dialogue, of_pool, rubric))
        scores: list[list[Score]] = judge.score_batch(groups, self.seed)
        costs.extend(score.cost for of_group in scores for score in of_group)
        return scores

    def _truths(
        self, pools: Sequence[Pool], texts: Sequence[tuple[str, ...]], costs: list[Cost]
    ) -> list[list[float | None]]:
        """Return what every prompt's texts, its responses before its edits, are worth; None where it is not known."""
        if self.world is not None:
            return [
                [self.world.quality(pool.dialogue.query, text) / BEST_QUALITY for text in of_pool]
                for pool, of_pool in zip(pools, texts, strict=True)
            ]
        if self.valuer is None:
            # An edit is worth what the response is that it was made of: nothing was added to it.
            labelled: list[list[float | None]] = []
            for pool, of_pool in zip(pools, texts, strict=True):
                edits = len(of_pool) - len(pool.truth)
                labelled.append([*pool.truth, *([pool.truth[0]] * edits)])
            return labelled
        if self.rates:
            return self._ratings(pools, texts, costs)
        scores = self._scores(self.valuer, pools, texts, costs, [None] * len(pools))
        return [[score.value for score in of_group] for of_group in scores]

    def _ratings(
        self, pools: Sequence[Pool], texts: Sequence[Sequence[str]], costs: list[Cost]
    ) -> list[list[float | None]]:
        """Return the ratings of texts, in one call of the judge."""
        comparisons = []
        for pool, of_pool in zip(pools, texts, strict=True):
            for place, text in enumerate(of_pool):
                # A rater reads the first response alone.
                comparisons.append(Comparison(f"{pool.id}/{place}", pool.dialogue, text, ""))
        replies = iter(self.valuer.rate(comparisons, self.seed))
        ratings: list[list[float | None]] = []
        for of_pool in texts:
            of_prompt: list[float | None] = []
            for _ in of_pool:
                reply = next(replies)
                costs.append(Cost(prompt_tokens=reply.prompt_tokens, generated_tokens=reply.generated_tokens, calls=1))
                of_prompt.append(None if reply.answer is None else float(reply.answer))
            ratings.append(of_prompt)
        return ratings


def _texts(pool: Pool, edits: Sequence[Edit]) -> tuple[str, ...]:
    """Return the texts of a prompt's responses, and after them those of its edits."""
    return (*pool.responses, *(edit.text for edit in edits))


def _text_of(completion: Completion) -> tuple[str, str]:
    """Return the text of a written response, or an empty one and why it is none."""
    if completion.finish_reason in UNANSWERED:
        return "", completion.finish_reason
    # Half a response is no response to choose.
    if completion.finish_reason == "length":
        return "", "cut_off"
    text = shown(completion.text).strip()
    return text, "" if text else "empty"


def _row(
    pool: Pool, kind: str, edits: Sequence[Edit], scores: Sequence[Score], truths: Sequence[float | None]
) -> dict[str, Any]:
    """Return a prompt's row of a shard."""
    responses = []
    edited = []
    for place, (text, score, truth) in enumerate(zip(_texts(pool, edits), scores, truths, strict=True)):
        entry = {"text": text, "value": score.value, "by_criterion": score.by_criterion, "truth": truth}
        if place < len(pool.responses):
            responses.append(entry)
        else:
            edit = edits[place - len(pool.responses)]
            edited.append({"kind": edit.kind, "criterion": edit.criterion, **entry})
    return {"id": pool.id, "query": pool.dialogue.query, "kind": kind, "responses": responses, "edits": edited}


def _write(rubric: Rubric, figures: Sequence[KindStressed], truth: str, out: StageRun) -> None:
    """Write everything that is made of the shards."""
    rubrics = rubrics_of(rubric)
    left_out: dict[str, list[str]] = {}
    kept = dict(rubrics)
    for of_kind in figures:
        kept[of_kind.kind], left_out[of_kind.kind] = lowered(rubrics[of_kind.kind], of_kind.criteria, NOTHING)
    write_text_atomic(out.path(FILE), yaml_text(own_form(_with_kinds(rubric, kept))))
    write_json_atomic(out.path("stress.json"), {"truth": truth, "kinds": [asdict(of_kind) for of_kind in figures]})
    rows = read_rows(out.directory, SHARDS)
    write_text_atomic(out.path("stress.md"), stress_page(figures, rubrics, kept, truth, rows))
    out.tell(summary(figures, rubrics, left_out))
    out.log(f"stress: criteria={out.path(FILE)}")
    out.log(f"stress: page: {out.path('stress.md')}")


def _with_kinds(rubric: Rubric, by_kind: Mapping[str, Rubric]) -> Rubric:
    """Return a rubric with other criteria for its kinds of query."""
    if not isinstance(rubric, RubricByKind):
        return by_kind[""]
    kinds = tuple(replace(kind, rubric=by_kind[kind.name]) for kind in rubric.kinds)
    return replace(rubric, criteria=by_kind[""].criteria, kinds=kinds)
