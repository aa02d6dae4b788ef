"""The docs' pictures hold what the artifacts say, at the places that the axes give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.benchmarks.figures import artifact, corrected, guarantees, labelling, main, robustness, stress

SVG = "{http://www.w3.org/2000/svg}"


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def estimate(mean: float) -> dict[str, Any]:
    return {"mean": mean, "interval": [mean - 0.5, mean + 0.5]}


def curve(*gold: float) -> list[dict[str, Any]]:
    return [
        {"n": 4**i, "kl": float(i), "proxy_gain": estimate(float(i)), "gold_gain": estimate(value)}
        for i, value in enumerate(gold)
    ]


def attacked(attack: str, kind: str, **shares: float) -> dict[str, Any]:
    ends = {f"{name}_ci": [max(0.0, value - 0.1), min(1.0, value + 0.1)] for name, value in shares.items()}
    return {"attack": attack, "kind": kind, "n": 40, **shares, **ends}


def row(branches: int, *found: dict[str, Any]) -> dict[str, Any]:
    named = {"method": "dpo", "benchmark": "world", "split": "test", "branches": branches, "n": 300}
    return {**named, "robustness": list(found)}


def test_stress_draws_every_point_of_both_gains(tmp_path: Path) -> None:
    curves = {"dpo@1": curve(0.0, 1.0, 2.0), "longer": curve(0.0, 0.5, -1.0)}
    summary = [
        {"proxy": "dpo@1", "peak_n": 16, "verdict": "rises up to n = 16"},
        {"proxy": "longer", "peak_n": 4, "verdict": "over-optimised after n = 4, below the writer"},
    ]
    content = {"samples": 16, "prompts": 7, "curves": curves, "gold": "truth", "summary": summary}
    written(tmp_path / "stress.json", content)
    picture = ElementTree.fromstring(stress(tmp_path))
    assert "Best of 1 to 16 responses by each proxy, 7 prompts" in "".join(picture.itertext())
    inner = picture.findall(f".//{SVG}svg")
    assert len(inner) == 2
    # The right panel's y axis spans both intervals' ends, -1.5 to 2.5, over 228 units from 12 down to 240.
    lines = [line.get("points", "").split() for line in inner[1].findall(f"{SVG}polyline")]
    heights = [[float(point.split(",")[1]) for point in line] for line in lines]
    expected = [[round(240 - 228 * (v + 1.5) / 4.0, 1) for v in values] for values in ((0, 1, 2), (0, 0.5, -1))]
    assert heights == expected
    assert len(inner[0].findall(f".//{SVG}circle")) == 6
    [ring] = [c for c in picture.findall(f".//{SVG}circle") if "ring" in c.get("class", "")]
    place = round(40 + 316 * 1 / 2, 1), round(240 - 228 * (0.5 + 1.5) / 4.0, 1)
    assert (float(ring.get("cx", "nan")), float(ring.get("cy", "nan"))) == place
    assert "longer: peak at n = 4" in "".join(picture.itertext()) and "dpo@1: peak" not in "".join(picture.itertext())


def selective(threshold: float | None, *curve: tuple[float, float, float | None]) -> dict[str, Any]:
    answered = {"coverage": 0.5, "agreement": 0.9, "bound": 0.8, "tokens": 50.0} if threshold is not None else {}
    whole = {"n": 40, "calibrated": 30, "threshold": threshold, "tiers": [], **answered}
    points = [{"threshold": 0.1, "coverage": c, "agreement": a, "tokens": t} for c, a, t in curve]
    found = {"tiers": ["1"], "wanted": 0.75, "risk": 0.1, "whole": whole, "groups": {}, "curve": points}
    return found | {"in_full": None, "told": ""}


def relied(method: str, branches: int, **found: Any) -> dict[str, Any]:
    return row(branches) | {"method": method, "robustness": None, "guarantees": found}


def test_the_threshold_that_was_chosen_stands_on_both_curves(tmp_path: Path) -> None:
    scorer = relied("scorer", 0, selective=selective(None, (0.2, 0.8, None), (1.0, 0.4, None)))
    dpo = relied("dpo", 3, selective=selective(0.7, (0.1, 1.0, 100.0), (1.0, 0.6, 10.0)))
    written(tmp_path / "metrics.json", [scorer, dpo, row(1)])
    text = guarantees(tmp_path)
    picture = ElementTree.fromstring(text)
    said = "".join(picture.itertext())
    assert "75% agreement asked for with 90% confidence, 40 comparisons" in said
    rings = [c for c in picture.findall(f".//{SVG}circle") if "ring" in c.get("class", "")]
    # Half is answered, for 50 of 100 tokens: the middle of both x axes; 0.9 of the y axis.
    at = (40 + 316 * 0.5, round(240 - 228 * 0.9, 1))
    assert [(float(c.get("cx", "nan")), float(c.get("cy", "nan"))) for c in rings] == [at, at]
    assert said.count("dpo: chosen") == 2 and "scorer: chosen" not in said
    assert "dpo, chosen: 90.0% of 50.0% answered, at least 80.0% with 90% confidence" in text
    # Of the two charts the second has no scorer, whose answers cost nothing: the colours must agree all the same.
    colours = [
        [line.get("class") for line in each.findall(f"{SVG}polyline")] for each in picture.findall(f".//{SVG}svg")
    ]
    assert colours == [["c0", "c1"], ["c0"]] and said.index("dpo") < said.index("scorer")
    written(tmp_path / "metrics.json", [row(1)])
    with pytest.raises(SystemExit, match=r"metrics\.json: no method may abstain there"):
        guarantees(tmp_path)


def worth(about: str, n: int, alone: float, width: float | None) -> dict[str, Any]:
    found = {"about": about, "n": n, "unlabelled": 100}
    if width is None:
        return found
    return found | {"estimate_ci": [0.5, 0.5 + width], "alone_ci": [0.5, 0.5 + alone]}


def test_widths_are_means_over_models_where_all_have_one(tmp_path: Path) -> None:
    def run(name: str, labels: int, narrow: float | None) -> Path:
        parts = [worth("agreement", labels, 0.4, 0.4), worth("me", 40, 0.2, 0.1), worth("you", 40, 0.4, narrow)]
        return written(tmp_path / name / "metrics.json", [relied("dpo", 3, corrected=parts)]).parent

    picture = ElementTree.fromstring(corrected([run("b", 200, 0.1), run("a", 100, 0.2), run("few", 50, None)]))
    tips = [circle.findtext(f"{SVG}title") for circle in picture.findall(f".//{SVG}circle")]
    assert tips == [
        "labels alone, 100 labels: 30.0 points",
        "labels alone, 200 labels: 30.0 points",
        "with dpo, 100 labels: 15.0 points",
        "with dpo, 200 labels: 10.0 points",
    ]
    with pytest.raises(SystemExit, match=r"few/metrics\.json: no corrected win rate there"):
        corrected([tmp_path / "few"])


def test_attacks_stand_at_their_shares_for_each_number_of_branches(tmp_path: Path) -> None:
    edit = attacked("fake_citation", "edit", flips_ab=0.1, flips_ba=0.2, robustness=0.8)
    empty = attacked("nothing", "empty", loses_ab=0.9, loses_ba=0.9, loses=0.75)
    whole = attacked("", "edit", flips_ab=0.1, flips_ba=0.2, robustness=0.8)
    written(tmp_path / "metrics.json", [row(10, edit, empty, whole), row(1, edit, empty, whole)])
    picture = ElementTree.fromstring(robustness(tmp_path))
    said = "".join(picture.itertext())
    assert "fake citation" in said and "nothing" in said and "dpo, 1 branch" in said and "dpo, 10 branches" in said
    assert said.count("fake citation") == 1, "a row an attack; those of a whole kind are none"
    circles = picture.findall(f".//{SVG}circle")
    assert len(circles) == 4
    tips = [circle.findtext(f"{SVG}title") for circle in circles]
    assert tips[0] == "dpo, 1 branch: 20.0% (10 to 30) of 40", "the order in which more change"
    assert tips[2] == "dpo, 1 branch: 75.0% (65 to 85) of 40"
    # From 0 to 35%, and from 0 to 100%, between 150 and 356.
    assert [float(c.get("cx", "nan")) for c in circles] == [
        round(150 + 206 * x, 1) for x in (0.2 / 0.35,) * 2 + (0.75,) * 2
    ]


def test_rows_have_room_for_every_series_and_one_that_lacks_an_attack_moves_no_colour(tmp_path: Path) -> None:
    first, edit, other = (
        attacked(name, "edit", flips_ab=0.1, flips_ba=0.2, robustness=0.8) for name in ("bold", "position", "list")
    )
    empty = attacked("nothing", "empty", loses_ab=0.9, loses_ba=0.9, loses=0.75)
    rows = [row(1, first, other, empty), *(row(k, first, other, edit, empty) for k in (3, 5, 10, 0))]
    rows[-1]["method"] = "longer"
    written(tmp_path / "metrics.json", rows)
    picture = ElementTree.fromstring(robustness(tmp_path))
    said = "".join(picture.itertext())
    assert "longer" in said and "longer, 0" not in said
    circles = picture.findall(f".//{SVG}circle")
    tips = [(circle.findtext(f"{SVG}title") or "").partition(":")[0] for circle in circles]
    shown = [f"dpo, {k} branch{'es' if k > 1 else ''}" for k in (1, 3, 5, 10)] + ["longer"]
    assert tips == [*shown, *shown, *shown[1:], *shown]
    classes = [circle.get("class") for circle in circles]
    assert classes == [f"c{shown.index(tip)}" for tip in tips]
    heights = [float(circle.get("cy", "nan")) for circle in circles[:14]]
    assert len(set(heights)) == 14, "no mark of a row lies on one of the next"


def test_the_queue_s_curve_is_the_mean_over_seeds(tmp_path: Path) -> None:
    ways = ("chance", "branches + orders + margin", "as shipped")
    seeds = [{way: [80.0 + i, 90.0 + i] for way in ways} for i in (0, 2)]
    content = {"numbers": [25, 50], "pool": 60, "aggregation": "clear", "seeds": seeds}
    path, other = written(tmp_path / "q.json", content), written(tmp_path / "o.json", content | {"aggregation": "vote"})
    picture = ElementTree.fromstring(labelling([path]))
    tips = [circle.findtext(f"{SVG}title") for circle in picture.findall(f".//{SVG}circle")]
    assert tips[:2] == ["drawn by chance, 25 labels: 81.0%", "drawn by chance, 50 labels: 91.0%"] and len(tips) == 6
    both = "".join(ElementTree.fromstring(labelling([path, other])).itertext())
    assert (
        "(± SD): clear" in both and "(± SD): vote" in both and "Which of 60 comparisons people label, 2 seeds" in both
    )
    with pytest.raises(SystemExit, match="pools of different sizes"):
        labelling([path, written(tmp_path / "o.json", content | {"pool": 61})])


def test_what_is_drawn_from_must_be_there_and_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"stress\.json: expected one finished artifact, found none"):
        main([f"--stress={tmp_path}"])
    for name in "ab":
        written(tmp_path / "artifacts/stress" / name / "stress.json", {})
        written(tmp_path / "artifacts/stress" / name / "manifest.json", {})
    written(tmp_path / "artifacts/stress/unfinished/stress.json", {})
    with pytest.raises(SystemExit, match=r"found several \(a, b\): name one"):
        artifact(tmp_path, "stress", "stress.json")
    assert artifact(tmp_path / "artifacts/stress/a", "stress", "stress.json").name == "a"
    with pytest.raises(SystemExit, match=r"a/stress\.json: not what is drawn from \(KeyError: 'summary'\)"):
        main([f"--stress={tmp_path / 'artifacts/stress/a'}"])
    with pytest.raises(SystemExit, match=r"metrics\.json: nobody was attacked there"):
        robustness(written(tmp_path / "metrics.json", []).parent)
    with pytest.raises(SystemExit, match=r"q\.json: there is no such file"):
        main([f"--queue={tmp_path / 'q.json'}"])
    with pytest.raises(SystemExit):
        main([])
    assert "name what to draw from" in capsys.readouterr().err


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    written(
        tmp_path / "in/stress.json",
        {"samples": 4, "prompts": 1, "curves": {"dpo": curve(0.0, 1.0)}, "gold": "truth", "summary": []},
    )
    for name in ("one", "two"):
        main([f"--stress={tmp_path / 'in'}", f"--to={tmp_path / name}"])
    first, second = ((tmp_path / name / "stress.svg").read_bytes() for name in ("one", "two"))
    assert first == second
    style = first.decode().partition("<style>")[2].partition("</style>")[0]
    assert "svg text{fill:var(--soft)" in style, "else what is written is black on a dark ground"
    assert "--soft:" in style.partition("prefers-color-scheme:dark")[2]
