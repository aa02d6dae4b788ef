"""The package of docs/extending.md: its wheel is built, installed in a fresh environment, and every command is run."""

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import judgetrain
from judgetrain.rooms import Room

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
FILE = re.compile(r"^`([\w./]+)`[^\n]*:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""A file of the page: its name in a line that ends with a colon, then its content."""
RUN = """
import json, os, sys
from pathlib import Path
from judgetrain.pipeline.cli import main
for line in json.loads(sys.argv[1]):
    sys.argv = ["judgetrain", *line]
    sys.stdout.flush()
    code = main()
    print(f"exit {code}", flush=True)
"""


FILES = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))


def package(root: Path) -> None:
    """Write the page's package."""
    for name, content in FILES.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, encoding="utf-8")
    (root / "judge_words" / "__init__.py").touch()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a fresh environment that has this one's packages, and the wheel of the page's package."""
    pytest.importorskip("hatchling")
    root = tmp_path_factory.mktemp("package")
    package(root)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(root / "dist"), str(root)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = (root / "dist").glob("*.whl")
    place = root / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    [site] = place.glob("lib/python*/site-packages")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
    )
    # Torch and the others are not installed once more: the fresh environment reads them from this one.
    others = [str(Path(judgetrain.__file__).parents[1]), *(path for path in sys.path if path.endswith("-packages"))]
    (site / "others.pth").write_text("\n".join(others), encoding="utf-8")
    return python


def test_every_command_of_the_page_runs_with_the_installed_package(environment: Path, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (tmp_path / "coffee.jsonl").write_text(FILES["coffee.jsonl"], encoding="utf-8")
    lines = [shlex.split(line) for line in re.findall(r"^\$ python -m judgetrain (.*)$", text, re.MULTILINE)]
    # Each run begins anew, but for the command that shows what the run before it has made.
    places = ["words", "scorer", "matthews", "coffee", "csv", "lengths", "lengths", "long", "told"]
    assert len(lines) == len(places)
    commands = []
    for place, line in zip(places, lines, strict=True):
        quiet = [] if any(word.startswith("track.tracker=") for word in line) else ["track.tracker=none"]
        commands.append([*line, *quiet, f"output_dir={place}"])
    done = subprocess.run(
        [environment, "-c", RUN, json.dumps(commands)], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    printed = done.stdout + done.stderr
    assert re.findall(r"^exit (\d+)$", done.stdout, re.MULTILINE) == ["0"] * len(places), printed

    assert methods(tmp_path / "words") == ["words:50", "longer"]
    of_page = metric_rows(tmp_path / "matthews")
    assert [row["mcc"] for row in of_page] == pytest.approx(coefficients(tmp_path / "matthews"), abs=1e-6)
    [report] = tmp_path.glob("matthews/artifacts/evaluate/*/report.md")
    assert "| MCC |" in report.read_text(encoding="utf-8")
    assert agreements(tmp_path / "coffee") == {"longer": 1.0, "first": 0.0}
    numbers = (tmp_path / "csv" / "numbers.csv").read_text(encoding="utf-8")
    assert re.search(r"^evaluate,None,world/longer@0/agreement,0\.\d+$", numbers, re.MULTILINE)

    [written] = tmp_path.glob("lengths/artifacts/lengths/*/lengths.jsonl")
    counted = [json.loads(line)["words"] for line in written.read_text(encoding="utf-8").splitlines()]
    assert counted and min(counted) > 0
    assert f"{written.parent.name}: {sum(counted) / len(counted):.1f} words" in printed

    longer, random = metric_rows(tmp_path / "long")
    assert longer["words"]["comparisons"] == random["words"]["comparisons"] > 1
    # Of words and of characters alike, as responses of the world go.
    assert longer["words"]["preferred"] == longer["words"]["comparisons"] > random["words"]["preferred"]
    [report] = tmp_path.glob("long/artifacts/evaluate/*/report.md")
    assert "### Long responses" in report.read_text(encoding="utf-8")
    assert "words" not in metric_rows(tmp_path / "words")[0], "nobody asked for it"

    assert methods(tmp_path / "scorer") == methods(tmp_path / "told") == ["scorer:least_logprob"]
    assert metric_rows(tmp_path / "scorer")[0]["agreement"] == metric_rows(tmp_path / "told")[0]["agreement"]
    assert printed.count("shard 0 is done") == 1, "of the run whose executor tells it"


def metric_rows(output: Path) -> list[dict]:
    [metrics] = output.glob("artifacts/evaluate/*/metrics.json")
    rows: list[dict] = json.loads(metrics.read_text(encoding="utf-8"))
    return rows


def coefficients(output: Path) -> list[float]:
    """Return the correlation of each method's verdicts with the labels, in the order of metrics.json.

    Of three classes it is Gorodkin's, by the counts of pairs that agree in the verdict, in the label, and in both.
    """
    [file] = output.glob("artifacts/evaluate/*/predictions.parquet")
    by_method: dict[str, list[tuple[str, str]]] = {}
    for row in pq.read_table(file).to_pylist():
        # Orders that differ have no common verdict: a tie.
        verdict = row["verdict_ab"] if row["verdict_ab"] == row["verdict_ba"] else "tie"
        by_method.setdefault(row["method"], []).append((verdict, row["label"]))
    result = []
    for pairs in by_method.values():
        n = len(pairs)
        classes = {name for pair in pairs for name in pair}
        said = {name: sum(verdict == name for verdict, _ in pairs) for name in classes}
        true = {name: sum(label == name for _, label in pairs) for name in classes}
        right = sum(verdict == label for verdict, label in pairs)
        above = n * right - sum(said[name] * true[name] for name in classes)
        below = (n * n - sum(count**2 for count in said.values())) * (n * n - sum(count**2 for count in true.values()))
        result.append(above / below**0.5 if below else 0.0)
    return result


def methods(output: Path) -> list[str]:
    return [row["method"] for row in metric_rows(output)]


def agreements(output: Path) -> dict[str, float]:
    return {row["method"]: row["agreement"] for row in metric_rows(output)}


JUDGED = """
from judgetrain.extras.judge_reward.reward import JudgeReward
from judgetrain.judges import load_judge

print(load_judge("words:2")("Why?", "one two", "one two three").verdict)
print(JudgeReward("words:2")(["Why?", "Why?"], ["one two", "one two three"]))
try:
    load_judge("words:many")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_an_installed_kind_is_a_judge_in_python_and_a_reward(environment: Path) -> None:
    done = subprocess.run([environment, "-c", JUDGED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "A",
        "[1.0, 0.0]",
        "ConfigError 'words:many': COUNT must be a number of words, as in words:50",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "The installed package mine names the room 'mine' for judgetrain, and there is no room.yaml"),
        (
            "kinds: {random: 'mine:KIND'}\nstages: {dpo: {does: x, code: 'mine:S'}}",
            "both bring the stage or command 'dpo'",
        ),
        ("kinds: {pairwise: 'mine:KIND'}", "The rooms judges and mine both bring the kind of judge 'pairwise'"),
        ("adapters: .", "The rooms data and mine both bring the adapter 'pandalm'"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(content: str | None, message: str, tmp_path: Path) -> None:
    # Its metadata is what an installer writes.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "pandalm.yaml").touch()
    if content is not None:
        (tmp_path / "mine" / "room.yaml").write_text(content, encoding="utf-8")
    metadata = tmp_path / "mine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[judgetrain.rooms]\nmine = mine\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "judgetrain", "--help"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


CARD = """
import json
from pathlib import Path

from judgetrain.engines.config import ModelConfig
from judgetrain.pipeline.cards import fill
from judgetrain.train.card import Origin, write_card

judge = Path("artifacts/dpo/f00d")
evaluation = Path("artifacts/evaluate/e4a1")
(judge / "model").mkdir(parents=True)
evaluation.mkdir(parents=True)
write_card(judge / "model", ModelConfig(path="world"), Origin(stage="dpo", recipe="r", fingerprint="f00d", lineage={}))
facts = {"recipe": "r", "seed": 5, "counts": {"in": 9, "out": 8}, "notes": {}}
for directory, upstream in ((judge, {}), (evaluation, {"dpo": "f00d"})):
    content = {**facts, "stage": directory.parent.name, "fingerprint": directory.name, "upstream": upstream}
    (directory / "manifest.json").write_text(json.dumps(content))
row = {"method": "longer", "branches": 0, "words": {"comparisons": 9, "preferred": 8}}
(evaluation / "metrics.json").write_text(json.dumps([row, row | {"method": "dpo", "words": ROW}]))
fill(judge)
print((judge / "model" / "README.md").read_text())
"""


def test_an_installed_room_writes_into_a_judge_s_card(environment: Path, tmp_path: Path) -> None:
    code = CARD.replace("ROW", "{'comparisons': 9, 'preferred': 4}")
    done = subprocess.run([environment, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Long responses\n+By evaluation `e4a1`.*\n+4 of 9 times the long response is", done.stdout)
    assert "8 of 9" not in done.stdout, "another method's"


def test_the_page_s_room_file_has_everything_that_a_room_can_bring() -> None:
    room = yaml.safe_load(FILES["judge_words/room.yaml"])
    assert {*room} == {field.name for field in dataclasses.fields(Room)} - {"name"}
