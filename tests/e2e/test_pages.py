"""The commands of docs/ are run as written, on the debug recipe's judge. Why others are not is said of each.

Tutorials are followed from their first line to their last (tests/e2e/test_tutorials.py), README's commands stand in
tests/e2e/test_readme.py, blocks of Python in tests/e2e/test_python_blocks.py; tests/pipeline/test_docs.py plans all.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.builders.debug_run import finished_once
from tests.builders.page_home import JUDGES, blocks, furnish
from tests.builders.pipeline import here
from tests.e2e.test_readme import READABLE
from tests.pipeline.test_docs import PAGES, ROOT, commands

# What results were made by takes hours; test_docs.py plans it.
GUIDES = [page for page in PAGES[1:] if page.parent.name not in ("tutorials", "results")]
WHY_NOT = {
    "needs a GPU": ("engine=vllm", "scorer.model.gpus=4", "recipe=pairs_24gb"),
    "needs a cluster: tests/extras/ray has one of one machine": ("executor=ray",),
    "writes to the Hub: tests/pipeline/test_hub.py, to one of its own": ("hub=OWNER/NAME",),
    "is a recipe on published data or larger models: tests/pipeline/test_tiny_recipes.py makes them tiny": (
        *("recipe=published", "recipe=tables/table2", "recipe=paper_ood", "recipe=people_pairs"),
        *("recipe=selfeval", "recipe=tables/glassbox_stored", "recipe=guarantees", "recipe=robustness"),
        "recipe=quickstart_scorers",
    ),
    "is a sweep, or names one's directory: tests/pipeline/test_sweep.py": (
        *("-m", "recipe=sweeps/beta_learning_rate", "recipe=sweeps/branches_label_source", "report.runs="),
    ),
    "asks a paid model: tests/e2e/test_readme.py runs it up to the estimate": ("teacher=openai", "external=openai"),
    "reads the recipe that init writes: tests/e2e/test_tutorials.py goes on with one": ("recipe=DIR/judgetrain.yaml",),
    "trains on one's own rows: tests/e2e/test_own_rows.py and test_readme.py do": ("recipe=pairs",),
    "trains by reinforcement for minutes: tests/extras/rl": ("stage=rl", "evaluate.methods=[dpo,rl]"),
    "is a gate, which a judge of the debug recipe does not pass: tests/extras/guarantees": ("guarantees.required=",),
    "has weights of its own: tests/e2e/test_readme.py runs it": ("recipe=untrained",),
    "asks for ten criteria, of which the debug recipe's judge names four: tests/extras/rubric": (
        "verdicts.judge=./my-judge@10",
    ),
    "is answered by a server, or asks for one's files: tests/extras/server, tests/extras/init": ("init", "serve"),
}
"""What stands in commands that are planned alone, by the reason."""
OTHER_PROGRAMS = {
    "installs packages: .ci/parts do, with README's own command among them": ("pip ", "python -m venv ", ". vllm/"),
    "is pytest, which runs this test, or the GPU's tests: tests/gpu": ("python -m pytest",),
    "prints figures for hours: tests/benchmarks/test_programs.py runs some at a size that shows nothing": (
        "python -m tests.benchmarks.",
        "python -m judgetrain.extras.world_base.pretrain",
    ),
    "asks a server that runs meanwhile: tests/extras/server": ("curl ", "echo '{", "transformers serve "),
    "needs an account elsewhere": ("wandb sync",),
    "chooses how a shell's processes keep memory, before a command that trains": ("export GLIBC_TUNABLES=",),
    "needs a cluster: tests/train/test_stopped.py runs the script with stand-ins": ("sbatch ",),
    "is a key of the shell, which test_cli.py asks for": ('eval "$(judgetrain -sc', "judgetrain stage=evaluate train"),
    "is this test's own preparation": ("ln -s outputs/judge", "cp judgetrain/judges/prompting/", "WANDB_PROJECT="),
}
"""How lines of blocks of commands begin that call another program, by the reason why they are not run here."""
OWN_SIZES = {"recipe=corpus": ("cluster.encoder=static:world", "cluster.n_clusters=2", "track.tracker=none")}
"""What makes a command small that names a recipe of its own; all others are run with the debug recipe."""


def why_not(words: Sequence[str]) -> str | None:
    """Return why a command is not run here; None of one that is."""
    for reason, beginnings in WHY_NOT.items():
        if any(word.startswith(beginning) for beginning in beginnings for word in words):
            # recipe=pairs_24gb is no recipe=pairs; what is a reason for either stands above.
            return reason
    return None


RUN = [words for page in GUIDES for words in commands(page) if not why_not(words)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a copy of a finished run and every file that a page names."""
    place = tmp_path_factory.mktemp("pages")
    furnish(place, finished_once(tmp_path_factory))
    return place


def at_debug_size(words: Sequence[str]) -> list[str]:
    """Return a command's arguments with what makes it small, and with files that are there."""
    arguments = []
    for word in words:
        word = word.replace("judge.decided=FILE", "judge.decided=decided.json")
        # A directory of the user's, which has a path where an example has DIR.
        arguments.append(re.sub(r"(?<![/\w])(DIR\d?)(?=@|$|,|\])", r"./\1", word))
    for recipe, sizes in OWN_SIZES.items():
        if recipe in arguments:
            return [word.replace("data_dir=./DIR", "data_dir=dialogues") for word in arguments] + [*sizes]
    # The quickstart, which the debug recipe is with everything tiny.
    arguments = [word for word in arguments if word != "recipe=quickstart"]
    if any(word.startswith("view.judges=") for word in arguments):
        # Of the newest evaluation, which is another once other commands have run.
        arguments = [word.replace("outputs", "finished") for word in arguments]
    if not words[0].startswith("--"):
        # Its form is enforced where the command needs what a judge says; elsewhere what is evaluated already is taken.
        is_asked = any(name in word for name in JUDGES for word in words)
        arguments += READABLE if is_asked else READABLE[:1]
        if "calibrate" not in words:
            arguments += ["robustness.sample=2", "evaluate.bootstrap=100"]
    return [*arguments, "recipe=debug"]


@pytest.mark.parametrize("words", RUN, ids=lambda words: " ".join(words)[:60])
def test_a_command_is_run_as_written(words: list[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    done = here(*at_debug_size(words))
    assert done.returncode == 0, done.stderr


def test_every_reason_is_one_of_a_command() -> None:
    named = [words for page in GUIDES for words in commands(page)]
    for part in (part for parts in WHY_NOT.values() for part in parts):
        assert any(word.startswith(part) for words in named for word in words), f"no page has {part} any more"


def other_lines() -> Iterator[tuple[str, str]]:
    """Yield page and text of every command in a block of commands that does not call judgetrain's command line."""
    for page in PAGES:
        if page.parent.name == "results":
            continue
        for block in blocks(page):
            if block.language != "bash":
                continue
            for line in block.text.replace("\\\n", " ").splitlines():
                for command in line.split(" && "):
                    text = command.strip()
                    if shlex.split(text, comments=True) and not text.startswith("python -m judgetrain "):
                        yield str(page.relative_to(ROOT)), text


def test_every_other_line_of_a_block_of_commands_has_its_reason() -> None:
    lines = [*other_lines()]
    beginnings = [beginning for some in OTHER_PROGRAMS.values() for beginning in some]
    for page, text in lines:
        followed = page.startswith("docs/tutorials/")
        assert followed or text.startswith(tuple(beginnings)), f"{page}: run {text!r}, or say why it is not run"
    for beginning in beginnings:
        assert any(text.startswith(beginning) for _, text in lines), f"no page has {beginning} any more"
