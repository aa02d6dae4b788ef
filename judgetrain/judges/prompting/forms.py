"""What a reply holds, line by line, for servers that are asked for JSON."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from judgetrain.engines.base import Form, FormLine, Step
from judgetrain.judges.prompting.frames import LINE_END
from judgetrain.judges.prompting.prompts import PromptSet

_LINE = re.compile(r"\A(?P<label>[\w ()/-]+): (?:(?P<score>\[1-5\])|\[\^\\n\]\{1,\{width\}\})")
_EXPLAINED = FormLine("explanation", "{}")
_MARKED: dict[Step, Form] = {
    "pairwise": (_EXPLAINED, FormLine("verdict", "[[{}]]", tuple("ABC"))),
    "preference": (FormLine("preference", "[[{}]]", tuple("XY")),),
}


def form_of(prompts: PromptSet, step: Step) -> Form:
    """The form of a step's reply, which is read as the prompt set reads it; empty where it has another."""
    if step in prompts.frames:
        return _of_frame(prompts.frames[step])
    if prompts.reads:  # a form of the model's own
        return ()
    if step == "pointwise" and prompts.scale:
        low, high = prompts.scale
        return _EXPLAINED, FormLine("rating", "[[{}]]", tuple(map(str, range(low, high + 1))))
    return _MARKED.get(step, ())


@lru_cache
def _of_frame(frame: str) -> Form:
    """A frame's lines, if each is a label with a score or a text; a label that comes again has a number."""
    labels, form = Counter[str](), list[FormLine]()
    for line in map(_LINE.fullmatch, LINE_END.split(frame)):
        if line is None:
            return ()
        labels[label := line["label"]] += 1
        name = label if labels[label] == 1 else f"{label} {labels[label]}"
        form.append(FormLine(name, f"{label}: {{}}", tuple("12345") if line["score"] else ()))
    return tuple(form)
