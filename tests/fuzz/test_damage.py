"""Random damage to the files of a finished debug run: cut, emptied, a bit turned over. None is taken for whole."""

import os
import random
import shutil
import time
from functools import cache
from pathlib import Path

import pytest

from judgetrain.artifacts.integrity import UNLISTED
from judgetrain.artifacts.stage_run import MANIFEST
from judgetrain.errors import DataError
from judgetrain.pipeline.commands import rows
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured
from tests.fuzz.effort import effort

READERS = {
    "dialogues": "cluster",
    "cluster": "responses",
    "responses": "teacher",
    "teacher": "initial",
    "initial": "tree",
    "tree": "label",
    "label": "sft",
    "sft": "reference",
    "reference": "dpo",
    "dpo": "evaluate",
}
"""Of every stage one that reads its artifact; the evaluation is read by the command itself."""


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """Return the artifacts of the run under other names, whose files are the same until they are written anew."""
    shutil.copytree(finished / "artifacts", tmp_path / "outputs" / "artifacts", copy_function=os.link)
    return tmp_path / "outputs"


@cache
def config(output: Path) -> Config:
    return configured("recipe=debug", "stage=evaluate", f"output_dir={output}", "track.tracker=none")


def results(output: Path) -> dict[str, list[Path]]:
    """Return every file that is part of a stage's result."""
    files = (p for p in sorted(output.glob("artifacts/*/*/**/*")) if p.is_file() and p.stat().st_size)
    artifacts: dict[str, list[Path]] = {}
    for path in files:
        if path.name == MANIFEST or "/".join(path.relative_to(output).parts[3:]) not in UNLISTED:
            artifacts.setdefault(path.relative_to(output).parts[1], []).append(path)
    return artifacts


def damage(path: Path, chance: random.Random) -> str:
    """Damage a file in one of three ways, without touching other names of it; says which."""
    content = bytearray(path.read_bytes())
    way = chance.choice(("cut", "emptied", "bit"))
    if way == "cut":
        content = content[: chance.randrange(len(content))]
    elif way == "emptied":
        content = bytearray()
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.unlink()
    path.write_bytes(content)
    return way


def test_no_damage_is_taken_for_whole(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tries = effort(30, 300)
    seed = int(os.environ.get("JUDGETRAIN_FUZZ_SEED", time.time_ns() % 2**32))
    chance = random.Random(seed)
    files = results(copy)
    directories = {name: Pipeline(config(copy)).plan(name).directory for name in STAGES}
    for _ in range(tries):
        stage = chance.choice([*files])
        path = chance.choice(files[stage])
        before = path.read_bytes()
        way = damage(path, chance)
        where = f"{stage}/{path.name}, {way}, seed {seed}"
        table = {row["stage"]: row for row in rows(Pipeline(config(copy)))}
        assert [name for name, row in table.items() if row["state"] == "damaged"] == [stage], where
        # The run itself goes on below, unless it is the evaluation that is damaged.
        assert table[stage]["stage=evaluate"] == ("unread" if stage in READERS else "stop"), where
        refused(stage, path.name, copy, directories, where)
        if stage in READERS:  # who does not read it now says it all the same
            capsys.readouterr()
            Pipeline(config(copy)).run("evaluate")
            printed = capsys.readouterr().out
            assert path.name in printed and ("nothing to do" in printed), where
        path.write_bytes(before)
    assert "damaged" not in {row["state"] for row in rows(Pipeline(config(copy)))}


def refused(stage: str, name: str, copy: Path, made: dict[str, Path], where: str) -> None:
    """Check that the stage that reads the artifact, if it is to be made, says what is wrong, and makes nothing."""
    reader = READERS.get(stage, stage)
    aside = made[reader].with_name("aside")
    if reader != stage:
        made[reader].rename(aside)
    try:
        with pytest.raises(DataError) as error:
            Pipeline(config(copy)).run(reader)
    finally:
        if reader != stage:
            assert not made[reader].exists(), where
            aside.rename(made[reader])
    message = str(error.value)
    assert name in message and f"stage {stage} has to be made again" in message and "`rm -r " in message, where
    assert "\n" not in message, where
