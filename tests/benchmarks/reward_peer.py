"""The peer that anybody with labelled pairs would try: TRL's RewardTrainer, on the same base and the same labels.

    python -m tests.benchmarks.reward_peer PAIRS KEEP --rates 1e-4 3e-5 1e-5 recipe=people_pairs data_dir=DIR

PAIRS is a finished stage ``teacher`` (pairs that the Initial judge was taught) or ``responses`` (all pairs). What is no
option is an override of the recipe, whose base is trained and whose ``evaluate.benchmarks``, development rows, choose
the rate. A pair whose label is a tie teaches nothing here. Where a row brings criteria of its own, they stand before
its query, so that the peer is told what the judge is: which response helps more, or which harms less. The other
settings are TRL's defaults, of which 1e-4 and three epochs are two. KEEP holds a directory for each rate, seed and
number of labels, which is resumed after a kill and not made twice, and ``results.jsonl``. What is printed is measured
as by ``people_pairs_arms``; the last line names the best rate by length-balanced forced choice.
"""

from __future__ import annotations

import json
import random
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from judgetrain.artifacts.shards import read_rows
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.extras.reward_model.judge import RewardJudge, conversation
from judgetrain.pipeline.config import Config
from judgetrain.schema import Comparison
from tests.benchmarks.common import parser_of, with_overrides
from tests.benchmarks.people_pairs_arms import Floats, Measured, kind_of, right_by
from tests.builders.pipeline import configured

CHECKPOINT_STEPS = 20


def labelled_pairs(directory: Path) -> list[Comparison]:
    """Return the comparisons of a finished stage teacher or responses that are decided, in their order."""
    if (directory / "comparisons.jsonl").exists():
        rows = list(read_rows(directory, "comparisons"))
    else:
        rows = [row["comparison"] for row in read_rows(directory, "evaluations")]
    comparisons = [Comparison.from_row(row) for row in rows]
    return [comparison for comparison in comparisons if comparison.label in ("A", "B")]


def told(comparison: Comparison) -> Comparison:
    """Return a comparison whose query begins with the criteria that its row brings, if it brings any."""
    criteria = kind_of(comparison)
    if not criteria:
        return comparison
    *earlier, last = comparison.dialogue.messages
    asked = replace(last, content=f"Judge the answer by this: {'; '.join(criteria)}\n\n{last.content}")
    return replace(comparison, dialogue=replace(comparison.dialogue, messages=(*earlier, asked)))


def preference(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison in TRL's conversational preference format."""
    comparison = told(comparison)
    texts = [comparison.response_a, comparison.response_b]
    if comparison.label == "B":
        texts.reverse()
    chosen, rejected = (conversation(comparison.dialogue, text) for text in texts)
    return {"chosen": chosen, "rejected": rejected}


def train(config: Config, pairs: Sequence[Comparison], rate: float, seed: int, place: Path, options: Namespace) -> None:
    """Train a reward model into ``place/model``, from the last checkpoint where there is one."""
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, set_seed
    from transformers.trainer_utils import get_last_checkpoint
    from trl import RewardConfig, RewardTrainer

    base = config.train.base
    place.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(base)
    set_seed(seed)
    with TemporaryDirectory() as plain:
        # A base may be a GGUF file, which a classifier cannot be read from.
        load_model(base).save_pretrained(plain)
        model = AutoModelForSequenceClassification.from_pretrained(plain, num_labels=1)
    arguments = RewardConfig(
        output_dir=str(place / "checkpoints"),
        learning_rate=rate,
        num_train_epochs=options.epochs,
        max_steps=options.max_steps,
        per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulation,
        max_length=options.max_length,
        save_steps=CHECKPOINT_STEPS,
        save_total_limit=1,
        seed=seed,
        report_to=[],
        disable_tqdm=True,
        # TRL's default is bfloat16, which most CPUs compute slowly.
        bf16=options.bf16,
    )
    trainer = RewardTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list([preference(comparison) for comparison in pairs]),
        processing_class=tokenizer,
    )
    last = None
    if (place / "checkpoints").is_dir():
        last = get_last_checkpoint(str(place / "checkpoints"))
    began = time.monotonic()
    trainer.train(resume_from_checkpoint=last)
    seconds = round(time.monotonic() - began, 1)
    trainer.save_model(str(place / ".model"))
    tokenizer.save_pretrained(str(place / ".model"))
    facts = {"pairs": len(pairs), "steps": trainer.state.global_step, "seconds_since_resume": seconds}
    facts["tokens"] = trainer.state.num_input_tokens_seen or trainer._total_train_tokens
    (place / "facts.json").write_text(json.dumps(facts))
    # A rename is all or nothing: what stands there is whole.
    (place / ".model").rename(place / "model")


def judged(directory: Path, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return how far response A is ahead by a reward model on each comparison, and the seconds of a verdict."""
    judge = RewardJudge(str(directory), directory.parent.name)
    began = time.monotonic()
    predictions = judge.compare_batch([told(comparison) for comparison in comparisons])
    seconds = (time.monotonic() - began) / len(comparisons)
    margins = [prediction.margin for prediction in predictions]
    return {"margins": margins, "seconds_of_a_verdict": round(seconds, 3)}


def main() -> None:
    """Train what is not there yet, measure it on development rows, and name the best."""
    parser = parser_of(__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("keep", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 3e-5, 1e-5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--labels", type=int, default=0, help="so many pairs, drawn by the seed; 0: all")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--batch", type=int, default=8, help="pairs that are computed together")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--max-length", type=int, default=1024, help="TRL leaves out pairs with more tokens")
    parser.add_argument("--bf16", action="store_true")
    options, overrides = with_overrides(parser)
    config = configured(*overrides)
    # The recipe is named there already.
    measured = Measured([word for word in overrides if not word.startswith("recipe=")])
    rated = measured.take([*measured.by_id])

    options.keep.mkdir(parents=True, exist_ok=True)
    results = options.keep / "results.jsonl"
    finished: dict[str, dict[str, Any]] = {}
    if results.exists():
        finished = {row["name"]: row for row in map(json.loads, results.read_text().splitlines())}
    names = []
    right: dict[str, Floats] = {}
    for seed in options.seeds:
        pairs = labelled_pairs(options.pairs)
        random.Random(100 + seed).shuffle(pairs)
        pairs = pairs[: options.labels or None]
        for rate in options.rates:
            name = f"reward-{len(pairs)}-{rate:g}-{options.epochs:g}-{seed}"
            names.append(name)
            place = options.keep / name
            if not (place / "model").is_dir():
                train(config, pairs, rate, seed, place, options)
            if name not in finished:
                facts = json.loads((place / "facts.json").read_text())
                finished[name] = {
                    "name": name,
                    "rate": rate,
                    **facts,
                    **judged(place / "model", [*measured.by_id.values()]),
                }
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(finished[name]) + "\n")
            row = finished[name]
            right[name] = right_by(row["margins"], rated.labels)
            print(
                f"{rated.row(name, right[name], None)} {rated.differences(right[name], rated.right_of_longer)} | "
                f"{row['tokens']} tokens in {row['seconds_since_resume']} s; {row['seconds_of_a_verdict']} s a verdict",
                flush=True,
            )
    best = max(names, key=lambda name: rated.balanced(right[name]))
    print(f"the best by development rows: reward:{options.keep / best / 'model'}")


if __name__ == "__main__":
    main()
