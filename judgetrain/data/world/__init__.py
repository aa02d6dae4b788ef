"""The quickstart world: a generated world whose truth is known (DESIGN section 6)."""

from pathlib import Path

from judgetrain.data.world.splits import eval_comparisons, train_dialogues, true_rubric, true_verdict

BASE = Path(__file__).parent / "base"
"""The shipped base model: a small Llama and its word-level tokenizer, pretrained on the world's text."""

__all__ = ["BASE", "eval_comparisons", "train_dialogues", "true_rubric", "true_verdict"]
