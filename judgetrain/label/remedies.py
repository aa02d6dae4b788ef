"""What helps where trees leave nothing to train on, by the reason that most of them were lost for."""

from __future__ import annotations

from judgetrain.judges.config import LEVELS

_UNREADABLE = ("no_scores", "no_score_a", "no_score_b", "out_of_range", "ambiguous", "quoted", "none", "empty")
_FORM = {
    "teacher": "choose a teacher.engine that follows instructions, or another prompt set (prompts)",
    "tree": "teach the Initial judge longer (train.initial.num_train_epochs) or with more (teacher.comparisons), or "
    "enforce the judgments' form (tree.constrained=true)",
}


def of_judging(who: str) -> dict[str, str]:
    """What helps, by ``STEP:REASON`` as trees count their failures; ``who`` grew them: ``teacher`` or ``tree``."""
    engine = "teacher.engine" if who == "teacher" else "engine"
    found: dict[str, str] = {}
    for step in LEVELS:
        sampling = "teacher.sampling" if who == "teacher" else f"tree.{step}_sampling"
        reasons = dict.fromkeys(_UNREADABLE, f"what was written has not the prompt's form: {_FORM[who]}")
        reasons["too_long"] = (
            f"a prompt and {sampling}.max_new_tokens together exceed the model's context: lower {sampling}"
            f".max_new_tokens, raise {engine}.max_context where it is set, or leave out long dialogues with "
            "dialogues.max_query_chars"
        )
        reasons["no_answer"] = f"the reasoning never ended: raise {sampling}.max_new_tokens"
        reasons["no_content"] = (
            f"the answers have no content (refusals, or tokens spent on thinking): raise {sampling}.max_new_tokens, or "
            f"choose another model for {engine}"
        )
        reasons["error"] = f"the model behind {engine} gave no answer: look at the server, and run the command again"
        found |= {f"{step}:{reason}": remedy for reason, remedy in reasons.items()}
    return found


LABELS = {
    "no_given_label": "the comparisons bring none: look at the column of labels and dialogues.sources[].labels, and "
    "where an earlier version made stage dialogues, which did not read them, remove that stage's directory",
    "low_vote_share": "the votes are too close: lower label.min_vote_share",
    "orders_disagree": "the two orders say different things: label.vote=deciding counts all branches alike",
    "low_deciding_share": "most branches see a tie: lower label.min_deciding_share",
    "external_unreadable": "the external judge's replies cannot be read: look at external-*.jsonl, and choose a model "
    "that keeps to the prompt's form (label.external.engine)",
    "external_orders_disagree": "the external judge's two orders disagree: choose a stronger one "
    "(label.external.engine)",
}
"""By why trees have no label; what cannot be read is a matter of judging."""

BRANCHES = {
    "self_inconsistent": "judgments of one prompt differ: lower tree.judgment_sampling.temperature, or teach the "
    "Initial judge longer (train.initial.num_train_epochs)",
    "position_inconsistent": "verdicts follow the order in which responses are shown: teacher.both_orders=true, or "
    "more teacher.comparisons",
    "against_label": "branches that are consistent contradict the label: label.ties=neutral keeps ties, and "
    "label.source=external takes another label than their vote",
    "kept": "the judgments that are kept ran out of tokens: raise tree.judgment_sampling.max_new_tokens",
}
"""By why branches train nothing."""
