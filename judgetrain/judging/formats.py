"""Verdicts in the shapes of other tools, so that their leaderboards read them.

- ``arena_hard``: ``model_judgment/JUDGE/MODEL.jsonl`` of Arena-Hard 2.0 (lmarena/arena-hard-auto, ``gen_judgment.py``):
  the model's row against the baseline, which is A in the first game and B in the second.
- ``alpaca_eval``: ``annotations.json`` (tatsu-lab/alpaca_eval): ``preference`` from 1 (output_1) to 2 (output_2).
- ``battles``: ``battles.jsonl``, rows ``model_a, model_b, winner`` (lm-sys/FastChat; lmsys/mt_bench_human_judgments).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from judgetrain.artifacts.files import write_json_atomic
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.schema import ORDERS

Rows = Iterable[Mapping[str, Any]]

_SCORES = {"A": "A>B", "B": "B>A", "tie": "A=B", None: None}
_MIRRORED = {"A": "B>A", "B": "A>B", "tie": "A=B", None: None}
_PREFERENCES = {"A": 1.0, "B": 2.0, "tie": 1.5}
_WINNERS = {"A": "model_a", "B": "model_b", "tie": "tie", "inconsistent": "tie (inconsistent)"}


def arena_hard(rows: Rows, out: StageRun) -> str:
    """A file for every ``model_b``, its games against ``model_a``; a game that could not be read has score null."""
    by_model: dict[str, list[dict[str, Any]]] = {}
    judge = ""
    for row in rows:
        judge = row["judge"]
        texts = _texts(row)
        games: list[dict[str, Any]] = [
            {"score": _SCORES[row["verdict_ab"]], "judgment": {"answer": texts["AB"]}, "prompt": []},
            {"score": _MIRRORED[row["verdict_ba"]], "judgment": {"answer": texts["BA"]}, "prompt": []},
        ]
        by_model.setdefault(row["model_b"] or "model_b", []).append(
            {
                "uid": _local(row),
                "category": row["group"],
                "judge": judge,
                "model": row["model_b"] or "model_b",
                "baseline": row["model_a"] or "model_a",
                "games": games,
            }
        )
    place = f"model_judgment/{_file_name(judge)}"
    short = Counter(map(_file_name, by_model))
    for model, found in by_model.items():
        # Two owners' models of one name have a file each, under their whole names.
        name = _file_name(model) if short[_file_name(model)] == 1 else _file_name(model.replace("/", "--"))
        out.write_rows(f"{place}/{name}", found)
    return place


def alpaca_eval(rows: Rows, out: StageRun) -> str:
    """A row for every pair; ``preference`` is the verdict's, or the mean of both orders where they contradict one
    another (1.5: a draw), null where one was not read."""
    write_json_atomic(out.path("annotations.json"), list(map(_annotation, rows)))
    return "annotations.json"


def _annotation(row: Mapping[str, Any]) -> dict[str, Any]:
    orders = [_PREFERENCES.get(row[f"verdict_{order}"]) for order in ("ab", "ba")]
    if row["verdict"] in _PREFERENCES:
        orders = [_PREFERENCES[row["verdict"]]] * len(ORDERS)
    readable = [value for value in orders if value is not None]
    return {
        "instruction": row["messages"][-1]["content"] if row["messages"] else "",
        "output_1": row["response_a"],
        "generator_1": row["model_a"],
        "dataset": row["group"],
        "output_2": row["response_b"],
        "generator_2": row["model_b"],
        "annotator": row["judge"],
        "preference": sum(readable) / len(readable) if len(readable) == len(ORDERS) else None,
        "raw_completion": "\n\n".join(_texts(row).values()),
        "time_per_example": None,
        "price_per_example": None,
    }


def battles(rows: Rows, out: StageRun) -> str:
    """A row for every verdict that could be read: ``tie (inconsistent)`` where the orders differ."""
    out.write_rows("battles", _battles(rows))
    return "battles.jsonl"


def _battles(rows: Rows) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["verdict"] not in _WINNERS:
            continue
        sides = {
            f"conversation_{side}": [*row["messages"], {"role": "assistant", "content": row[f"response_{side}"]}]
            for side in "ab"
        }
        yield {
            "question_id": _local(row),
            "model_a": row["model_a"] or "model_a",
            "model_b": row["model_b"] or "model_b",
            "winner": _WINNERS[row["verdict"]],
            "judge": row["judge"],
            **sides,
            "turn": sum(message["role"] == "user" for message in row["messages"]),
        }


def _local(row: Mapping[str, Any]) -> str:
    """The prompt's own id, without the name of its source."""
    return str(row["dialogue_id"]).partition(":")[2] or str(row["dialogue_id"])


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    """What the judge wrote in each order, branch by branch."""
    return {order: "\n\n".join(r["text"] for r in row["reasons"] if r["order"] == order) for order in ORDERS}


def _file_name(name: str) -> str:
    """A model's name as a file's; only what stands behind the last slash, as Arena-Hard has it."""
    return name.rpartition("/")[2].replace(":", ".") or "judge"


WRITERS: dict[str, Callable[[Rows, StageRun], str]] = {
    "arena_hard": arena_hard,
    "alpaca_eval": alpaca_eval,
    "battles": battles,
}
"""By the name in ``verdicts.write``; each gives the place of what it wrote, in the stage's directory."""
