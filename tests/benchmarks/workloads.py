"""What the benchmark programs work on: the quickstart's own texts, made by its stages and prompt set."""

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.base import Request, Sampling
from judgetrain.judges.prompting.prompts import judgment_slots, load_prompt_set
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured

Row = dict[str, Any]
MIRRORED = str.maketrans("12345", "54321")
PROMPTS = "compact"


@cache
def examples(comparisons: int) -> tuple[Row, ...]:
    """Return what the annotator of the quickstart's world teaches about so many comparisons, shuffled."""
    words = [f"dialogues.world.train_dialogues={2 * comparisons}", f"cluster.sample={comparisons}"]
    words += [f"teacher.comparisons={comparisons}", "teacher.judged=null", "cluster.n_clusters=4", "track.tracker=none"]
    with TemporaryDirectory() as place:
        artifact = Pipeline(configured("recipe=quickstart", f"output_dir={place}", *words)).run("teacher")
        rows = [*read_rows(Path(artifact), "examples")]
    random.Random(0).shuffle(rows)
    return tuple(rows)


def pairs(comparisons: int) -> list[Row]:
    """Return pairs of judgments: the annotator's, and the same with every score mirrored."""
    rows = []
    for row in examples(comparisons):
        text = row["completion"][0]["content"]
        if row["level"] == "judgment" and text.translate(MIRRORED) != text:
            sides = {"chosen": text, "rejected": text.translate(MIRRORED)}
            answers = {side: [{"role": "assistant", "content": answer}] for side, answer in sides.items()}
            rows.append({"prompt": row["prompt"], "level": "judgment", "nodes": row["nodes"], **answers})
    return rows


def judgments(comparisons: int, criteria: int, of_each: int, tokens: int = 64) -> list[Request]:
    """Return requests for judgments at temperature 1: ``comparisons`` x ``criteria`` prompts, each so many times."""
    prompts = load_prompt_set(PROMPTS)
    sampling = Sampling(temperature=1.0, max_new_tokens=tokens)
    lists = [row["completion"][0]["content"] for row in examples(40) if row["level"] == "criteria"]
    names = sorted({line.split(". ", 1)[1] for text in lists for line in text.splitlines()})[:criteria]
    return [
        Request(messages=prompts.render("judgment", judgment_slots(c, "AB", name, "look at it")), sampling=sampling)
        for c in eval_comparisons(WorldConfig(eval_comparisons=comparisons), 5)
        for name in names
        for _ in range(of_each)
    ]
