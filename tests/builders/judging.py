"""Stage judge in this process, and systems' answers in the shapes that they are published in."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.shards import read_rows
from judgetrain.pipeline.run import Pipeline
from tests.builders.data import write_lines
from tests.builders.pipeline import configured


def judge_stage(home: Path, *overrides: str, judge: str = "longer") -> Path:
    """Run stage judge and return its directory."""
    words = ("recipe=debug", f"output_dir={home}", "track.tracker=none", f"verdicts.judge={judge}", *overrides)
    return Pipeline(configured(*words), Console()).run("judge")


def judged(home: Path, *overrides: str, judge: str = "longer") -> list[dict[str, Any]]:
    """Run stage judge and return the rows of verdicts.jsonl."""
    return list(read_rows(judge_stage(home, *overrides, judge=judge), "verdicts"))


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write a file of JSON lines and return its path."""
    return Path(write_lines(path, rows))


def arena_hard(directory: Path) -> Path:
    """Write three systems' answers as Arena-Hard 2.0's gen_answer.py does, and return their folder."""
    questions = {"a1": "Write a parser.", "b2": "Tell a story."}
    answers = {"o3-mini": "a middle one", "small": "tiny", "large": "by far the longest of the three"}
    for model, answer in answers.items():
        rows = [
            {
                "uid": uid,
                "ans_id": f"{model}-{uid}",
                "model": model,
                "messages": [{"role": "user", "content": text}, {"role": "assistant", "content": {"answer": answer}}],
                "tstamp": 1745000000.1,
                "metadata": {"token_len": 5, "header_count": {"h1": 0}, "list_count": {"ordered": 0}},
            }
            for uid, text in questions.items()
        ]
        lines(directory / "model_answer" / f"{model}.jsonl", rows)
    return directory / "model_answer"


def alpaca_eval(directory: Path) -> list[Path]:
    """Write two systems' outputs.json of alpaca_eval, a JSON array each, and return their paths."""
    paths = []
    for generator, output in {"gpt4_1106_preview": "A full answer.", "mine": "Yes."}.items():
        rows = [
            {"dataset": "helpful_base", "instruction": text, "output": output, "generator": generator}
            for text in ("Who is famous?", "How did states get their names?")
        ]
        paths.append(directory / f"{generator}.json")
        paths[-1].write_text(json.dumps(rows), encoding="utf-8")
    return paths
