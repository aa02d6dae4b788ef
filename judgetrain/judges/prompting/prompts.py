"""Prompt sets: the judge's prompts as data, with the slots that each step must use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.engines.base import Step
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting import headings
from judgetrain.judges.prompting.frames import FRAME, SCORE_FRAME, frame_of
from judgetrain.judges.prompting.verdicts import Reads
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Order

_DIALOGUE = frozenset({"query", "context_block"})
_BOTH = _DIALOGUE | {"response_a", "response_b"}
SLOTS: dict[Step, frozenset[str]] = {
    "criteria": frozenset({"query", "count"}),
    "guideline": frozenset({"query", "criterion"}),
    "judgment": _BOTH | {"criterion", "guideline"},
    "score": _DIALOGUE | {"criterion", "guideline", "response"},
    "pairwise": _BOTH,
    "single_token": _BOTH,
    "pointwise": _DIALOGUE | {"response", "lowest", "highest"},
    "preference": _BOTH | {"criterion", "guideline", "judgment_x", "judgment_y"},
    "correction": _DIALOGUE | {"response", "judgment"},
    "rubric": frozenset({"pairs", "criteria", "count"}),
    "pair": _BOTH,
}
"""What each step's prompt must contain. ``context_block`` is the set's ``context`` fragment with the earlier turns
of the dialogue in it, or nothing for a single turn; ``lowest`` and ``highest`` are the ends of the set's ``scale``."""
MAY = frozenset({"context_block", "reference_block"})
"""What it may contain besides: the earlier turns, and the set's ``reference`` fragment, or nothing where there is no
reference to show."""

Dialect = Literal["branching", "pairwise", "single_token", "pointwise", "preference", "correction", "rubric"]
DIALECTS: dict[Dialect, tuple[Step, ...]] = {
    "branching": ("criteria", "guideline", "judgment"),
    "pairwise": ("pairwise",),
    "single_token": ("single_token",),
    "pointwise": ("pointwise",),
    "preference": ("preference",),
    "correction": ("correction",),
    "rubric": ("rubric", "pair"),
}
"""The ways of asking (branching paper, tables 7 to 10) and the steps that a set needs for each."""

PACKAGED = Path(__file__).parent / "prompt_sets"
FILE = "prompts.yaml"
"""The name under which a judge's directory carries its prompt set."""

FRAMES = {"judgment": FRAME, "score": SCORE_FRAME}
"""The forms of judgments of two responses and of one, unless a set brings its own."""

FIXED = 24
"""Tokens for the words of the frame up to the second score."""

_SLOT = re.compile(r"\{(\w+)\}")
_SCORE_LINE = "Score: {score}"


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """Templates by step; each has a ``user`` template and maybe a ``system`` one."""

    name: str
    context: str
    steps: Mapping[str, Mapping[str, str]]
    source: str
    """The YAML text as read, saved with every judge."""
    scale: tuple[int, int] | None = None
    """Lowest and highest rating, for sets with a step ``pointwise``."""
    reads: Reads | None = None
    """How replies to a step ``pairwise`` or ``pointwise`` are read, for models that have a form of their own."""
    frames: Mapping[str, str] = field(default_factory=lambda: dict(FRAMES))
    """The forms of judgments of two responses (``judgment``) and of one (``score``) as regular expressions: enforced by
    constrained decoding, and what judgments are read by (:class:`~judgetrain.judges.prompting.frames.Frame`)."""
    reference: str = ""
    """The fragment that shows a reference answer; empty: the set shows none."""

    def render(self, step: Step, slots: Mapping[str, str]) -> tuple[dict[str, str], ...]:
        """Chat messages for a step.

        ``slots``: ``query``, ``context`` (empty for a single turn) and the step's own; braces in them stay as they are.
        Lines of a dialogue or response that read like a heading of this step's own prompt, like a turn or like a
        verdict are marked as quoted.
        """
        slots, templates = headings.quoted(slots, self._headings[step]), self.steps[step]
        values = dict(slots)
        for name, fragment in (("context", self.context), ("reference", self.reference)):
            text = slots.get(name, "")
            values[f"{name}_block"] = fragment.replace(f"{{{name}}}", text) if text else ""
        return tuple(
            {"role": role, "content": _SLOT.sub(lambda m: values[m[1]], templates[role])}
            for role in ("system", "user")
            if templates.get(role)
        )

    def quoted(self, text: str) -> str:
        """Other people's text for a slot of the judge's own: lines that read like a heading or a verdict are marked."""
        for step in ("judgment", "score"):
            if step in self.steps:
                text = headings.quoted({"response": text}, self._headings[step])["response"]
        return text

    @cached_property
    def _headings(self) -> dict[str, re.Pattern[str] | None]:
        scored = {"score": [_SCORE_LINE]}  # a line of a response that looks like the score is quoted, too
        return {
            step: headings.headings_of([self.context, self.reference, *texts.values(), *scored.get(step, [])])
            for step, texts in self.steps.items()
        }

    def judgment_frame(self, step: Step, max_new_tokens: int) -> str:
        """The pattern that a constrained judgment (step ``judgment`` or ``score``) follows.

        ``{width}`` in it becomes ``max_new_tokens`` less :data:`FIXED` characters. At a token a character the first of
        its texts leaves room for the second score, whatever the engine; at the usual four all three fit. A
        judgment that does not reach the frame's end is not read (``cut_off``).
        """
        return self.frames[step].replace("{width}", str(max(1, max_new_tokens - FIXED)))

    def save(self, directory: Path) -> None:
        """Write the set as ``prompts.yaml`` into a judge's directory."""
        write_text_atomic(directory / FILE, self.source)


def prompt_file(name_or_path: str | Path) -> Path:
    """Where a prompt set lies: the packaged one of this name, else the path itself."""
    packaged = PACKAGED / f"{name_or_path}.yaml"
    return packaged if packaged.exists() else Path(name_or_path)


def prompt_path(name: str, owner: object = None) -> str:
    """:func:`prompt_file` as the mark of configuration fields that name a prompt set."""
    return str(prompt_file(name))


def packaged_sets(dialect: Dialect) -> list[str]:
    """The names of the packaged sets that have every step of a dialect."""
    sets = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(PACKAGED.glob("*.yaml"))}
    return [name for name, raw in sets.items() if all(step in raw for step in DIALECTS[dialect])]


def check_reads(prompts: PromptSet, orders: Iterable[Order], key: str) -> None:
    """Check that a prompt set has a step for judgments of what is shown.

    Raises:
        ConfigError: one response is to be read, and the set has no step ``score``; names the ``key``.
    """
    if any(judgment_step(order) not in prompts.steps for order in orders):
        raise ConfigError(
            f"{key}: the prompt set {prompts.name!r} has no step 'score', by which one response is judged; add one "
            "(docs/prompts.md), or let judgments read two"
        )


def has_step(path: Path, step: str) -> bool:
    """Whether a file is there and is a prompt set with this step."""
    if not path.is_file():
        return False
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    return isinstance(raw, dict) and step in raw


def load_prompt_set(name_or_path: str | Path, dialect: Dialect = "branching", key: str = "prompts") -> PromptSet:
    """A packaged prompt set by name, or one from a YAML file, with every step that ``dialect`` needs.

    Steps of other dialects in the same file are checked and kept. ``key`` is the set's configuration key, for messages.

    Raises:
        ConfigError: no such set, not valid YAML, a missing step, or a template with a missing or unknown slot.
    """
    path = prompt_file(name_or_path)
    if not path.is_file():
        known = ", ".join(packaged_sets(dialect))
        raise ConfigError(f"{key}={name_or_path}: neither a packaged set ({known}) nor a YAML file")
    try:
        source = path.read_text(encoding="utf-8")
        raw = yaml.safe_load(source)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping with {', '.join(DIALECTS[dialect])}")
    wanted = [step for step in SLOTS if step in DIALECTS[dialect] or step in raw]
    frames = {step: _frame(raw, step, path) for step in FRAMES}
    steps: dict[str, Mapping[str, str]] = {step: _template(raw.get(step), step, path) for step in wanted}
    shows = any("{reference_block}" in text for texts in steps.values() for text in texts.values())
    return PromptSet(
        name=str(raw.get("name", path.stem)),
        context=_fragment(raw, "context", path),
        reference=_fragment(raw, "reference", path) if shows else "",
        steps=steps,
        source=source,
        scale=_scale(raw, steps, path),
        reads=_reads(raw, steps, path),
        frames=frames,
    )


def _frame(raw: Mapping[str, Any], step: str, path: Path) -> str:
    """The frame of judgments, taken out of the step that writes them, where a set brings its own."""
    template = raw.get(step)
    frame = template.pop("frame", FRAMES[step]) if isinstance(template, dict) else FRAMES[step]
    if not isinstance(frame, str) or not frame:
        raise ConfigError(f"{path}: step {step!r}, 'frame': expected a regular expression")
    try:
        frame_of(frame, 1 if step == "score" else 2)
    except ValueError as error:
        raise ConfigError(f"{path}: step {step!r}, 'frame': {error}") from error
    return frame


def _template(templates: Any, step: Step, path: Path) -> Mapping[str, str]:
    required = SLOTS[step]
    if not isinstance(templates, dict) or not isinstance(templates.get("user"), str):
        raise ConfigError(f"{path}: step {step!r} needs a 'user' template")
    for role, text in templates.items():
        if role not in ("system", "user") or not isinstance(text, str):
            raise ConfigError(f"{path}: step {step!r}, {role!r}: expected 'system' or 'user' with a text")
    used = {slot for text in templates.values() for slot in _SLOT.findall(text)}
    if missing := required - used:
        raise ConfigError(f"{path}: step {step!r} lacks the slot {{{sorted(missing)[0]}}}")
    if unknown := used - required - MAY:
        allowed = ", ".join(sorted(required | MAY))
        raise ConfigError(f"{path}: step {step!r} has an unknown slot {{{sorted(unknown)[0]}}}; allowed: {allowed}")
    return templates


def _fragment(raw: Mapping[str, Any], name: str, path: Path) -> str:
    fragment = raw.get(name, "")
    if not isinstance(fragment, str) or f"{{{name}}}" not in fragment:
        raise ConfigError(f"{path}: the fragment {name!r} must contain the slot {{{name}}}")
    return fragment


def _scale(raw: Mapping[str, Any], steps: Mapping[str, Any], path: Path) -> tuple[int, int] | None:
    if "pointwise" not in steps:
        return None
    scale = raw.get("scale")
    if not (isinstance(scale, list) and len(scale) == 2 and all(type(end) is int for end in scale)):
        raise ConfigError(f"{path}: step 'pointwise' needs scale: [lowest, highest], two whole numbers as in [1, 10]")
    low, high = scale
    if low >= high:
        raise ConfigError(f"{path}: scale: {scale}: the first number must be below the second")
    return low, high


def _reads(raw: Mapping[str, Any], steps: Mapping[str, Any], path: Path) -> Reads | None:
    """The rule by which replies are read, where a set brings its own."""
    if "reads" not in raw:
        return None
    given = raw["reads"]
    if not isinstance(given, dict) or set(given) - {"pattern", "verdicts"} or not isinstance(given.get("pattern"), str):
        raise ConfigError(f"{path}: reads: expected a pattern, and verdicts where the step is pairwise")
    verdicts = given.get("verdicts") or {}
    if not isinstance(verdicts, dict) or not set(verdicts.values()) <= {"A", "B", "tie"}:
        raise ConfigError(f"{path}: reads: verdicts: expected what the pattern's group holds -> A, B or tie")
    if bool(verdicts) != ("pairwise" in steps):
        raise ConfigError(f"{path}: reads: verdicts belong to a step pairwise, a pattern alone to a step pointwise")
    try:
        pattern = re.compile(given["pattern"], re.IGNORECASE | re.MULTILINE)
    except re.error as error:
        raise ConfigError(f"{path}: reads: pattern: no regular expression: {error}") from error
    if pattern.groups != 1:
        raise ConfigError(f"{path}: reads: pattern: expected one group in brackets, which holds the verdict or rating")
    return Reads(pattern, {str(text).casefold(): value for text, value in verdicts.items()})


def slots_of(comparison: Comparison, reference: bool = False) -> dict[str, str]:
    """The slots that every step's prompt has; lines of earlier turns that read like another turn are quoted.

    ``reference``: whether the dialogue's reference answer is among them.
    """
    dialogue = comparison.dialogue
    turns = tuple(replace(turn, content=headings.turns_quoted(turn.content)) for turn in dialogue.messages)
    slots = {"query": dialogue.query, "context": replace(dialogue, messages=turns).context}
    return slots | ({"reference": dialogue.reference} if reference and dialogue.reference else {})


def judgment_step(order: Order) -> Step:
    """The step that writes a judgment of what is shown: ``judgment`` of two responses, ``score`` of one."""
    return "judgment" if order in ORDERS else "score"


def judgment_slots(
    comparison: Comparison, order: Order, criterion: str, guideline: str, reference: bool = False
) -> dict[str, str]:
    """The slots of a judgment's prompt; for order BA the responses are exchanged, for A or B one of them is there."""
    slots = slots_of(comparison, reference) | {"criterion": criterion, "guideline": guideline}
    a, b = comparison.response_a, comparison.response_b
    if order in RESPONSES:
        return slots | {"response": a if order == "A" else b}
    return slots | dict(zip(("response_a", "response_b"), (a, b) if order == "AB" else (b, a), strict=True))
