"""The docs' pictures hold what the artifacts say, at the places that the axes give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.benchmarks.figures import artifact, labelling, main, robustness, stress

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
    written(tmp_path / "stress.json", {"samples": 16, "prompts": 7, "curves": curves, "gold": "truth"})
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


def test_the_queue_s_curve_is_the_mean_over_seeds(tmp_path: Path) -> None:
    ways = ("chance", "branches + orders + margin", "as shipped")
    seeds = [{way: [80.0 + i, 90.0 + i] for way in ways} for i in (0, 2)]
    picture = ElementTree.fromstring(labelling(written(tmp_path / "q.json", {"numbers": [25, 50], "seeds": seeds})))
    tips = [circle.findtext(f"{SVG}title") for circle in picture.findall(f".//{SVG}circle")]
    assert tips[:2] == ["drawn by chance, 25 labels: 81.0%", "drawn by chance, 50 labels: 91.0%"] and len(tips) == 6


def test_what_is_drawn_from_must_be_there_and_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"stress\.json: expected one finished artifact, found none"):
        main([f"--stress={tmp_path}"])
    for name in "ab":
        written(tmp_path / "artifacts/stress" / name / "stress.json", {})
    with pytest.raises(SystemExit, match=r"found several \(a, b\): name one"):
        artifact(tmp_path, "stress", "stress.json")
    assert artifact(tmp_path / "artifacts/stress/a", "stress", "stress.json").name == "a"
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
        {"samples": 4, "prompts": 1, "curves": {"dpo": curve(0.0, 1.0)}, "gold": "truth"},
    )
    for name in ("one", "two"):
        main([f"--stress={tmp_path / 'in'}", f"--to={tmp_path / name}"])
    first, second = ((tmp_path / name / "stress.svg").read_bytes() for name in ("one", "two"))
    assert first == second
