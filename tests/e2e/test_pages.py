"""The commands of docs/ that use a judge or look at results are run as written, on the debug recipe's judge.

Why others are not is said of each; tests/pipeline/test_docs.py plans all.
"""

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from judgetrain.judges.deciding import DECIDED, Thresholds
from tests.builders.debug_run import finished_once
from tests.builders.judging import arena_hard
from tests.builders.pipeline import here
from tests.e2e.test_readme import READABLE, rows
from tests.pipeline.test_docs import PAGES, commands

WHY_NOT = {
    "needs a GPU": ("engine=vllm", "scorer.model.gpus=4", "recipe=pairs_24gb", "hub=OWNER/NAME"),
    "needs a cluster, or many workers": ("executor=ray", "executor.workers=4"),
    "reads published data or a model of the Hub": (
        *(
            "recipe=published",
            "recipe=tables/table2",
            "recipe=tables/scenarios",
            "recipe=paper_ood",
            "recipe=corpus",
            "recipe=gemma",
        ),
        *("recipe=gemma_small", "recipe=selfeval", "recipe=tables/glassbox_stored", "dialogues.sources=[{name: uf,"),
    ),
    "asks a paid model: tests/e2e/test_readme.py runs it up to the estimate": ("teacher=openai", "external=openai"),
    "reads a recipe, prompt set or sweep of the user's": (
        *("recipe=DIR/judgetrain.yaml", "prompts=mine.yaml", "prompts=multi_step,mine.yaml", "report.runs="),
    ),
    "trains on one's own rows: tests/e2e/test_own_rows.py and test_readme.py do": ("recipe=pairs",),
    "trains or measures for minutes: tests/e2e/test_quickstart.py does, with recipe=debug": (
        *("-m", "stage=rl", "recipe=guarantees", "recipe=robustness", "recipe=quickstart", "recipe=quickstart_scorers"),
        *("guarantees.required=", "stage=label", "evaluate.dev_share=0.3", "tree.judgments=2", "stage=evaluate"),
        *("recipe=sweeps/beta_learning_rate", "recipe=sweeps/branches_label_source"),
    ),
    "has weights of its own: tests/e2e/test_readme.py runs it": ("recipe=untrained",),
    "needs labels of responses that its judge can read: tests/judging/test_labelled_responses.py": (
        "verdicts.source.path=ratings.jsonl",
    ),
    "asks for ten criteria, of which the debug recipe's judge names four: tests/extras/rubric": (
        *("verdicts.judge=teacher@10", "verdicts.judge=./my-judge@10", "criteria=mine.yaml"),
    ),
    "names judges of one evaluation, of which the newest here is another: tests/extras/view": ("view.judges=",),
    "looks and waits: tests/extras/init, tests/extras/server": ("init", "serve"),
}
"""What stands in commands that are planned alone, by the reason."""
MEASURES_MINE = ("evaluate.methods=[./my-judge", "evaluate.methods=[./my_judge, random]")


def why_not(words: Sequence[str]) -> str | None:
    """Why a command is not run here; None of one that is."""
    is_gate = any(word.startswith("guarantees.required=") for word in words)
    if not is_gate and any(word.startswith(MEASURES_MINE) for word in words):
        return None
    reasons = (why for why, parts in WHY_NOT.items() for part in parts for word in words if word.startswith(part))
    return next(reasons, None)


RUN = [words for page in PAGES[1:] for words in commands(page) if not why_not(words)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a copy of a finished run and every file that a page names."""
    place = tmp_path_factory.mktemp("pages")
    done = finished_once(tmp_path_factory)
    # Links stay links: outputs/judge leads to the newest judge.
    shutil.copytree(done, place / "outputs", symlinks=True)
    (judge,) = done.glob("artifacts/dpo/*/model")
    for name in ("my-judge", "my_judge"):
        (place / name).symlink_to(judge)
    labelled_rows = [
        {"query": c.dialogue.query, "response_a": c.response_a, "response_b": c.response_b, "label": c.label}
        for c in rows(28)
    ]
    texts = {
        "mine": labelled_rows[:4],
        "labelled": labelled_rows,
        "answers": [{"query": r["query"], "response": r["response_a"]} for r in labelled_rows[:4]],
    }
    for name, some in texts.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    battles = [{"model_a": "a", "model_b": "b", "winner": "model_a"}, {"model_a": "b", "model_b": "c", "winner": "tie"}]
    for name, some in (("mine", labelled_rows[:4]), ("battles", battles)):
        with (place / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, some[0])
            writer.writeheader()
            writer.writerows(some)
    (place / "verdicts.jsonl").write_text(json.dumps({"model_a": "a", "model_b": "c", "verdict": "A"}) + "\n")
    (place / "rubric.yaml").write_text("- {name: numbers, text: gives exact numbers}\n")
    thresholds = Thresholds(units="points", error=0.1, delta=0.1, n=40, undecided=0.5, decided=20, wrong=0, margin=1.0)
    thresholds.save(place)
    for name in "abc":
        answers = [
            {"instruction": r["query"], "output": r["response_a"] + f" {name} .", "generator": name}
            for r in labelled_rows[:2]
        ]
        (place / name).mkdir()
        (place / name / "outputs.json").write_text(json.dumps(answers))
    arena_hard(place)
    return place


@pytest.mark.parametrize("words", RUN, ids=lambda words: " ".join(words)[:60])
def test_a_command_is_run_as_written(words: list[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    small = [*READABLE, "robustness.sample=2", "evaluate.bootstrap=100"] if "calibrate" not in words else READABLE
    named = {"judge=DIR": "judge=./my-judge", "judge.decided=FILE": f"judge.decided={DECIDED}"}
    arguments = []
    for word in words:
        for shown, there in named.items():
            word = word.replace(shown, there)
        arguments.append(word)
    done = here(*arguments, *([] if words[0].startswith("--") else small), "recipe=debug")
    assert done.returncode == 0, done.stderr


def test_every_reason_is_one_of_a_command() -> None:
    named = [words for page in PAGES[1:] for words in commands(page)]
    for part in (part for parts in WHY_NOT.values() for part in parts):
        assert any(word.startswith(part) for words in named for word in words), f"no page has {part} any more"
