"""Glass-box scores against formulas worked out in NumPy from the plain way's full logits."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from judgetrain.artifacts.stage_run import derive_seed
from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.errors import ConfigError
from judgetrain.scorers import glassbox, methods
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import (
    COLUMNS,
    Sample,
    Tokens,
    TokenStatistics,
    Unscored,
    fill,
    load_scorer_prompts,
    with_system,
)
from judgetrain.scorers.estimator import Scores
from judgetrain.scorers.glassbox import combine, rating, read
from judgetrain.scorers.methods import better
from judgetrain.scorers.statistics import TokenScorer
from tests.builders import scorers as plain

Numbers = dict[str, float]


def chat(*texts: str) -> tuple[dict[str, str], ...]:
    return tuple({"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts))


SAMPLES = [
    Sample(chat("the cat"), " the dog sat on 1", "on the mat"),
    Sample(chat("list a dog"), " fast", "the cat ran fast and sat"),
    Sample(chat("the dog", "sat on mat", "and"), " the cat and the dog ran fast on the mat", "9 8 7"),
]


def score(
    scorer: TokenScorer, samples: list[Sample], names: tuple[str, ...], seed: int = 0, **settings: Any
) -> dict[str, Scores]:
    return methods.score(scorer, samples, names, ScorerConfig(**settings), seed)


TOO_LONG = Completion(prompt_tokens=9999, finish_reason="too_long")


def done(text: str) -> Completion:
    return Completion(text=text, prompt_tokens=1, generated_tokens=1, finish_reason="stop")


def writes(scorer: TokenScorer, monkeypatch: pytest.MonkeyPatch, *completions: Completion) -> list[Request]:
    """Have the scorer's model write these; gives what it is asked."""
    asked: list[Request] = []
    engine = SimpleNamespace(generate=lambda requests, seed: asked.extend(requests) or [*completions])
    monkeypatch.setitem(vars(scorer), "engine", engine)
    return asked


def by_equation(scorer: TokenScorer, sample: Sample) -> Numbers:
    """Return the features from logits, as the paper's equations have them."""
    (tokens,) = scorer.encode([sample])
    assert isinstance(tokens, Tokens)
    ids = np.array(tokens.prompt + tokens.response)
    start = len(tokens.prompt)
    logs = plain.log_softmax(plain.full_logits(scorer.model, tuple(ids)))[start - 1 : -1]
    chosen = logs[np.arange(len(ids) - start), ids[start:]]
    p = np.exp(chosen)
    return {
        "sentprob": float(np.log(np.prod(p))),
        "sentprob_mean": float(chosen.mean()),
        "softmax_ent": float(-(np.exp(logs) * logs).sum(-1).mean()),
        "softmax_var": float((p**2).mean() - p.mean() ** 2),
        "softmax_var_log": float((chosen**2).mean() - chosen.mean() ** 2),
    }


def test_single_pass_features_equal_the_equations_and_turn_as_the_paper_argues(scorer: TokenScorer) -> None:
    expected = [by_equation(scorer, sample) for sample in SAMPLES]
    features = score(scorer, SAMPLES, tuple(expected[0]))
    for method, scores in features.items():
        np.testing.assert_allclose(scores.values, [e[method] for e in expected], rtol=1e-5, atol=1e-5, err_msg=method)
    assert [scores.better for scores in features.values()] == [1, 1, -1, -1, -1]
    assert features["softmax_ent"].oriented == [-v for v in features["softmax_ent"].values]


def test_attention_entropy_is_the_smallest_and_the_mean_over_heads(scorer: TokenScorer) -> None:
    from tests.builders.engines import tiny_llama

    eager = tiny_llama(scorer.model.config.vocab_size, max_position_embeddings=512, attn_implementation="eager")
    scores = score(scorer, SAMPLES, ("attnent_min", "attnent_avg", "sentprob"))
    maps = [plain.attention_entropies(eager, tokens) for tokens in scorer.encode(SAMPLES)]  # type: ignore[arg-type]
    np.testing.assert_allclose(scores["attnent_min"].values, [np.min(m) for m in maps], atol=1e-5)
    np.testing.assert_allclose(scores["attnent_avg"].values, [np.mean(m) for m in maps], atol=1e-5)
    assert better("attnent_min") == -1


def test_combo_is_the_sum_of_standard_scores(scorer: TokenScorer) -> None:
    samples = [*SAMPLES, Sample(chat("the cat"), "")]
    scores = score(scorer, samples, ("softmax_combo",))
    assert list(scores) == ["softmax_combo"]
    table = [by_equation(scorer, sample) for sample in SAMPLES]
    columns = [np.array([-row[name] for row in table]) for name in ("softmax_ent", "softmax_var")]
    expected = sum((c - c.mean()) / np.sqrt(((c - c.mean()) ** 2).mean()) for c in columns)
    np.testing.assert_allclose(scores["softmax_combo"].oriented[:3], expected, rtol=1e-4)
    assert scores["softmax_combo"].values[3] == Unscored("empty_response")
    assert scores["softmax_combo"].unscored == {"empty_response": 1}


def test_a_column_without_spread_adds_nothing() -> None:
    assert combine([1.0, 3.0, None], [5.0, 5.0, 5.0]) == [-1.0, 1.0, None]
    assert combine([], []) == []
    assert combine([1.0, 3.0, np.nan], [5.0, 5.0, 5.0]) == combine([1.0, 3.0, np.inf], [5.0] * 3) == [-1.0, 1.0, None]
    assert combine([None], [2.0]) == [None]


def test_prompt_ensemble_is_mean_and_variance_over_drawn_system_prompts(scorer: TokenScorer, tmp_path: Path) -> None:
    pool = ("the cat", "a dog sat", "list")
    prompts = plain.prompt_set(tmp_path, pool)
    scores = score(scorer, SAMPLES, ("prmensem_exp", "prmensem_var"), prompts=prompts, seed=4)
    rng = random.Random(derive_seed(4, "prmensem"))
    drawn = [rng.choice(pool) for _ in range(10)]
    for i, sample in enumerate(SAMPLES):
        system = ({"role": "system", "content": ""},)
        by_prompt = []
        for text in drawn:
            prompt = (dict(system[0], content=text), *sample.prompt)
            by_prompt.append(by_equation(scorer, Sample(prompt, sample.response))["sentprob"])  # type: ignore[arg-type]
        assert scores["prmensem_exp"].values[i] == pytest.approx(np.mean(by_prompt), rel=1e-5)
        assert scores["prmensem_var"].values[i] == pytest.approx(np.var(by_prompt), rel=1e-3, abs=1e-5)
    assert (scores["prmensem_exp"].better, scores["prmensem_var"].better) == (1, -1)


def test_decoding_ensemble_scores_what_the_model_decodes_itself(
    scorer: TokenScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glassbox, "PASSES", 3)
    monkeypatch.setattr(glassbox, "TOP_K", 2)
    scores = score(scorer, SAMPLES[:2], ("decensem_exp", "decensem_var"), max_new_tokens=6, seed=1)
    sampling = Sampling(max_new_tokens=6, top_k=2)
    requests = [Request(messages=s.prompt, sampling=sampling) for s in SAMPLES[:2] for _ in range(3)]  # type: ignore[arg-type]
    texts = [c.text for c in scorer.engine.generate(requests, derive_seed(1, "decensem"))]
    for i, sample in enumerate(SAMPLES[:2]):
        passes = [Sample(sample.prompt, text) for text in texts[3 * i : 3 * i + 3] if text.strip()]
        by_pass = [by_equation(scorer, s)["sentprob"] for s in passes]
        assert scores["decensem_exp"].values[i] == pytest.approx(np.mean(by_pass), rel=1e-5)
        assert scores["decensem_var"].values[i] == pytest.approx(np.var(by_pass), rel=1e-4, abs=1e-6)


def test_calibration_subtracts_the_uncertainty_about_the_reference(scorer: TokenScorer) -> None:
    samples = [*SAMPLES, Sample(chat("the cat"), " the dog")]
    methods = ("sentprob", "softmax_ent", "softmax_var")
    straight = score(scorer, samples, methods)
    varied = score(scorer, samples, tuple(f"{name}+calibration" for name in methods))
    calibrated = {name: varied[f"{name}+calibration"] for name in methods}
    for i, sample in enumerate(SAMPLES):
        (tokens,) = scorer.encode([Sample(sample.prompt, sample.reference or "")])
        logs = plain.statistics(scorer.model, tokens)["logprob"]  # type: ignore[arg-type]
        reference = -sum(np.exp(x) * x for x in logs) / len(logs)
        for method in methods:
            expected = straight[method].oriented[i] + reference  # type: ignore[operator]
            assert calibrated[method].oriented[i] == pytest.approx(expected, abs=1e-5)
    assert calibrated["sentprob"].values[3] == Unscored("no_reference")


def test_illustration_puts_query_and_reference_before_the_prompt(scorer: TokenScorer) -> None:
    samples = [SAMPLES[0], SAMPLES[2], Sample(chat("the cat"), " the dog")]
    shown = [
        Sample(chat("the cat", "on the mat", "the cat"), SAMPLES[0].response),
        Sample(chat("the dog", "sat on mat", "and", "9 8 7", "and"), SAMPLES[2].response),
    ]
    scores = score(scorer, samples, ("softmax_ent+illustration",))["softmax_ent+illustration"]
    expected = score(scorer, shown, ("softmax_ent",))["softmax_ent"]
    assert scores.values[:2] == pytest.approx(expected.values, rel=1e-6)
    assert scores.values[2] == Unscored("no_reference")


def test_self_generation_reads_the_rating_that_the_model_writes(scorer: TokenScorer, monkeypatch: Any) -> None:
    samples = [*SAMPLES, Sample(chat("the cat"), " "), SAMPLES[0]]
    written = [*map(done, ["fine. Rating: [[7/10]]", "I like [[3]] no, [[4.5]]", "nothing"]), TOO_LONG]
    requests = writes(scorer, monkeypatch, *written)
    scores = score(scorer, samples, ("self_generation",))["self_generation"]
    missing = [Unscored(reason) for reason in ("unreadable_rating", "empty_response", "too_long")]
    assert (scores.values, scores.better) == ([7.0, 4.5, *missing], 1)
    assert len(requests) == 4, "nobody is asked about an empty response"
    assert "User: the dog\nAssistant: sat on mat\nUser: and" in requests[2].messages[0]["content"]
    assert SAMPLES[2].response in requests[2].messages[0]["content"]
    assert [isinstance(rating(t), Unscored) for t in ("[[0]]", "[[11]]", "[[10]]", "")] == [True, True, False, True]


def test_passes_that_fail_give_their_reason(scorer: TokenScorer, monkeypatch: Any) -> None:
    writes(scorer, monkeypatch, *[TOO_LONG] * 3, *map(done, ["the dog", "", "the dog"]))
    monkeypatch.setattr(glassbox, "PASSES", 3)
    scores = score(scorer, SAMPLES[:2], ("decensem_exp", "decensem_var"))
    assert scores["decensem_exp"].values[0] == Unscored("too_long")
    assert scores["decensem_var"].values[1] == pytest.approx(0.0)


def test_a_feature_that_is_no_number_is_no_score() -> None:
    steps = {name: np.array([-1.0, -2.0], dtype=np.float32) for name in COLUMNS}
    ruled_out = TokenStatistics(2, steps, (np.array([0.5, np.nan], dtype=np.float32),))
    for method in ("attnent_avg", "attnent_min"):
        assert read([ruled_out], method).values == [Unscored("non_finite")]
    assert isinstance(read([ruled_out], "softmax_ent").values[0], float)


def test_unknown_names_and_bad_prompt_sets_are_refused(scorer: TokenScorer, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="sentprobs"):
        score(scorer, SAMPLES, ("sentprobs",))
    packaged = load_scorer_prompts()
    assert len(set(packaged.system_prompts)) == 7 and set(packaged.revision) == {"full", "simple"}
    assert fill("{prompt}|{response}", chat("a {response}"), "b")[0]["content"] == "a {response}|b"
    twice = with_system(Sample(({"role": "system", "content": "b"}, *chat("q")), "r"), "a")
    assert twice.prompt[0] == {"role": "system", "content": "a\n\nb"}
    bad = tmp_path / "bad.yaml"
    for text, part in [
        ("system_prompts: []", "system_prompts"),
        ("[", "cannot be read"),
        ("3", "system_prompts"),
        ("system_prompts: [a]\nself_generation: '{prompt}'\nrevision: {full: x}", "self_generation"),
        ("system_prompts: [a]\nrevision: {}", "revision"),
    ]:
        bad.write_text(text)
        with pytest.raises(ConfigError, match=part):
            load_scorer_prompts(str(bad))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_scorer_prompts(str(tmp_path / "none.yaml"))


def test_variants_stand_side_by_side_and_change_nothing_of_each_other(scorer: TokenScorer) -> None:
    """Glass-box paper, table 2: with references and without, side by side."""
    prompt = ({"role": "user", "content": "the cat"},)
    samples = [Sample(prompt, "a dog sat", "the cat sat"), Sample(prompt, "list", "mat"), Sample(prompt, "mat")]
    names = ("softmax_ent", "softmax_combo", "softmax_ent+calibration", "softmax_combo+illustration")
    scores = methods.score(scorer, samples, names)
    for full in names[2:]:
        (alone,) = methods.score(scorer, samples, (full,)).values()
        assert (scores[full].values, scores[full].better) == (alone.values, alone.better)
        assert scores[full].values[2] == Unscored("no_reference")
    assert scores["softmax_ent"].values == methods.score(scorer, samples, ("softmax_ent",))["softmax_ent"].values
    assert list(methods.groups(names)) == ["single_pass", "single_pass-calibration", "single_pass-illustration"]
    wrong = {"softmax_ent+x": "after a score's name", "probdiff+calibration": "change nothing"}
    for name, expected in wrong.items():
        with pytest.raises(ConfigError, match=expected):
            methods.score(scorer, samples, (name,))
