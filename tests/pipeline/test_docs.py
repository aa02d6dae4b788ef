"""The pages for users: links and anchors lead somewhere, every page is in the index, and every command would run."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.core.plugins import Plugins

from judgetrain import rooms
from judgetrain.data.config import BenchmarkConfig
from judgetrain.errors import ConfigError, DataError
from judgetrain.pipeline import key_names
from judgetrain.pipeline.config import STAGES, Config
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?")
COMMANDS = {*rooms.stages(), *rooms.commands(), "keys"}
EXTRAS = {"joblib": "JoblibLauncher", "optuna": "OptunaSweeper", "slurm": "SlurmLauncher"}


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of every ``python -m judgetrain`` in a page's blocks of commands."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for command in line.split("&&"):
                words = shlex.split(command, comments=True)
                if words[:3] == ["python", "-m", "judgetrain"]:
                    yield words[3:]


def single(override: str) -> str:
    """Return the first value of a sweep's override."""
    key, _, value = override.partition("=")
    return override if value.startswith(("[", "{", "interval")) else f"{key}={value.split(',')[0]}"


def slugs(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            linked_page = page.parent / target if target else page
            assert linked_page.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in slugs(linked_page), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_examples_are_python(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        compile(textwrap.dedent(block).replace(", ...)", ")"), page.name, "exec")


def test_every_stage_is_listed() -> None:
    listed = re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "stages.md").read_text(encoding="utf-8"))
    assert not {*rooms.stages(), *rooms.commands()}.difference(listed)


def test_the_page_of_keys_is_up_to_date() -> None:
    """Make it with ``python -m judgetrain keys --markdown > docs/keys.md``."""
    assert (ROOT / "docs" / "keys.md").read_text(encoding="utf-8") == key_names.page()


def test_every_page_is_reached_from_the_index() -> None:
    pages = {page.resolve() for page in (ROOT / "docs").rglob("*.md")}
    reached = set[Path]()
    new = {(ROOT / "docs" / "README.md").resolve()}
    while new:
        reached |= new
        linked_pages = set[Path]()
        for page in new:
            targets = [target for target, _ in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
            linked_pages |= {(page.parent / target).resolve() for target in targets}
        new = (linked_pages & pages) - reached
    missed = sorted(str(page.relative_to(ROOT)) for page in pages - reached)
    assert not missed, f"no page that docs/README.md leads to names {missed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_a_page_names_in_passing_exists(page: Path) -> None:
    """Keys that are set in a sentence, the project's own programs, and the names of stages and commands."""
    text = page.read_text(encoding="utf-8")
    key_types = key_names.key_types()
    sections = {name.partition(".")[0] for name in key_types if "." in name}
    for name in re.findall(r"`(?:[^`\n]* )?([a-z_]+\.[\w.\[\]]+)=", text):
        assert name.partition(".")[0] not in sections or key_names.is_key(name, key_types), f"{page.name}: {name}"
    for program in re.findall(r"python -m (tests\.[\w.]+)", text):
        assert (ROOT / f"{program.replace('.', '/')}.py").exists(), f"{page.name}: {program}"
    for words in commands(page):
        for word in words[:1]:
            assert "=" in word or word.startswith("-") or word in COMMANDS, f"{page.name}: {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_would_run_where_their_files_are(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plugins = {cls.__name__ for cls in Plugins.instance().discover()}
    for words in commands(page):
        overrides = [single(w) if "-m" in words else w for w in words if "=" in w and not w.startswith("hydra.")]
        sweeps = [w.removeprefix("sweep=") for w in overrides if w.startswith("sweep=")]
        if any(EXTRAS[name] not in plugins for name in sweeps) or any("interval(" in w for w in overrides):
            continue
        if any(re.fullmatch(r"recipe=.*\.yaml", w) for w in overrides):  # of the user's own
            continue
        named = [f"stage={word}" for word in words[:1] if word in rooms.stages()]
        config = configured(*overrides, *named, as_run=True)
        assert all(isinstance(b, BenchmarkConfig) for b in config.dialogues.decontaminate), words
        if config.stage in STAGES:
            assert not refusals(config), words


def refusals(config: Config) -> list[str]:
    """Why a run under the configuration would not begin, but for the page's own files, which are not here."""
    try:
        Pipeline(config).plan(config.stage)
    except (ConfigError, DataError) as error:
        return [line for line in str(error).splitlines() if "no such file" not in line]
    return []
