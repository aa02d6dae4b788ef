"""docs/papers.md: every equation, table and figure of the papers stands there, and all that it names exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from judgetrain.pipeline import groups, recipes
from judgetrain.pipeline.key_names import every_key
from judgetrain.pipeline.variants import GROUPS
from tests.builders.pipeline import configured

ROOT = Path(__file__).parents[2]
HEAD = ["what", "where", "how it stands", "the paper's way", "recipe"]
TOKEN = re.compile(r"`([^`]+)`")

NUMBERED = {
    "Branching": {"Equation": 2, "Table": 12, "Figure": 5},
    "ProbDiff": {"Equation": 4, "Table": 9, "Figure": 5},
    "Glass-box": {"Table": 2, "Figure": 8},
}
"""By the beginning of a section's title: how many of each its paper has; glass-box equations have names alone."""
NAMED = [
    "SentProb", "Softmax-Ent", "Softmax-Var", "Softmax-combo", "Unt-Exp", "Unt-Var", "AttnEnt", "AttnEnt-Min",
    "AttnEnt-Avg", "SentProb-Ref",
]  # fmt: skip


class Row(NamedTuple):
    """A line of the page."""

    section: str
    what: str
    where: str
    stands: str
    way: str
    recipe: str


def rows() -> Iterator[Row]:
    """Yield the lines of all tables with the page's head."""
    section = ""
    columns = list[str]()
    for line in (ROOT / "docs" / "papers.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not cells:
            columns = []
        elif not columns:
            columns = cells
            assert columns == HEAD, f"{section}: {columns}"
        elif set(cells[0]) != {"-"}:
            assert len(cells) == len(HEAD), line
            yield Row(section, *cells)


ROWS = list(rows())


@cache
def names_in(path: Path) -> set[str]:
    """Return the functions, classes, methods and constants of a module, methods as CLASS.METHOD."""
    names = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member.name}" for member in node.body if isinstance(member, ast.FunctionDef)}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_files_and_names_exist(row: Row) -> None:
    places = TOKEN.findall(row.where)
    assert places, f"{row.what}: says nowhere where it is"
    for place in places:
        path, _, name = place.partition(":")
        assert (ROOT / path).is_file(), f"{row.what}: {path}"
        assert name in names_in(ROOT / path), f"{row.what}: {path} has no {name}"


def overrides() -> list[str]:
    """Return all that stands in the column of keys."""
    return [token for row in ROWS for token in TOKEN.findall(row.way)]


def test_keys_exist() -> None:
    key_names_there = {key.name for key in every_key()} | set(groups()) | set(GROUPS.values())
    for token in overrides():
        assert token.partition("=")[0] in key_names_there, token


def test_values_are_allowed() -> None:
    # Each value is taken by the configuration; a key that stands there with several is tried with each.
    assignments = list(dict.fromkeys(token for token in overrides() if "=" in token))
    while assignments:
        now = {token.partition("=")[0]: token for token in reversed(assignments)}
        config = configured("recipe=quickstart", *now.values())
        for override in OverridesParser.create().parse_overrides(list(now.values())):
            value = config
            for part in override.key_or_group.split("."):
                value = getattr(value, part)
            assert value == override.value(), override.input_line
        assignments = [token for token in assignments if token not in now.values()]


ON_THE_COMMAND_LINE = {
    "dialogues.near_dedup=false", "train.dpo.keep_best=false", "scorer.revision_prompt=simple",
    "selfeval.methods=[decensem_exp,decensem_var]", "selfeval.methods=[softmax_ent+illustration]", "label.holdout=0",
    "evaluate.pointwise.prompts=auto_j_score",
    # Jobs of a sweep.
    "scorer.revision_temperature=0.7", "scorer.revision_temperature=null",
}  # fmt: skip
"""Of the paper's ways those that no recipe of their rows sets."""


def test_recipes_set_what_the_page_says_of_them() -> None:
    """Whatever defaults become: of each row's values, one recipe of that row has it when it is resolved."""
    unset = set[str]()
    resolved = cache(configured)
    for row in ROWS:
        configs = [resolved(f"recipe={name}", "data_dir=DIR") for name in TOKEN.findall(row.recipe)]
        for token in (token for token in TOKEN.findall(row.way) if "=" in token):
            (override,) = OverridesParser.create().parse_overrides([token])
            configured_values = list(map(attrgetter(override.key_or_group), configs))
            expected = override.value()
            if isinstance(expected, list) and expected:  # scores, of which a recipe may compute others too
                configured_values = [[name for name in expected if name in value] for value in configured_values]
            if expected not in configured_values:
                unset.add(token)
    assert unset == ON_THE_COMMAND_LINE


def test_recipes_that_are_named_exist() -> None:
    named_recipes = {token for row in ROWS for token in TOKEN.findall(row.recipe)}
    assert {"paper_id", "paper_ood", "paper_transfer", "paper_ood_gpt4", "tables/table1", "selfeval"} <= named_recipes
    assert named_recipes <= set(recipes())


@pytest.mark.parametrize(("section", "kind"), [(s, k) for s, kinds in NUMBERED.items() for k in kinds])
def test_nothing_of_the_papers_is_missing(section: str, kind: str) -> None:
    numbers = list[int]()
    for row in ROWS:
        match = re.match(rf"{kind}s? (\d+)(?: and (\d+))?:", row.what)
        if match and row.section.startswith(section):
            numbers += [int(number) for number in match.groups() if number]
    assert sorted(numbers) == list(range(1, NUMBERED[section][kind] + 1))


def test_every_glass_box_score_is_there() -> None:
    described_scores = " ".join(row.what for row in ROWS if row.section.startswith("Glass-box"))
    assert [name for name in NAMED if not re.search(rf"(?<![\w-]){name}(?![\w-])", described_scores)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_departures_say_how_to_get_the_papers_way(row: Row) -> None:
    assert re.match(r"(exact|departs: |chosen: |ours: )", row.stands), row.stands
    if row.stands.startswith("departs"):
        assert TOKEN.search(row.way) or row.way.startswith("no key"), f"{row.what}: no way to have it the paper's way"
    if re.match(r"(Table|Figure)", row.what):
        assert TOKEN.search(row.recipe) or row.recipe.startswith(("not yet", "no data")) or not row.recipe
        assert row.recipe or "own words" in row.stands, f"{row.what}: neither a recipe nor why there is none"


def test_a_recipe_that_is_to_fill_a_row_computes_its_scores_of_data_that_has_what_they_need() -> None:
    computed = {"Softmax-combo": "softmax_combo", "Unt-Exp, Unt-Var": "prmensem_exp", "AttnEnt": "attnent_min"}
    computed |= {"decoding-based ensemble": "decensem_exp", "Figures 7 and 8": "self_generation"}
    seen = set[str]()
    for row in (row for row in ROWS if row.section.startswith("Glass-box") and TOKEN.search(row.recipe)):
        changes = [token for token in TOKEN.findall(row.way) if "=" in token]
        config = configured(f"recipe={TOKEN.findall(row.recipe)[0]}", "data_dir=DIR", *changes)
        methods = {name.removeprefix("scorer:") for name in (*config.evaluate.methods, *config.selfeval.methods)}
        for what, name in computed.items():
            if row.what.startswith(what):
                seen.add(what)
                assert name in methods, row.what
        if any("+" in name for name in config.selfeval.methods):
            assert all(source.type != "world" for source in config.dialogues.sources), f"{row.what}: no references"
    assert seen == set(computed)
