"""Hand-made trees, and the teacher's stage with the world's annotator."""

from pathlib import Path
from typing import Any

from judgetrain.artifacts.console import Console
from judgetrain.artifacts.stage_run import StageRun
from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.judges.trees.config import TreeConfig
from judgetrain.judges.trees.schema import CriterionNode, EvaluationTree, GuidelineNode, JudgmentNode
from judgetrain.label import teacher_stage
from judgetrain.label.config import TeacherConfig
from judgetrain.label.examples import Prompter
from judgetrain.label.stages import TeacherSettings
from judgetrain.pipeline.config import Config
from tests.builders.scripted import comparison

PROMPTER = Prompter(load_prompt_set("compact"), 6)
SCORES = {"A": (4.0, 2.0), "B": (2.0, 4.0), "t": (3.0, 3.0), "?": (None, None)}
SAMPLED: dict[str, Any] = {"prompt_tokens": 1, "generated_tokens": 1, "finish_reason": "stop"}
ANY_EVIDENCE: dict[str, Any] = {"min_evidence": 0.5}
"""Of a label configuration: what four judgments show is enough, also of a level whose differences are chance."""
TAUGHT = eval_comparisons(WorldConfig(eval_comparisons=20), seed=5)
"""The comparisons of :func:`run_teacher`."""


def leaf(node: str, order: str, text: str, a: float | None, b: float | None, failure: str | None) -> JudgmentNode:
    return JudgmentNode(id=node, order=order, text=text, score_a=a, score_b=b, failure=failure, **SAMPLED)  # type: ignore[arg-type]


def tree_of(*criteria: tuple[str, ...], index: int = 0) -> EvaluationTree:
    """Return a tree. A criterion is a tuple of guidelines, each a word of verdicts: half of them AB, half BA."""
    nodes = []
    for rank, guidelines in enumerate(criteria):
        base = f"d{index}/c{rank}"
        criterion_nodes = []
        for number, word in enumerate(guidelines):
            leaves = []
            for i, letter in enumerate(word):
                order = "AB" if i < len(word) / 2 else "BA"
                (a, b) = SCORES[letter]
                failure = "no_scores" if letter == "?" else None
                text = f"reasons {letter} {'abcdefgh'[i]}"
                leaves.append(leaf(f"{base}/g{number}/{i}", order, text, a, b, failure))  # type: ignore[arg-type]
            text = f"guideline {'abc'[number]}"
            identifier = f"{base}/g{number}"
            criterion_nodes.append(GuidelineNode(id=identifier, text=text, judgments=tuple(leaves), **SAMPLED))
        name = f"{'uvwxyz'[rank]}name: x"
        nodes.append(
            CriterionNode(id=base, text=name, rank=rank, generated_tokens=1, guidelines=tuple(criterion_nodes))
        )
    text = "\n".join(f"{i}. {c.text}" for i, c in enumerate(nodes, 1))
    return EvaluationTree(
        comparison=comparison(index),
        criteria_text=text,
        criteria_prompt_tokens=1,
        criteria_generated_tokens=1,
        criteria=tuple(nodes),
        seed=0,
        failures={},
    )


def teacher_config(
    taught: int = 14, asked: int = 6, listed: int = 6, both_orders: bool = True, judged: int | None = None
) -> Config:
    teacher = TeacherConfig(
        engine=WorldEngineConfig(error_rate=0.2),
        comparisons=taught,
        criteria=listed,
        judged=judged,
        branches=2,
        both_orders=both_orders,
    )
    return Config(prompts="compact", teacher=teacher, tree=TreeConfig(criteria=asked, shard_size=4))


def run_teacher(directory: Path, config: Config) -> StageRun:
    responses = StageRun(directory.parent / "responses", "responses", 0, Console())
    responses.write_rows("comparisons", (c.to_row() for c in TAUGHT))
    out = StageRun(directory, "teacher", 7, Console())
    teacher_stage.run(TeacherSettings.of(config), {"responses": responses.directory}, out)
    return out
