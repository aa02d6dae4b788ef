"""Prompt sets: the judge's prompts as data, with the slots that each step must use.

A set's own section headings in other people's text are marked as quoted, so that no line of a dialogue or a response
can pass for the start of another section of the prompt, for a turn of the dialogue, or for a verdict. Texts are
searched as they look (:func:`~judgetrain.engines.confusables.fold`): a line is one after any line break that Unicode
has, and a heading one in any width, with invisible characters in it, or in look-alike letters.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from judgetrain.artifacts.files import write_text_atomic
from judgetrain.engines.base import Step
from judgetrain.engines.confusables import fold
from judgetrain.errors import ConfigError
from judgetrain.judges.prompting.parsing import FRAME, SCORE_FRAME, frame_of
from judgetrain.judges.prompting.verdicts import Reads
from judgetrain.schema import ORDERS, RESPONSES, Comparison, Order

OUTSIDE = frozenset({"query", "context", "reference", "response", "response_a", "response_b", "pairs"})
"""The slots that people and other models fill; the rest is the judge's own text."""

QUOTE = "> "
"""What is put before a line that reads like a heading."""

_BLOCKS = re.compile(r"^(?:\{(?:context|reference)_block\})+")
_BRACKETS = re.compile(r"\[[^\[\]\n]{2,60}\]")
_LABEL = re.compile(r"(?P<label>[^\W\d_][\w ]{0,40}:)[ ]*(?=\{\w+\})")
_ANY = "\ue000"
"""A private-use character that stands for what fills a slot within a heading."""
_DRESS = r"[ \t#*_\-`~|=+\u2022\u00b7]*+"
"""What may stand before a heading, or between its words, and leave it one to a reader. Possessive: none of it
is part of what follows, so that a long row of marks is read once."""
_TURN = re.compile(rf"^(?={_DRESS}(?:user|assistant|system|human){_DRESS}:)", re.IGNORECASE | re.MULTILINE)
_SCORE = re.compile(
    rf"^{_DRESS}[\[(]?(?:\d{{1,2}}[.)]{_DRESS})?(?:\w{{1,12}}[ \t*_]{{1,3}}){{0,2}}response[ \t]++[ab]\b"
    r"[ \t*_'\u2019s\]]{0,9}(?:\w{1,12}[ \t*_]{1,3})?score\b[ \t*_\]]*+(?:[:=\-]|is\b|(?=\r?$))",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a score line, or of what looks like one."""
_VERDICT = re.compile(
    rf"^(?={_DRESS}(?:[\w' ]{{1,40}}[:=]{_DRESS})?\[[ ]?\[[ *]*+(?:\w{{1,20}}[ :=]{{1,3}}){{0,2}}(?:[abcxy]|tie"
    r"|\d{1,2}(?:[./]\d{1,9})?)[ *]*+\][ ]?\][^\w\n]*+$)",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that is a mark of :mod:`~judgetrain.judges.prompting.verdicts` and nothing more."""


def headings_of(templates: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of the lines that begin like one of the templates' own sections; None if they have no headings.

    Headings are words in square brackets that begin a line (``[Query]``, ``[{count} criteria]``, ``[Query]: {query}``)
    and labels before a slot (``Query: {query}``). Case, spacing and Markdown around them make no difference.
    """
    found: dict[str, None] = {}
    for line in (line.strip() for text in templates for line in text.splitlines()):
        bare = _BLOCKS.sub("", line)
        if match := _BRACKETS.match(bare) or _LABEL.match(bare):
            words = [w for w in re.findall(r"\w+|[^\w\s]", _SLOT.sub(_ANY, match[0])) if not re.fullmatch(_DRESS, w)]
            found[_DRESS.join(r"[^\n]{1,20}" if word == _ANY else re.escape(word) for word in words)] = None
    if not found:
        return None
    return re.compile(rf"^(?={_DRESS}(?:{'|'.join(found)}))", re.IGNORECASE | re.MULTILINE)


def quoted(slots: Mapping[str, str], headings: re.Pattern[str] | None) -> dict[str, str]:
    """The slots with :data:`QUOTE` before every line of outside text that reads like a heading; done twice is once.

    So are lines that read like a verdict and, where the prompt shows earlier turns, like a turn (but for the slot
    ``context``, whose own turns are: :func:`turns_quoted`).
    """
    patterns = [_SCORE, _VERDICT, *([headings] if headings else [])]
    turns = [_TURN] if slots.get("context") else []
    return {
        name: _marked(text, patterns + (turns if name != "context" else [])) if name in OUTSIDE else text
        for name, text in slots.items()
    }


def turns_quoted(content: str) -> str:
    """A message with :data:`QUOTE` before every line that reads like the beginning of another turn."""
    return _marked(content, [_TURN])


def _marked(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    looks = fold(text)
    found = {looks.line_start(match.start()) for pattern in patterns for match in pattern.finditer(looks.text)}
    for place in sorted(found, reverse=True):
        text = f"{text[:place]}{QUOTE}{text[place:]}"
    return text


_DIALOGUE = frozenset({"query", "context_block"})
_BOTH = _DIALOGUE | {"response_a", "response_b"}
SLOTS: dict[Step, frozenset[str]] = {
    "criteria": frozenset({"query", "count"}),
    "guideline": frozenset({"query", "criterion"}),
    "judgment": _BOTH | {"criterion", "guideline"},
    "score": _DIALOGUE | {"criterion", "guideline", "response"},
    "pairwise": _BOTH,
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

Dialect = Literal["branching", "pairwise", "pointwise", "preference", "correction", "rubric"]
DIALECTS: dict[Dialect, tuple[Step, ...]] = {
    "branching": ("criteria", "guideline", "judgment"),
    "pairwise": ("pairwise",),
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
    constrained decoding, and what judgments are read by (:class:`~judgetrain.judges.prompting.parsing.Frame`)."""
    reference: str = ""
    """The fragment that shows a reference answer; empty: the set shows none."""

    def render(self, step: Step, slots: Mapping[str, str]) -> tuple[dict[str, str], ...]:
        """Chat messages for a step.

        ``slots``: ``query``, ``context`` (empty for a single turn) and the step's own; braces in them stay as they are.
        Lines of a dialogue or response that read like a heading of this step's own prompt, like a turn or like a
        verdict are marked as quoted.
        """
        slots, templates = quoted(slots, self._headings[step]), self.steps[step]
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
                text = quoted({"response": text}, self._headings[step])["response"]
        return text

    @cached_property
    def _headings(self) -> dict[str, re.Pattern[str] | None]:
        scored = {"score": [_SCORE_LINE]}  # a line of a response that looks like the score is quoted, too
        return {
            step: headings_of([self.context, self.reference, *texts.values(), *scored.get(step, [])])
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
    """Refuse (ConfigError) a prompt set without a step for judgments of what is shown."""
    if any(judgment_step(order) not in prompts.steps for order in orders):
        told = f"{key}: the prompt set {prompts.name!r} has no step 'score', by which one response is judged"
        raise ConfigError(f"{told}; add one (docs/prompts.md), or let judgments read two")


def has_step(path: Path, step: str) -> bool:
    """Whether a file is there and is a prompt set with this step."""
    if not path.is_file():
        return False
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    return isinstance(raw, dict) and step in raw


def load_prompt_set(name_or_path: str | Path, dialect: Dialect = "branching", key: str = "prompts") -> PromptSet:
    """A packaged prompt set by name, or one from a YAML file, with every step that ``dialect`` needs (ConfigError: no
    such set, not valid YAML, a missing step, or a template with a missing or unknown slot).

    Steps of other dialects in the same file are checked and kept. ``key`` is the set's configuration key, for messages.
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
    if isinstance(scale, list) and len(scale) == 2 and all(type(end) is int for end in scale) and scale[0] < scale[1]:
        return scale[0], scale[1]
    raise ConfigError(f"{path}: step 'pointwise' needs scale: [lowest, highest], two whole numbers; found {scale}")


def _reads(raw: Mapping[str, Any], steps: Mapping[str, Any], path: Path) -> Reads | None:
    """The rule by which replies are read, where a set brings its own."""
    if "reads" not in raw:
        return None
    try:
        given = dict(raw["reads"])
        pattern, verdicts = re.compile(given.pop("pattern"), re.IGNORECASE | re.MULTILINE), given.pop("verdicts", {})
        right = not given and pattern.groups == 1 and set(verdicts.values()) <= {"A", "B", "tie"}
    except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
        raise ConfigError(f"{path}: {_RULE}: {error}") from error
    if not right or bool(verdicts) != ("pairwise" in steps):
        raise ConfigError(f"{path}: {_RULE}")
    return Reads(pattern, {str(text).casefold(): value for text, value in verdicts.items()})


_RULE = (
    "reads: expected a pattern, a regular expression with one group in brackets; and for a step pairwise, and no "
    "other, verdicts: what the group holds -> A, B or tie"
)


def slots_of(comparison: Comparison, reference: bool = False) -> dict[str, str]:
    """The slots that every step's prompt has; lines of earlier turns that read like another turn are quoted.

    ``reference``: whether the dialogue's reference answer is among them.
    """
    dialogue = comparison.dialogue
    turns = tuple(replace(turn, content=turns_quoted(turn.content)) for turn in dialogue.messages)
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
