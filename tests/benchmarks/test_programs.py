"""Every program starts, and of some the figures are right where they can be worked out by hand.

Not part of the default run: ``pytest tests/benchmarks``, as ``.ci/run`` does.
"""

import importlib
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from judgetrain.data.world import queries
from judgetrain.data.world.language import load_language
from judgetrain.data.world.rule import load_world
from tests.benchmarks import figures
from tests.benchmarks.beside_length import by_kind
from tests.benchmarks.people_pairs_arms import Rated
from tests.benchmarks.probe_apart import fitted_to_others
from tests.benchmarks.quickstart_table import Results, Run, difference
from tests.benchmarks.stressed_rubrics import gained_by_length
from tests.benchmarks.taught_lists import Lists, lists_of
from tests.benchmarks.world_floors import of_rule

HERE = Path(__file__).parent
NO_PROGRAMS = {"__init__", "common", "workloads"}
PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NO_PROGRAMS)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("test_")])
def test_a_program_starts(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program = importlib.import_module(f"tests.benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0 and "usage:" in capsys.readouterr().out


def test_figures_of_all_comparisons_make_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At sizes that show nothing; scorers' figures are compared with their peer's in the program."""
    monkeypatch.setattr(sys, "argv", ["figures", "--tiny", "--out", str(tmp_path / "page.md")])
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)  # this process goes on to other tests
    (tmp_path / "page.md").write_text("# Speed\n\nWritten by hand.\n")
    figures.main()
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Speed\n\nWritten by hand.\n\n## Training\n")
    assert [line for line in page.splitlines() if line.startswith("## ")] == [f"## {name}" for name in figures.PROGRAMS]
    assert len(re.findall(r"\| [\d.]+ times as fast \|", page)) == 3 + 3 + 2 + 1
    for ours, peers in re.findall(r"held-out loss ([\d.]+), TRL's ([\d.]+)", page):
        assert abs(float(ours) - float(peers)) < 0.3 * float(peers)


def test_what_is_fitted_by_kind_knows_nothing_of_the_other_kind() -> None:
    features = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    expected = [[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 4.0], [5.0, 6.0, 0.0, 0.0]]
    assert by_kind(features, [(), ("harm",), ()]).tolist() == expected


def test_a_rule_of_length_by_kind_is_no_better_than_a_coin_where_length_is_balanced() -> None:
    """Of those who help the longer one is better in 3 of 4, of those who harm the shorter one in 3 of 4."""
    labels = ["A", "A", "A", "B"] * 5 + ["B", "B", "B", "A"] * 5
    rated = Rated(
        ids=[str(number) for number in range(40)],
        labels=labels,
        longer=["A"] * 40,
        prompts=[str(number) for number in range(40)],
        kinds=[()] * 20 + [("harm",)] * 20,
    )
    says_long = np.array([1.0, 1.0, 1.0, 0.0] * 5 + [1.0, 1.0, 1.0, 0.0] * 5)
    cells = rated.row("by kind", says_long, None).split(" | ")
    assert cells[2] == "40"
    assert cells[3].startswith("75.0 (")
    assert cells[4].startswith("50.0 (")
    # The second kind is half of the rows, and read rightly throughout.
    half_read = np.concatenate([says_long[:20], np.ones(20)])
    assert rated.row("reads harm", half_read, None).split(" | ")[4].startswith("75.0 (")
    gain = rated.differences(half_read, says_long)
    assert gain.startswith("+12.5 (")
    assert gain.split(" | ")[1].startswith("+25.0 (")


def test_what_is_fitted_to_other_prompts_knows_no_label_of_its_own() -> None:
    """Of features that say nothing, what is fitted is right by chance; of one that says all, always."""
    rng = np.random.default_rng(3)
    labels = rng.choice(["A", "B", "tie"], 300).tolist()
    prompts = [str(row // 3) for row in range(300)]
    signs = np.array([{"A": 1.0, "B": -1.0, "tie": 0.0}[label] for label in labels])
    noise = rng.normal(size=(300, 2))
    decided = signs != 0
    by_chance = np.sign(fitted_to_others(noise, labels, prompts)) == signs
    assert 0.38 < by_chance[decided].mean() < 0.62
    told = np.column_stack([noise[:, 0], 2 * signs + 0.1 * noise[:, 1]])
    assert (np.sign(fitted_to_others(told, labels, prompts)) == signs)[decided].all()


def test_figures_keep_what_is_written_by_hand() -> None:
    page = (HERE.parent.parent / "docs/results/speed.md").read_text()
    for title, (name, _, _) in figures.PROGRAMS.items():
        assert figures.with_marks(page, title, name) == page, title
    new = figures.between_marks(page, "train_speed", "A new table.")
    (section,) = re.findall(r"## Training\n(.*?)\n## ", new, flags=re.DOTALL)
    assert "A new table." in section and "| SFT, world" not in section
    assert "A bare loop of the same batches" in section, "a remark below the marks"
    others = [part for part in page.split("\n## ") if not part.startswith("Training")]
    assert [part for part in new.split("\n## ") if not part.startswith("Training")] == others
    assert figures.between_marks(new, "train_speed", "A new table.") == new
    with pytest.raises(ValueError, match="section 'Scoring' of the page: expected what is made between"):
        figures.with_marks("# Speed\n\n## Scoring\n\nby hand\n", "Scoring", "scorers_speed")


def test_differences_by_hand() -> None:
    """SFT is right on ten of a hundred more on one rule, on twenty more on the other: +15, t(1) = 12.706, error 5."""
    rules = []
    for more in (10, 20):
        right = {(name, 1): [i < n for i in range(100)] for name, n in (("initial+vote", 40), ("sft", 40 + more))}
        rules.append(Run(rows={key: {} for key in right}, right=right, minutes=1.0, labels=None))
    line = difference(rules, rules, ("sft", 1), ("initial+vote", 1))
    assert line == "+15.0 points (95%: -48.5 to 78.5)"


def test_finished_runs_are_kept_and_read_again(tmp_path: Path) -> None:
    right = [True, False, False, True, True]
    row = {"agreement": 0.6, "consistency": 1.0, "generated_tokens": 12.0, "n": 5, "other": "left out"}
    finished = Run(rows={("dpo", 3): row}, right={("dpo", 3): right}, minutes=1.25, labels=0.5)
    of = {"recipe": "quickstart", "rule": 111, "arm": "labels_0", "overrides": []}
    path = tmp_path / "results.jsonl"
    Results(path, "abc").add(of, finished)
    again = Results(path, "abc").get(of)
    assert again is not None and (again.right, again.minutes, again.labels) == (finished.right, 1.25, 0.5)
    assert again.rows["dpo", 3]["agreement"] == 0.6
    assert Results(path, "abc").get(of | {"rule": 112}) is None
    with pytest.raises(SystemExit, match="runs of commit abc, and this is abd"):
        Results(path, "abd")


def test_taught_lists_are_counted_by_what_stands_first(tmp_path: Path) -> None:
    query = queries("train")[0]
    deciding = load_world(7).deciding[load_language().kind_of(query)]
    first = [
        (deciding.primary, deciding.secondary),
        (deciding.secondary, deciding.primary),
        (deciding.primary, deciding.decoy),
        (deciding.decoy, deciding.primary),
    ]
    rows = []
    for one, two in first:
        text = f"1. {one}: as it should be\n2. {two}: as well\n10. more: and more"
        prompt = [{"role": "user", "content": f"List 10 criteria.\nQuery: {query}"}]
        rows.append({"level": "criteria", "prompt": prompt, "completion": [{"role": "assistant", "content": text}]})
    rows.append(rows[0] | {"level": "judgment"})
    (tmp_path / "sft-train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert lists_of(tmp_path, 7) == Lists(number=4, both_first=2, primary_first=2)


def test_floors_of_a_rule_are_below_its_ceilings() -> None:
    agreement = of_rule(3, 240)
    assert max(agreement["no label"].values()) < 0.8 < agreement["the rule"]["both_alike"]


def test_what_the_longest_response_gains_is_in_standard_deviations_of_the_truth() -> None:
    longest_is_best = {"responses": [{"text": "a b c", "truth": 1.0}, {"text": "a", "truth": 0.0}]}
    both_are_equally_long = {"responses": [{"text": "a b", "truth": 1.0}, {"text": "c d", "truth": 0.0}]}
    # A gain of 0.5, and one of 0; the deviation is 0.5 at either prompt.
    assert gained_by_length([longest_is_best, both_are_equally_long]) == pytest.approx(0.5)
