"""Prompt sets: the judge's prompts as data, with the slots that each step must use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from judgetrain.artifacts import write_text_atomic
from judgetrain.engines.base import Step
from judgetrain.errors import ConfigError

SLOTS: dict[Step, frozenset[str]] = {
    "criteria": frozenset({"query", "context_block", "count"}),
    "guideline": frozenset({"query", "context_block", "criterion"}),
    "judgment": frozenset({"query", "context_block", "criterion", "guideline", "response_a", "response_b"}),
}
"""What each step's prompt must contain. ``context_block`` is the set's ``context`` fragment with the earlier turns
of the dialogue in it, or nothing for a single turn."""

PACKAGED = Path(__file__).parent / "prompt_sets"
FILE = "prompts.yaml"
"""The name under which a judge's directory carries its prompt set."""

FRAME = (
    r"Response A Score: [1-5]\nAnalysis of Response A: [^\n]{1,{width}}\n"
    r"Response B Score: [1-5]\nAnalysis of Response B: [^\n]{1,{width}}\nComparison: [^\n]{1,{width}}"
)
"""The form of a judgment for constrained decoding; a set's step ``judgment`` may carry its own as ``frame``."""

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class PromptSet:
    """Templates by step; each has a ``user`` template and maybe a ``system`` one."""

    name: str
    context: str
    steps: Mapping[str, Mapping[str, str]]
    source: str
    """The YAML text as read, saved with every judge."""
    frame: str = FRAME
    """A regular expression that judgments follow under constrained decoding."""

    def render(self, step: Step, slots: Mapping[str, str]) -> tuple[dict[str, str], ...]:
        """Chat messages for a step.

        ``slots``: ``query``, ``context`` (empty for a single turn) and the step's own. Substitution is a single
        pass: braces in the values stay as they are.
        """
        context = slots.get("context", "")
        block = self.context.replace("{context}", context) if context else ""
        values = {**slots, "context_block": block}
        templates = self.steps[step]
        return tuple(
            {"role": role, "content": _SLOT.sub(lambda m: values[m[1]], templates[role])}
            for role in ("system", "user")
            if templates.get(role)
        )

    def judgment_frame(self, max_new_tokens: int) -> str:
        """The pattern that a constrained judgment follows.

        ``{width}`` in it becomes ``max_new_tokens`` characters: with three such texts of some four characters a
        token, a judgment ends before its tokens do.
        """
        return self.frame.replace("{width}", str(max_new_tokens))

    def save(self, directory: Path) -> None:
        """Write the set as ``prompts.yaml`` into a judge's directory."""
        write_text_atomic(directory / FILE, self.source)


def load_prompt_set(name_or_path: str | Path) -> PromptSet:
    """A packaged prompt set by name, or one from a YAML file.

    Raises:
        ConfigError: no such set, not valid YAML, or a template with a missing or unknown slot; names file, step
            and slot.
    """
    packaged = PACKAGED / f"{name_or_path}.yaml"
    path = packaged if packaged.exists() else Path(name_or_path)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in PACKAGED.glob("*.yaml")))
        raise ConfigError(f"prompts={name_or_path}: neither a packaged set ({known}) nor a YAML file")
    try:
        source = path.read_text(encoding="utf-8")
        raw = yaml.safe_load(source)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    return _checked(raw, path, source)


def _checked(raw: Any, path: Path, source: str) -> PromptSet:
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping with {', '.join(SLOTS)}")
    steps: dict[str, Mapping[str, str]] = {}
    frame = FRAME
    for step, required in SLOTS.items():
        templates = raw.get(step)
        if not isinstance(templates, dict) or not isinstance(templates.get("user"), str):
            raise ConfigError(f"{path}: step {step!r} needs a 'user' template")
        templates = dict(templates)
        if step == "judgment":
            frame = templates.pop("frame", FRAME)
            if not isinstance(frame, str) or not frame:
                raise ConfigError(f"{path}: step 'judgment', 'frame': expected a regular expression")
        for role, text in templates.items():
            if role not in ("system", "user") or not isinstance(text, str):
                raise ConfigError(f"{path}: step {step!r}, {role!r}: expected 'system' or 'user' with a text")
        used = {slot for text in templates.values() for slot in _SLOT.findall(text)}
        if missing := required - used:
            raise ConfigError(f"{path}: step {step!r} lacks the slot {{{sorted(missing)[0]}}}")
        if unknown := used - required:
            allowed = ", ".join(sorted(required))
            raise ConfigError(f"{path}: step {step!r} has an unknown slot {{{sorted(unknown)[0]}}}; allowed: {allowed}")
        steps[step] = templates
    context = raw.get("context", "")
    if not isinstance(context, str) or "{context}" not in context:
        raise ConfigError(f"{path}: the fragment 'context' must contain the slot {{context}}")
    return PromptSet(str(raw.get("name", path.stem)), context, steps, source, frame)
