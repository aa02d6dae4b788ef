"""Judges that need no prompt: scorers, alone and in the table, and the floor of surface statistics."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data import world
from judgetrain.data.config import BenchmarkConfig, SourceConfig, WorldConfig
from judgetrain.engines.config import ModelConfig
from judgetrain.errors import ConfigError
from judgetrain.evaluate import stage
from judgetrain.evaluate.config import EvaluateConfig
from judgetrain.evaluate.runners import scorers as scorer_runner
from judgetrain.evaluate.stages import EvaluateSettings
from judgetrain.judges import BASELINES, ScorerJudge
from judgetrain.judges.kinds.baselines import STRENGTH, SurfaceJudge, differences, predictions, samples_of, verdict_of
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison, Message
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Unscored
from judgetrain.scorers.estimator import Scores, Usage
from judgetrain.scorers.methods import OF_RESPONSES, SCORERS, groups, score
from judgetrain.scorers.statistics import TokenScorer
from tests.builders.evaluate import UNATTACKED
from tests.builders.pipeline import check_stage
from tests.builders.pipeline import configured as configured_by
from tests.builders.scripted import comparison

COMPARISONS = world.eval_comparisons(WorldConfig(eval_comparisons=12), 0)
METHODS = ["scorer:sentprob", "scorer:softmax_combo", "scorer:attnent_avg", "longer"]


@pytest.fixture(scope="module")
def base() -> TokenScorer:
    return TokenScorer.from_pretrained("world")


def test_a_response_without_a_text_has_no_score_and_loses(base: TokenScorer) -> None:
    texts = {"A": ("yes", " \n"), "B": ("", "no"), None: ("", "")}
    asked = [replace(COMPARISONS[0], response_a=a, response_b=b) for a, b in texts.values()]
    for name in ("sentprob", "softmax_combo"):
        found = ScorerJudge(base, name).compare_all(asked, 0)
        assert [p.verdict for p in found] == ["A", "B", "tie"]
        assert [p.margin for p in found] == [None] * 3, "no number stands in for a score"
        assert [p.failures for p in found] == [{}] * 3
    assert [c.longer for c in asked] == ["A", "B", "tie"]


@pytest.mark.parametrize("method", ["sentprob", "softmax_ent", "softmax_combo", "attnent_min"])
def test_the_better_score_wins_whatever_the_order(base: TokenScorer, method: str) -> None:
    judge = ScorerJudge(base, method)
    found = judge.compare_all(COMPARISONS, 0)
    scores = score(base, samples_of(COMPARISONS), (method,))[method].oriented
    for i, prediction in enumerate(found):
        a, b = scores[2 * i], scores[2 * i + 1]
        assert prediction.margin == pytest.approx(a - b, abs=1e-4)  # type: ignore[operator]
        assert prediction.verdict_ab == prediction.verdict_ba == ("A" if a > b else "B")  # type: ignore[operator]
        assert (prediction.method, prediction.judgments, prediction.branches) == (f"scorer:{method}", 2, 0)
    if method != "softmax_combo":
        swapped = judge.compare(COMPARISONS[0].swapped())
        assert swapped.verdict_ab == {"A": "B", "B": "A"}[found[0].verdict_ab]  # type: ignore[index]


def test_cost_counts_the_tokens_that_were_read(base: TokenScorer) -> None:
    (prediction,) = ScorerJudge(base, "sentprob").compare_all(COMPARISONS[:1], 0)
    lengths = [len(tokens) for tokens in base.encode(samples_of(COMPARISONS[:1]))]  # type: ignore[arg-type]
    assert (prediction.cost.prompt_tokens, prediction.cost.generated_tokens, prediction.cost.calls) == (
        sum(lengths),
        0,
        2,
    )


def test_ties_within_the_threshold_and_responses_without_a_score() -> None:
    assert [verdict_of(m, 0.5) for m in (0.5, -0.5, 0.51, -0.6)] == ["tie", "tie", "A", "B"]
    assert [verdict_of(m, 0.5) for m in (None, float("nan"))] == [None, None]
    scores = Scores("x", [1.0, 0.0, Unscored("empty_response"), 2.0], -1)
    found = predictions(COMPARISONS[:2], scores, "m", Usage(10, 4, 2))
    assert [(p.verdict_ab, p.margin, p.failures) for p in found] == [
        ("B", -1.0, {}),
        (None, None, {"empty_response": 1}),
    ]
    assert found[0].cost.prompt_tokens == 5


def test_scores_that_read_no_given_response_are_no_judges(base: TokenScorer) -> None:
    assert set(SCORERS) - set(OF_RESPONSES) == {"decensem_exp", "decensem_var"}
    with pytest.raises(ConfigError, match="selfeval"):
        ScorerJudge(base, "decensem_exp")
    with pytest.raises(ConfigError, match="no scorer"):
        ScorerJudge(base, "magic")


def test_scores_are_computed_in_as_few_passes_as_they_need() -> None:
    names = ["softmax_combo", "sentprob", "softmax_ent", "attnent_min", "attnent_avg", "prmensem_exp", "prmensem_var"]
    assert groups([*names, "probdiff"]) == {
        "single_pass": ["softmax_ent", "softmax_var", "sentprob", "attnent_min", "attnent_avg"],
        "prmensem": ["prmensem_exp", "prmensem_var"],
        "probdiff": ["probdiff"],
    }


def test_all_scorers_in_one_call(base: TokenScorer) -> None:
    settings = ScorerConfig(max_new_tokens=8, revision_temperature=1.0)
    found = score(base, samples_of(COMPARISONS[:2]), SCORERS, settings)
    assert list(found) == list(SCORERS)
    for name, scores in found.items():
        assert len(scores.oriented) == 4
        if name != "self_generation":
            assert sum(value is not None for value in scores.oriented) >= 3, name


def configured(tmp_path: Path, methods: list[str]) -> Config:
    benchmark = BenchmarkConfig("world", SourceConfig(name="world", type="world"))
    config = Config(evaluate=EvaluateConfig([benchmark], methods, [1], bootstrap=50), robustness=UNATTACKED)
    config.dialogues.world.eval_comparisons = 12
    config.train.base = ModelConfig(path="world")
    return config


def test_scorers_stand_in_the_table_with_their_auc(
    base: TokenScorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[int] = []
    real = scorer_runner.load_scorer
    monkeypatch.setattr(scorer_runner, "load_scorer", lambda *given: loads.append(1) or real(*given))
    config = configured(tmp_path, METHODS)
    check_stage("evaluate", config)
    run = StageRun(tmp_path / "out", "evaluate", 1, Console())
    stage.run(EvaluateSettings.of(config), {}, run)
    assert run.totals()["counts"]["in"] == 12 + 12, "one pass over the comparisons, attention too, and the baseline's"
    rows = {r["method"]: r for r in json.loads((tmp_path / "out" / "metrics.json").read_text())}
    assert list(rows) == METHODS
    assert loads == [1] * 1, "one model for all scorers"
    comparisons = world.eval_comparisons(config.dialogues.world, config.seed)
    for method in METHODS[:3]:
        row, name = rows[method], method.removeprefix("scorer:")
        oriented = score(base, samples_of(comparisons), (name,))[name].oriented
        margins = [a - b for a, b in zip(oriented[::2], oriented[1::2], strict=True)]  # type: ignore[operator]
        labels = [c.label for c in comparisons]
        wins = [(m > n) + (m == n) / 2 for m, x in zip(margins, labels, strict=True) if x == "A"
                for n, y in zip(margins, labels, strict=True) if y == "B"]  # fmt: skip
        assert row["auc"] == pytest.approx(sum(wins) / len(wins))
        assert 0 <= row["auc_ci"][0] <= row["auc"] <= row["auc_ci"][1] <= 1
        truth = [{"A": 1, "tie": 0, "B": -1}[y] for y in labels]  # type: ignore[index]
        for correlation, expected in (("pearson", stats.pearsonr), ("kendall", stats.kendalltau)):
            assert row[correlation] == pytest.approx(expected(margins, truth).statistic, abs=1e-5)
            low, high = row[f"{correlation}_ci"]
            assert -1 <= low < high <= 1
        right = [("A" if m > 0 else "B") == y for m, y in zip(margins, labels, strict=True)]
        assert row["agreement"] == pytest.approx(sum(right) / 12)
        assert (row["consistency"], row["generated_tokens"], row["parse_failures"]) == (1.0, 0.0, 0)
        assert row["seconds"] > 0
    assert rows["longer"]["auc"] is None and "pearson" not in rows["longer"]
    assert "| AUC |" in (tmp_path / "out" / "report.md").read_text()
    # Everything is there: a second run computes no score again, and gives the same table.
    stage.run(EvaluateSettings.of(config), {}, StageRun(tmp_path / "out", "evaluate", 1, Console()))
    assert loads == [1]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.evaluate.methods.append("scorer:decensem_exp"), "scorer:decensem_exp"),
        (lambda c: setattr(c.scorer, "revision_prompt", "long"), r"scorer\.revision_prompt='long'"),
        (lambda c: setattr(c.scorer, "model", ModelConfig(path="./nowhere")), r"scorer\.model\.path"),
        (lambda c: setattr(c.train, "base", ModelConfig()), r"train\.base\.path is empty"),
    ],
)
def test_wrong_scorer_settings_are_refused_before_a_model_loads(tmp_path: Path, change: Any, expected: str) -> None:
    config = configured(tmp_path, list(METHODS))
    check_stage("evaluate", config)
    change(config)
    with pytest.raises(ConfigError, match=expected):
        check_stage("evaluate", config)


def test_the_recipe_has_every_scorer_of_given_responses_beside_the_judges() -> None:
    config, plain = configured_by("recipe=quickstart_scorers"), configured_by("recipe=quickstart")
    check_stage("evaluate", config)
    greedily = [method for method in plain.evaluate.methods if "+" not in method and ":" not in method]
    judges = len(greedily)
    assert config.evaluate.methods[:judges] == greedily
    assert sorted(config.evaluate.methods[judges:]) == sorted(f"scorer:{name}" for name in OF_RESPONSES)
    assert config.train == plain.train and config.tree == plain.tree, "all but stage evaluate is the quickstart's"


WORDS = ("red", "green", "blue", "grey", "pink", "brown")


def made(count: int, seed: int, share: float = 1.0, ties: int = 0) -> list[Comparison]:
    """Comparisons in which the side that says "please" is the better one in a ``share``; the last ``ties`` are ties."""
    rng, found = random.Random(seed), []
    for i in range(count):
        a, b = (" ".join(rng.choices(WORDS, k=6)) for _ in range(2))
        polite = rng.choice("AB")
        a, b = (a + " please", b) if polite == "A" else (a, b + " please")
        label = polite if rng.random() < share else {"A": "B", "B": "A"}[polite]
        found.append(comparison(i, a, b, "tie" if i >= count - ties else label))
    return found


def verdicts(comparisons: list[Comparison]) -> list[str | None]:
    found = SurfaceJudge().compare_all(comparisons, 0)
    assert all(p.verdict_ab == p.verdict_ba for p in found)
    return [p.verdict_ab for p in found]


def test_a_telling_word_is_found_and_noise_is_not() -> None:
    items = made(200, 0, ties=20)
    assert verdicts(items)[:180] == [c.label for c in items[:180]]
    noise = made(600, 1, share=0.5)
    right = np.mean([v == c.label for v, c in zip(verdicts(noise), noise, strict=True)])
    assert abs(right - 0.5) < 0.08  # standard error 0.02


def test_exchanged_responses_exchange_the_verdicts() -> None:
    items = made(120, 2, share=0.8)
    mirrored = {"A": "B", "B": "A"}
    assert verdicts([c.swapped() for c in items]) == [mirrored[v] for v in verdicts(items) if v]


def test_a_prompts_own_labels_are_not_learned_from() -> None:
    """Each prompt has words of its own that tell its four comparisons apart: of other prompts they say nothing."""
    items = []
    for i in range(160):
        better, worse = f"good{i // 4}", f"poor{i // 4}"
        each = comparison(i, better, worse, "A") if i % 2 else comparison(i, worse, better, "B")
        items.append(replace(each, dialogue=replace(each.dialogue, messages=(Message("user", f"prompt {i // 4}"),))))
    assert verdicts(items) == ["tie"] * 160
    alone = [replace(c, dialogue=replace(c.dialogue, messages=(Message("user", c.id),))) for c in items]
    assert verdicts(alone) == [c.label for c in alone]


def test_verdicts_are_those_of_another_solver() -> None:
    items = made(150, 3, share=0.7)
    features = differences(items).toarray()
    signs = np.array([1 if c.label == "A" else -1 for c in items])
    prompts = np.unique([repr(c.dialogue.messages) for c in items], return_inverse=True)[1]
    found = np.zeros(len(items))
    for others, fold in GroupKFold(10).split(features, groups=prompts):
        strength = STRENGTH * 1000 / len(others)
        model = LogisticRegression(C=strength, fit_intercept=False, solver="lbfgs", tol=1e-8, max_iter=5000)
        both = np.vstack([features[others], -features[others]])
        model.fit(both, np.concatenate([signs[others], -signs[others]]))
        found[fold] = features[fold] @ model.coef_[0]
    assert verdicts(items) == ["A" if margin > 0 else "B" for margin in found]


def test_without_labels_there_is_no_verdict() -> None:
    found = SurfaceJudge().compare_all([comparison(i) for i in range(5)], 0)
    assert [(p.verdict_ab, p.failures) for p in found] == [(None, {"too_few_labels": 1})] * 5
    alone = SurfaceJudge().compare(comparison(0, label="A"))
    assert alone.verdict_ab is None
    assert BASELINES["surface"] is SurfaceJudge
