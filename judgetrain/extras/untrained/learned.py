"""Judge by labelled pairs without training: by a rubric drawn from them, or by examples in the prompt.

The methods are ``rubric:N`` and ``fewshot:N``.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, cast

import numpy as np

from judgetrain.artifacts.shards import markers_of, read_rows
from judgetrain.artifacts.stage_run import ShardResult, derive_seed, tokens_of
from judgetrain.data.benchmarks.benchmark import Benchmark
from judgetrain.data.clustering import Encoder
from judgetrain.data.config import ClusterConfig
from judgetrain.data.duplicates import BenchmarkQueries, question_texts
from judgetrain.engines.base import UNANSWERED, Completion, Request, Sampling
from judgetrain.engines.lazy_model import loaded_once
from judgetrain.errors import ConfigError
from judgetrain.evaluate.metrics.rows import Learned
from judgetrain.evaluate.runners.base import Evaluation, Result, RowMaker
from judgetrain.evaluate.runners.judges import ask_judge
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.extras.untrained.prompted import RubricAsking, depends_on, judge_by
from judgetrain.judges.kinds.kind import Use, kind_of
from judgetrain.judges.kinds.prompted import replies_shard
from judgetrain.judges.kinds.tree_predictions import predict
from judgetrain.judges.method import Method
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.predictions import Prediction
from judgetrain.judges.prompting.parsing import parse_criteria
from judgetrain.judges.prompting.prompts import PromptSet, has_step, load_prompt_set, prompt_file, slots_of
from judgetrain.judges.settings import check_model
from judgetrain.judges.trees.grow import Shape, TreeModel, grow
from judgetrain.judges.trees.schema import shard_of
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import RESPONSES, Comparison

Near = Callable[[Sequence[Comparison]], Sequence[Sequence[Comparison]]]
FEWEST = {"rubric": 6, "fewshot": 1, "probe": 20}
"""Pairs that a method needs; of those for a rubric a third is held out, of those for a probe a tenth at a time."""
CRITERIA = 4
"""Criteria of a rubric at most: each costs a judgment of every response."""
ROUNDS = 4
"""Rubrics that are drawn at most."""
SHOWN = 60_000
"""Characters of pairs in one prompt, some 15,000 tokens."""
SHOTS = 4
"""Examples before a question."""
ONCE = Shape(count=1, criteria=1, orders=RESPONSES)
"""One judgment of each response by each criterion."""


def labelled_pairs(method: Method, evaluation: Evaluation) -> list[Comparison] | None:
    """Return the training comparisons that a method learns from (:func:`found_pairs`), as many as it names.

    Where there are fewer it learns from these, and from none where they are fewer than it needs (:func:`are_enough`). A
    dry run, for which no stage upstream is made, takes the benchmarks' own, which cost as much.
    """
    if "responses" not in evaluation.inputs:
        of_benchmarks = [item for benchmark in evaluation.benchmarks for item in benchmark.comparisons]
        return (of_benchmarks * method.labels)[: method.labels]
    pairs, counts = found_pairs(method.labels, evaluation)
    return pairs if are_enough(len(pairs), method, evaluation, counts) else None


def are_enough(number: int, method: Method, evaluation: Evaluation, counts: str) -> bool:
    """Return whether a method can learn from so many pairs, and log that they are fewer than it names.

    Too few are no error: a recipe may name the method, and its user's labels come from a stage before.

    Args:
        number: of pairs that were found.
        method: the method.
        evaluation: that goes on.
        counts: what was found, in words.
    """
    if number < FEWEST[method.kind]:
        evaluation.out.log(f"evaluate: {method.name}: {counts}: too few to learn from, no verdicts", keep=True)
        return False
    if number < method.labels:
        evaluation.out.log(f"evaluate: {method.name}: {counts}: it learns from these", keep=True)
    return True


def found_pairs(number: int, evaluation: Evaluation) -> tuple[list[Comparison], str]:
    """Return at most so many training comparisons with a label of A or B, drawn at random, and in words how many are.

    None is one whose better side follows from how it was made, and none has a query of a benchmark, nor nearly one. Of
    a smaller number they are the first of a larger one's.
    """
    rows = [Comparison.from_row(row) for row in read_rows(evaluation.inputs["responses"], "comparisons")]
    # Constructed pairs are left out: a rubric drawn from them would describe how they were made.
    labelled = [row for row in rows if row.label in ("A", "B") and not row.alone and not row.made]

    # Ordered by a hash of the id: rows that are added or taken out leave the others in their order.
    labelled.sort(key=lambda comparison: derive_seed(evaluation.settings.seed, comparison.id))
    measured: list[tuple[str, str]] = []
    for benchmark in evaluation.benchmarks:
        for comparison in benchmark.comparisons:
            measured.extend(("", query) for query in question_texts(comparison.dialogue))
    queries = BenchmarkQueries(measured)
    pairs: list[Comparison] = []
    for comparison in labelled:
        if len(pairs) == number:
            break
        # Checked one by one until there are enough: most files hold far more labelled rows than are named.
        if not any(queries.matches(comparison.dialogue)):
            pairs.append(comparison)
    counts = f"{len(labelled)} of {len(rows)} training rows are labelled A or B, {len(pairs)} have no benchmark's query"
    return pairs, counts


def without_verdicts(
    method: Method, evaluation: Evaluation, reason: str = "too_few_labels"
) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield every benchmark without a verdict, so that the method is in the tables with the reason."""
    for benchmark in evaluation.benchmarks:
        predictions = []
        for comparison in benchmark.comparisons:
            predictions.append(Prediction.of(comparison, method.name, failures={reason: 1}))
        yield benchmark, [(predictions, 0.0)]


def check_learned(method: Method, settings: EvaluateSettings) -> None:
    """Check the model, and that the method names enough pairs.

    Raises:
        ConfigError: names the method and what is allowed.
    """
    fewest = FEWEST[method.kind]
    if method.labels < fewest:
        raise ConfigError(
            f"evaluate.methods: {method.text!r}: expected {method.kind}:N or {method.kind}:N:MODEL, N at least "
            f"{fewest} labelled pairs"
        )
    check_model(settings, method.asked_as, "evaluate.methods")


def check_rubric(settings: EvaluateSettings, method: Method, use: Use) -> None:
    """Refuse a model that cannot be asked, too few pairs, and a prompt set that cannot be read."""
    check_learned(method, settings)
    rubric_prompts(settings)


def run_rubric(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Draw a rubric from labelled pairs, then yield every benchmark judged by it, one response at a time.

    The model is shown pairs and names criteria. It judges all pairs by these, and is shown those that they got wrong,
    until the agreement on a third of the pairs, which it is never shown, stops rising. The rounds are kept as the shard
    ``rubric-METHOD``, the judgments as ``trees-BENCHMARK-METHOD``.
    """
    models = evaluation.models
    by = method.asked_as
    pairs = labelled_pairs(method, evaluation)
    if pairs is None:
        yield from without_verdicts(method, evaluation)
        return
    prompts = rubric_prompts(evaluation.settings)
    options = replace(models.options(by), aggregation="mean", fitted=None, thresholds=None, early_stop=False)
    # Judged without guidelines: the criteria are all that the model has drawn.
    options = replace(options, steps=replace(options.steps, write_guidelines=False))
    shards = f"rubric-{method.file_name}"
    is_dry_run = "responses" not in evaluation.inputs
    depends = depends_on(method, evaluation, options)
    # Labels besides, which the comparisons of a fingerprint otherwise leave out: here the model is shown them.
    depends |= {"labels": [pair.label for pair in pairs], "drawn by": prompts.source}
    with loaded_once(lambda: models.judge(by)) as judge:

        def draw(loaded: Any, items: Sequence[Comparison], seed: int) -> ShardResult:
            return RubricDrawing(loaded, prompts, options, every=is_dry_run).rounds(items, seed)

        maker = RowMaker(
            kind="rubric",
            name=method.name,
            load=judge,
            process=draw,
            depends=depends,
            # All pairs are one shard, since each round begins with what the one before got wrong.
            size=len(pairs),
            gpus=models.gpus(by),
        )
        evaluation.fill(shards, pairs, maker)
        rubric = _best(method, by, evaluation, shards, len(pairs))
        if rubric is not None:
            asking = RubricAsking(rubric=rubric, options=options, shape=ONCE)
            yield from judge_by(asking, method, evaluation, judge)
            return
    # A model that names no criteria has no verdicts.
    yield from without_verdicts(method, evaluation, "rubric:none")


def _best(method: Method, by: Method, evaluation: Evaluation, shards: str, labels: int) -> Rubric | None:
    """Return the best of the rubrics that were drawn, and note what drawing them took.

    Args:
        method: the method.
        by: the model that drew, as a method.
        evaluation: that goes on.
        shards: their name.
        labels: number of pairs that were learned from.
    """
    out = evaluation.out
    rounds = list(read_rows(out.directory, shards))
    # One shard, and so one marker.
    (marker,) = markers_of(out.directory, shards)
    tokens = {f"{kind}_tokens": marker["tokens"][kind] for kind in ("prompt", "generated")}
    engine = evaluation.models.external(by.target)
    money = None
    if engine:
        money = engine.money(**tokens)
    evaluation.learned[method.name] = Learned(
        labels=labels, calls=marker["facts"]["calls"], seconds=marker["seconds"], money=money, **tokens
    )
    # Of equal ones the first.
    best = max(rounds, key=lambda row: row["agreement"], default=None)
    if best is None:
        out.log(f"evaluate: {method.name}: the model named no criteria, so that it has no verdicts")
        return None
    criteria = "; ".join(best["criteria"])
    out.log(f"evaluate: {method.name}: {best['agreement']:.0%} of the held-out pairs by: {criteria}")
    return _rubric(best["criteria"])


def _rubric(criteria: Sequence[str]) -> Rubric:
    """Return the rubric of these criteria."""
    return Rubric(tuple(Criterion(text=text) for text in criteria))


def rubric_prompts(settings: EvaluateSettings) -> PromptSet:
    """Return the run's own prompt set where it has the steps, else the packaged one."""
    file = prompt_file(settings.prompts or "")
    if has_step(file, "rubric"):
        return load_prompt_set(file, "rubric")
    return load_prompt_set("rubric", "rubric")


@dataclass(frozen=True)
class RubricDrawing:
    """Draws a rubric from labelled pairs, round by round.

    Args:
        judge: asked for criteria and for judgments.
        prompts: with the steps of drawing a rubric.
        options: how the judge is asked.
        every: make all rounds, as in a dry run, which cannot know when the agreement stops rising.
    """

    judge: Any
    prompts: PromptSet
    options: JudgeOptions
    every: bool = False

    def rounds(self, pairs: Sequence[Comparison], seed: int) -> ShardResult:
        """Return the rounds as a finished shard: criteria, and the agreement on the held-out pairs.

        Args:
            pairs: labelled.
            seed: of the shard.
        """
        is_held_out = _held_out(pairs)
        shown = [pair for pair, held in zip(pairs, is_held_out, strict=True) if not held]
        rounds: list[dict[str, Any]] = []
        spent: list[Any] = []
        failures = Counter[str]()
        calls = 0
        # Without a pair that the last criteria got wrong there is nothing to draw others from.
        while len(rounds) < ROUNDS and shown:
            number = len(rounds)
            before: list[str] = []
            if rounds:
                before = rounds[-1]["criteria"]
            criteria, completions = self._named(shown, before, derive_seed(seed, number))
            spent += completions
            calls += len(completions)
            if not criteria:
                failures[f"rubric:{_reason(completions)}"] += 1
                break
            shard, is_right = self._judged(pairs, criteria, derive_seed(seed, "judged", number))
            failures.update(shard.dropped)
            spent.append(shard)

            # Each response is judged by itself, once by each criterion.
            calls += 2 * len(criteria) * len(pairs)
            held_out = [right for right, held in zip(is_right, is_held_out, strict=True) if held]
            agreement = round(sum(held_out) / len(held_out), 6)
            rounds.append({"criteria": criteria, "agreement": agreement})
            if not self.every and number and agreement <= rounds[-2]["agreement"]:
                break
            # The next criteria are to tell apart what these could not.
            shown = []
            for pair, right, held in zip(pairs, is_right, is_held_out, strict=True):
                if not right and not held:
                    shown.append(pair)
        return ShardResult(rounds, len(rounds), failures, **tokens_of(spent), facts={"calls": calls})

    def _judged(
        self, pairs: Sequence[Comparison], criteria: Sequence[str], seed: int
    ) -> tuple[ShardResult, list[bool]]:
        """Return the judgments of pairs by some criteria as a shard, and which pairs they get right."""
        rubric = _rubric(criteria)
        by_rubric = [replace(pair, rubric=rubric) for pair in pairs]
        trees = grow(by_rubric, TreeModel(self.judge.engine, self.judge.prompts, self.options.steps), ONCE, seed)
        is_right = []
        for tree, pair in zip(trees, pairs, strict=True):
            is_right.append(predict(tree, 1, self.options, "").verdict == pair.label)
        return shard_of(trees), is_right

    def _named(
        self, pairs: Sequence[Comparison], criteria: Sequence[str], seed: int
    ) -> tuple[list[str], list[Completion]]:
        """Return the criteria that the model names for pairs, and its completions.

        Args:
            pairs: as many as fit are shown, the better response first.
            criteria: of the round before.
            seed: of the request.
        """
        better_first = []
        texts = []
        for pair in pairs:
            if pair.label != "A":
                pair = pair.swapped()
            better_first.append(pair)
            # The better one always stands first: the prompt says so, and no label need be shown.
            slots = slots_of(pair) | {"response_a": pair.response_a, "response_b": pair.response_b}
            texts.append(self.prompts.render("pair", slots)[-1]["content"])
        # As many as have so many characters together, but one in any case.
        count = sum(length <= SHOWN for length in accumulate(map(len, texts))) or 1
        texts = texts[:count]
        numbered = "\n".join(f"{number}. {text}" for number, text in enumerate(criteria, 1))
        completions: list[Completion] = []
        while texts:
            shown = [(pair.response_a, pair.response_b) for pair in better_first[: len(texts)]]
            slots = {"pairs": "\n\n".join(texts), "criteria": numbered or "none", "count": str(CRITERIA)}
            request = Request(
                messages=self.prompts.render("rubric", slots),
                sampling=Sampling.of(self.options.steps.criteria_sampling),
                step="rubric",
                slots=slots | {"shown": json.dumps(shown)},
            )
            completions += self.judge.engine.generate([request], seed)
            if completions[-1].finish_reason != "too_long":
                return parse_criteria(completions[-1].text, CRITERIA, slots["pairs"]), completions

            # SHOWN is a guess at what fits: a tokenizer may need more tokens for these texts.
            texts = texts[: len(texts) // 2]
        return [], completions


def _held_out(pairs: Sequence[Comparison]) -> list[bool]:
    """Return which pairs are held out: every third query with all its pairs, or every third pair if queries are few."""
    groups: list[Any] = [pair.dialogue.query for pair in pairs]
    # With fewer queries one of them would be a third of the pairs or more, or all of them.
    if len(set(groups)) < 3:
        groups = [*range(len(pairs))]
    held_out = set([*dict.fromkeys(groups)][::3])
    return [group in held_out for group in groups]


def _reason(completions: Sequence[Completion]) -> str:
    """Return why a model named no criteria."""
    if completions and completions[-1].finish_reason in UNANSWERED:
        return completions[-1].finish_reason
    return "none"


@dataclass
class Nearest:
    """Finds the labelled pairs whose queries are most like a comparison's, the nearest last.

    Args:
        pairs: all of them.
        config: of the encoder, which is loaded once.
    """

    pairs: Sequence[Comparison]
    config: ClusterConfig

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.config)

    @cached_property
    def _embeddings(self) -> Any:
        """Return the embeddings of the pairs' queries [pairs, dimensions]."""
        return self._embed(self.pairs)

    def _embed(self, comparisons: Sequence[Comparison]) -> Any:
        """Return the embeddings of the comparisons' queries [comparisons, dimensions]."""
        return self._encoder([comparison.dialogue.query for comparison in comparisons]).astype(np.float32)

    def __call__(self, items: Sequence[Comparison]) -> list[list[Comparison]]:
        """Return at most :data:`SHOTS` pairs for each item."""
        similarities = self._embed(items) @ self._embeddings.T
        nearest = []
        for row in similarities:
            # The nearest stands last, right before the question; equally near ones keep their order.
            places = np.argsort(row, kind="stable")[-SHOTS:]
            nearest.append([self.pairs[place] for place in places])
        return nearest


def replied(judge: Any, items: Sequence[Comparison], seed: int, near: Near) -> ShardResult:
    """Return the replies on comparisons as a finished shard, each asked after the examples that ``near`` finds.

    Where a prompt is too long for the context, it is asked after the nearer half of its examples, until none is left.
    """
    examples = list(near(items))
    replies = judge.ask(items, seed, examples=examples)
    while True:
        too_long = []
        for place, shown in enumerate(examples):
            # A comparison that does not fit without any example is too long for the pairwise judge as well.
            if shown and any(reply.failure == "too_long" for reply in replies[place]):
                too_long.append(place)
        if not too_long:
            return replies_shard(items, replies)
        for place in too_long:
            # The nearest examples stand last, and stay.
            examples[place] = examples[place][(len(examples[place]) + 1) // 2 :]
        shorter = [examples[place] for place in too_long]
        again = judge.ask([items[place] for place in too_long], seed, examples=shorter)
        for place, new_replies in zip(too_long, again, strict=True):
            replies[place] = new_replies


def check_fewshot(settings: EvaluateSettings, method: Method, use: Use) -> None:
    """Refuse what the pairwise judge refuses, too few pairs, and a prompt set whose verdicts are no marks."""
    check_learned(method, settings)
    by = method.asked_as
    kind_of(by).check(settings, by, use)
    assert settings.pairwise is not None
    # The examples end in marks, so the verdicts must.
    if load_prompt_set(settings.pairwise.prompts, "pairwise").reply_form:
        raise ConfigError(
            f"evaluate.pairwise.prompts={settings.pairwise.prompts}: its verdicts have a form of its own, and the "
            f"examples of {method.text!r} end in [[A]] or [[B]]; choose another set"
        )


def run_fewshot(method: Method, evaluation: Evaluation) -> Iterator[tuple[Benchmark, list[Result]]]:
    """Yield every benchmark as the pairwise judge sees it after the labelled pairs that are most like a comparison."""
    pairs = labelled_pairs(method, evaluation)
    if pairs is None:
        yield from without_verdicts(method, evaluation)
        return
    settings = cast(Any, evaluation.settings)
    config: ClusterConfig = settings.untrained
    evaluation.learned[method.name] = Learned(labels=len(pairs))
    name = None
    if not method.is_directory:
        # A directory is held by its content.
        name = method.text
    depends = {"name": name, "pairs": [pair.to_row() for pair in pairs], "encoder": config}
    yield from ask_judge(method, evaluation, partial(replied, near=Nearest(pairs, config)), depends)
