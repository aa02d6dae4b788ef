"""What to change where too little is left to train on, by the reason that most was lost for."""

HINTS = {
    "too_long": "a prompt and max_new_tokens of its sampling exceed the model's context: lower the one, or leave out "
    "long dialogues with dialogues.max_query_chars",
    "off_frame": "replies leave the prompt's form (docs/prompts.md): choose a model that follows instructions, or "
    "tree.constrained=true",
    "cut_off": "replies ran out of tokens: raise max_new_tokens of tree.judgment_sampling or teacher.sampling",
    "no_answer": "the reasoning never ended: raise max_new_tokens of tree.judgment_sampling or teacher.sampling",
    "no_content": "answers are empty (refusals, or tokens spent on thinking): raise max_new_tokens, or take another "
    "model",
    "error": "the model gave no answer: look at the server, and run the command again",
    "no_given_label": "the comparisons bring none: look at the column of labels and dialogues.sources[].labels",
    "orders_disagree": "the external judge's two orders disagree: choose a stronger one (label.external.engine)",
    "external_unreadable": "look at external-*.jsonl, and choose an external judge that keeps to the prompt's form",
    "self_inconsistent": "judgments of one prompt differ: lower tree.judgment_sampling.temperature",
    "position_inconsistent": "verdicts follow the order in which responses are shown: teacher.both_orders=true, or "
    "more teacher.comparisons",
    "against_label": "consistent branches contradict the label: label.rule=evidence keeps ties",
    "kept": "the judgments that are kept ran out of tokens: raise tree.judgment_sampling.max_new_tokens",
}
"""By what a reason ends in (:func:`judgetrain.errors.causes`)."""
