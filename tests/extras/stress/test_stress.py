"""Stage stress: the estimator against counting, the world's closed forms, and the stage as a user runs it."""

from __future__ import annotations

import json
import math
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgetrain.artifacts.console import Console
from judgetrain.data.world import queries
from judgetrain.data.world.language import load_language, write_response
from judgetrain.errors import ConfigError
from judgetrain.extras.stress import stage as stress_stage
from judgetrain.extras.stress.result import Estimate, best_of, fall, kl, numbers, standardised, told
from judgetrain.judges.factory import Models
from judgetrain.pipeline.run import Pipeline
from tests.builders.pages import parse
from tests.builders.pipeline import configured
from tests.builders.watched import interrupted

WORDS = ("recipe=debug", "track.tracker=none")
WRITER = "stress.writer={type: world, skill: 0.5, rambling: 0.1}"


def counted(scores: list[float], values: list[float], n: int) -> float:
    """The mean over all subsets of the value of their best, equal ones shared."""
    found = []
    for subset in combinations(range(len(scores)), n):
        most = max(scores[i] for i in subset)
        best = [values[i] for i in subset if scores[i] == most]
        found.append(sum(best) / len(best))
    return sum(found) / len(found)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5)), min_size=1, max_size=8))
def test_best_of_n_is_the_mean_over_all_subsets(pairs: list[tuple[int, float]]) -> None:
    scores, values = [float(s) for s, _ in pairs], [v for _, v in pairs]
    ns = list(range(1, len(pairs) + 1))
    assert best_of(scores, values, ns) == pytest.approx([counted(scores, values, n) for n in ns], abs=1e-9)


def test_what_was_not_read_is_chosen_last_and_subsets_of_256_do_not_overflow() -> None:
    assert best_of([math.nan, 1.0, 0.0], [9.0, 1.0, 2.0], [1, 2, 3]) == pytest.approx([4.0, (1 + 1 + 2) / 3, 1.0])
    values = np.arange(256.0)
    found = best_of(values, values, numbers(256))
    # The largest of n out of 1..N without replacement has the mean n(N + 1)/(n + 1).
    assert found + 1 == pytest.approx([n * 257 / (n + 1) for n in numbers(256)])


def test_the_divergence_and_the_numbers() -> None:
    assert kl(1) == 0 and kl(256) == pytest.approx(4.549, abs=1e-3)  # log 256 - 255/256
    assert numbers(256) == [1, 2, 4, 8, 16, 32, 64, 128, 256] and numbers(6) == [1, 2, 4, 6] and numbers(2) == [1, 2]


def test_standardised_scores_have_unit_spread_within_prompts() -> None:
    first, second = standardised([[1.0, 3.0], [10.0, math.nan, 14.0]])
    assert first == pytest.approx([-1 / math.sqrt(2.5), 1 / math.sqrt(2.5)])
    assert np.isnan(second[1]) and second[2] == pytest.approx(2 / math.sqrt(2.5))
    assert standardised([[1.0, 1.0]])[0].tolist() == [0, 0]


def test_a_curve_that_only_wavers_has_no_fall() -> None:
    """Seeking the peak on the prompts that it is measured on would show a fall of about one in every draw."""
    rng = np.random.default_rng(0)
    draws = [rng.normal(size=(8, 9)) for _ in range(400)]
    assert abs(np.mean([fall(d).mean() for d in draws])) < 0.06
    assert np.mean([(d.max(axis=1) - d[:, -1]).mean() for d in draws]) > 1


def test_few_prompts_give_intervals_that_hold_as_often_as_they_say() -> None:
    """Of 8 prompts plain percentiles hold 90% of the time where they say 95%."""
    rng, held, plain = np.random.default_rng(3), [], []
    for seed in range(600):
        values = rng.normal(size=8)
        low, high = Estimate.of(values, 1000, seed).interval
        held.append(low <= 0 <= high)
        means = values[rng.integers(8, size=(1000, 8))].mean(axis=1)
        plain.append(np.percentile(means, 2.5) <= 0 <= np.percentile(means, 97.5))
    assert np.mean(held) >= 0.93 > 0.915 > np.mean(plain)


def test_verdicts_follow_the_intervals() -> None:
    def estimate(low: float, high: float) -> Estimate:
        return Estimate(mean=(low + high) / 2, interval=(low, high))

    over, no = estimate(0.1, 1), estimate(-0.1, 1)
    for lost, rise, best, prompts, expected in (
        (over, (0.2, 2), 8, 8, "over-optimised after n = 8"),
        (over, (-2, -1), 8, 8, "over-optimised after n = 8, below the writer"),
        (over, (-2, 1), 8, 8, "over-optimised after n = 8: in the end nothing is won"),
        (no, (1, 2), 256, 8, "rises up to n = 256"),
        (no, (1, 2), 64, 8, "rises; no fall is shown up to n = 256"),
        (no, (-1, 1), 4, 8, "nothing is won"),
        (no, (-3, -1), 1, 8, "falls from the start"),
        (over, (0.2, 2), 8, 7, "a first look: 7 prompts, words from 8 on"),
    ):
        assert told(lost, estimate(*rise), best, 256, prompts) == expected


def test_length_tells_nothing_of_the_worlds_writers_and_misleads_where_they_ramble() -> None:
    language, rng = load_language(), random.Random(0)
    asked = rng.sample(queries("heldout"), 3000)
    plain = [(q, write_response(language, q, 0.5, rng)) for q in asked]
    assert abs(np.corrcoef([len(r) for _, r in plain], [language.quality(q, r) for q, r in plain])[0, 1]) < 0.06
    made = [(q, write_response(language, q, 0.5, rng, 0.1)) for q in asked]
    words = np.array([len(r.split()) for _, r in made])
    truth = np.array([language.quality(q, r) for q, r in made])
    long = words >= 48
    assert not truth[long].any() and 0.08 < long.mean() < 0.12 and not ((words > 45) & (words < 48)).any()
    # Each crucial property is 3 words; 4 and 2 are what they are worth.
    assert np.corrcoef(words[~long], truth[~long])[0, 1] > 0.6
    assert truth[~long].mean() == pytest.approx(3.0, abs=0.15)


def stressed(home: Path, *overrides: str) -> Path:
    """The directory of a finished stage stress."""
    return Pipeline(configured(*WORDS, f"output_dir={home}", *overrides), Console()).run("stress")


def found(directory: Path) -> dict[str, Any]:
    """What stress.json holds; NaN would be an error."""
    text = (directory / "stress.json").read_text(encoding="utf-8")
    return dict(json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in stress.json")))


def test_longer_shows_its_peak_and_chance_wins_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [WRITER, "stress.methods=[longer,random]", "stress.prompts=10", "stress.samples=64"]
    directory = stressed(tmp_path, *overrides)
    result = found(directory)
    longer, chance = result["summary"]
    # With 64 responses some ramble nearly always, and nothing is as long: quality 0.
    assert longer["verdict"].startswith("over-optimised after n = ") and longer["peak_n"] in (2, 4)
    assert longer["last_gold"] < 0.3 and longer["peak_gold"] > longer["writer"] + 0.2
    assert longer["fall"]["interval"][0] > 0 and longer["gap"]["mean"] > 1
    assert chance["proxy"] == "random" and chance["verdict"] == "nothing is won"
    curve = result["curves"]["longer"]
    assert [p["n"] for p in curve] == [1, 2, 4, 8, 16, 32, 64] and curve[0]["proxy_gain"]["mean"] == 0
    assert all(p["gold"]["interval"][0] <= p["gold"]["mean"] <= p["gold"]["interval"][1] for p in curve)
    page = parse((directory / "report.html").read_text(encoding="utf-8").replace("svg", "figure"))
    assert "over-optimised after n" in page.text()
    assert "over-optimised" in capsys.readouterr().out.replace("\n", " ")
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["notes"]["stress"][0]["proxy"] == "longer"


def test_a_judge_as_proxy_and_work_that_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another proxy writes no response again and asks no judge again."""
    small = [WRITER, "stress.prompts=8", "stress.samples=6"]  # of fewer nothing is said in words
    how = ["teacher.engine={type: world, error_rate: 0.0}", "evaluate.external={type: world, error_rate: 0.0}"]
    first = stressed(tmp_path, *small, *how, "stress.methods=[teacher@2,pairwise:external]")
    assert [line["proxy"] for line in found(first)["summary"]] == ["teacher@2", "pairwise:external"]
    referee = found(first)["summary"][1]
    assert referee["last_gold"] > referee["writer"] and "rises" in referee["verdict"] and referee["unread"] == 0
    asked = []
    monkeypatch.setattr(Models, "judge", lambda models, method, branches: asked.append(method) or pytest.fail("asked"))
    with pytest.raises(BaseException, match="asked"):
        stressed(tmp_path, *small, *how, "stress.methods=[teacher@1]")
    more = ["stress.methods=[longer,teacher@2]", "evaluate.pointwise.sampling.top_p=0.5"]
    second = stressed(tmp_path, *small, *how, *more)
    assert [line["proxy"] for line in found(second)["summary"]] == ["longer", "teacher@2"] and len(asked) == 1
    rows = [[path.read_bytes() for path in sorted(place.glob("responses-*.jsonl"))] for place in (first, second)]
    assert rows[0] and rows[0] == rows[1]


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = [WRITER, "stress.methods=[longer]", "stress.prompts=8", "stress.samples=8"]
    whole = stressed(tmp_path / "whole", *overrides)
    interrupted(monkeypatch, stress_stage, "length", 3)
    with pytest.raises(KeyboardInterrupt):
        stressed(tmp_path / "cut", *overrides)
    again = stressed(tmp_path / "cut", *overrides)
    assert (again / "stress.json").read_bytes() == (whole / "stress.json").read_bytes()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["stress.methods=[longer]"], "stress.writer: nobody is named"),
        ([WRITER, "stress.methods=[first]"], "stress.methods='first': it gives no score"),
        ([WRITER, "stress.methods=[]"], "stress.methods is empty"),
        ([WRITER, "stress.methods=[longer,longer]"], "'longer' is named twice"),
        ([WRITER, "stress.methods=[pairwise:a/mine,pairwise:b/mine]"], "'pairwise:mine' is named twice"),
        ([WRITER, "stress.methods=[scorer:decensem_exp]"], "scores a model on a prompt"),
    ],
)
def test_settings_that_cannot_work_are_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", "\\(")):
        stressed(tmp_path, *overrides)
