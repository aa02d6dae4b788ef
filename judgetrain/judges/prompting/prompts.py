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
from judgetrain.judges.prompting.verdicts import ReplyForm
from judgetrain.schema import ORDERS, Comparison, Order
from judgetrain.yaml_text import load_yaml

OUTSIDE = frozenset({"query", "context", "reference", "response", "response_a", "response_b", "pairs"})
"""The slots that people and other models fill; the rest is the judge's own text."""

QUOTE = "> "
"""The mark before a line that reads like a heading."""

# Fragments before a heading are not part of it.
_BLOCKS = re.compile(r"^(?:\{(?:context|reference)_block\})+")
# "[Query]".
_BRACKETS = re.compile(r"\[[^\[\]\n]{2,60}\]")
# "Query: " before a slot.
_LABEL = re.compile(r"(?P<label>[^\W\d_][\w ]{0,40}:)[ ]*(?=\{\w+\})")
_ANY = "\ue000"
"""A private-use character that stands for what fills a slot within a heading."""
_DRESS = r"[ \t#*_\-`~|=+\u2022\u00b7]*+"
"""The marks that may stand before a heading, or between its words, and leave it one to a reader.

Possessive: none of it is part of what follows, so that a long row of marks is read once.
"""
# The beginning of a turn, as the fragment of earlier turns shows them.
_TURN = re.compile(rf"^(?={_DRESS}(?:user|assistant|system|human){_DRESS}:)", re.IGNORECASE | re.MULTILINE)
# A number of a list and up to two words may come first ("2) Final response A's score:"), since a judge could read
# any of these as its own line. The quantifiers are possessive or bounded, so that no text takes long to search.
_SCORE = re.compile(
    rf"^{_DRESS}[\[(]?(?:\d{{1,2}}[.)]{_DRESS})?(?:\w{{1,12}}[ \t*_]{{1,3}}){{0,2}}response[ \t]++[ab]\b"
    r"[ \t*_'\u2019s\]]{0,9}(?:\w{1,12}[ \t*_]{1,3})?score\b[ \t*_\]]*+(?:[:=\-]|is\b|(?=\r?$))",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a score line, or of what looks like one."""
# "[[A]]", "Verdict: [[B]]" and "[[rating: 7/10]]"; a mark within a sentence is no verdict to a reader either.
_VERDICT = re.compile(
    rf"^(?={_DRESS}(?:[\w' ]{{1,40}}[:=]{_DRESS})?\[[ ]?\[[ *]*+(?:\w{{1,20}}[ :=]{{1,3}}){{0,2}}(?:[abcxy]|tie"
    r"|\d{1,2}(?:[./]\d{1,9})?)[ *]*+\][ ]?\][^\w\n]*+$)",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that is a mark of :mod:`~judgetrain.judges.prompting.verdicts` and nothing more."""


def headings_of(templates: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern of the lines that begin like one of the templates' own sections; None without headings.

    Headings are words in square brackets that begin a line (``[Query]``, ``[{count} criteria]``, ``[Query]: {query}``)
    and labels before a slot (``Query: {query}``). Case, spacing and Markdown around them make no difference.
    """
    # A dictionary for its order, which a set of texts has not: equal templates give equal patterns.
    patterns: dict[str, None] = {}
    for text in templates:
        for line in text.splitlines():
            bare = _BLOCKS.sub("", line.strip())
            heading = _BRACKETS.match(bare) or _LABEL.match(bare)
            if heading:
                patterns[_heading_pattern(heading[0])] = None
    if not patterns:
        return None
    return re.compile(rf"^(?={_DRESS}(?:{'|'.join(patterns)}))", re.IGNORECASE | re.MULTILINE)


def _heading_pattern(heading: str) -> str:
    """Return the pattern of one heading: its words and marks with any emphasis between them."""
    parts = []
    for word in re.findall(r"\w+|[^\w\s]", _SLOT.sub(_ANY, heading)):
        if word == _ANY:
            # Whatever fills a heading's slot, as the 3 of "[3 criteria]": a forger need not know the number.
            parts.append(r"[^\n]{1,20}")
        # Emphasis of the heading's own is left out here: the joint below allows it between any two words.
        elif not re.fullmatch(_DRESS, word):
            parts.append(re.escape(word))
    return _DRESS.join(parts)


def quoted(slots: Mapping[str, str], headings: re.Pattern[str] | None) -> dict[str, str]:
    """Return the slots with :data:`QUOTE` before every line of outside text that reads like a heading.

    So are lines that read like a verdict and, where the prompt shows earlier turns, like a turn (but for the slot
    ``context``, whose own turns are: :func:`turns_quoted`). Done twice is once.
    """
    patterns = [_SCORE, _VERDICT]
    if headings:
        patterns.append(headings)
    result = {}
    for name, text in slots.items():
        if name not in OUTSIDE:
            result[name] = text
        elif slots.get("context") and name != "context":
            result[name] = _marked(text, [*patterns, _TURN])
        else:
            result[name] = _marked(text, patterns)
    return result


def turns_quoted(content: str) -> str:
    """Return a message with :data:`QUOTE` before every line that reads like the beginning of another turn."""
    return _marked(content, [_TURN])


def _marked(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    """Return a text with :data:`QUOTE` before every line that one of the patterns matches, as it looks."""
    folded = fold(text)
    line_starts = set()
    for pattern in patterns:
        for match in pattern.finditer(folded.text):
            line_starts.add(folded.line_start(match.start()))
    # From the last one on, so that the places before it stay right.
    for place in sorted(line_starts, reverse=True):
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
"""The slots that each step's prompt must contain.

``context_block`` is the set's ``context`` fragment with the earlier turns of the dialogue in it, or nothing for a
single turn; ``lowest`` and ``highest`` are the ends of the set's ``scale``.
"""
MAY = frozenset({"context_block", "reference_block"})
"""The slots that it may contain besides.

They are the earlier turns, and the set's ``reference`` fragment, which is empty where there is no reference to show.
"""

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

# The sets of the package, each a file NAME.yaml.
PACKAGED = Path(__file__).parent / "prompt_sets"
FILE = "prompts.yaml"
"""The name under which a judge's directory carries its prompt set."""

FRAMES = {"judgment": FRAME, "score": SCORE_FRAME}
"""The forms of judgments of two responses and of one, unless a set brings its own."""

FIXED = 24
"""Tokens for the words of the frame up to the second score."""

# A slot of a template: "{query}".
_SLOT = re.compile(r"\{(\w+)\}")
# The line that a judge of single responses writes, as a template.
_SCORE_LINE = "Score: {score}"


@dataclass(frozen=True, kw_only=True)
class PromptSet:
    """The templates of a judge's prompts.

    Args:
        name: of the set.
        context: the fragment that shows earlier turns.
        steps: by step its ``user`` template and maybe a ``system`` one.
        source: the YAML text as read, saved with every judge.
        scale: lowest and highest rating, for sets with a step ``pointwise``.
        reply_form: of replies to a step ``pairwise`` or ``pointwise``, for models that have a form of their own.
        frames: the forms of judgments of two responses (``judgment``) and of one (``score``) as regular expressions.
            Constrained decoding enforces them, and judgments are read by them
            (:class:`~judgetrain.judges.prompting.parsing.Frame`).
        reference: the fragment that shows a reference answer; empty: the set shows none.
    """

    name: str
    context: str
    steps: Mapping[str, Mapping[str, str]]
    source: str
    scale: tuple[int, int] | None = None
    reply_form: ReplyForm | None = None
    frames: Mapping[str, str] = field(default_factory=lambda: dict(FRAMES))
    reference: str = ""

    def render(self, step: Step, slots: Mapping[str, str]) -> tuple[dict[str, str], ...]:
        """Return the chat messages of a step.

        Lines of a dialogue or response that read like a heading of this step's own prompt, like a turn or like a
        verdict are marked as quoted.

        Args:
            step: the step.
            slots: ``query``, ``context`` (empty for a single turn) and the step's own; braces in them stay as they are.
        """
        values = quoted(slots, self._headings[step])

        # The fragments are filled after quoting: their own headings are the set's, and stay as they are.
        values["context_block"] = _filled(self.context, "context", values)
        values["reference_block"] = _filled(self.reference, "reference", values)

        messages = []
        for role in ("system", "user"):
            template = self.steps[step].get(role)
            if template:
                # In one pass, so that braces in a slot's text are not taken for slots.
                content = _SLOT.sub(lambda slot: values[slot[1]], template)
                messages.append({"role": role, "content": content})
        return tuple(messages)

    def quoted(self, text: str) -> str:
        """Return other people's text for a slot of the judge's own, its headings and verdicts marked as quoted."""
        for step in ("judgment", "score"):
            # A guideline stands in either prompt.
            if step in self.steps:
                text = quoted({"response": text}, self._headings[step])["response"]
        return text

    @cached_property
    def _headings(self) -> dict[str, re.Pattern[str] | None]:
        """Return the pattern of each step's own headings; None for a step without any."""
        headings = {}
        for step, texts in self.steps.items():
            templates = [self.context, self.reference, *texts.values()]
            if step == "score":
                # A line of a response that looks like the score is quoted, too.
                templates.append(_SCORE_LINE)
            headings[step] = headings_of(templates)
        return headings

    def judgment_frame(self, step: Step, max_new_tokens: int) -> str:
        """Return the pattern that a constrained judgment (step ``judgment`` or ``score``) follows.

        ``{width}`` in it becomes ``max_new_tokens`` less :data:`FIXED` characters. At a token a character the first of
        its texts leaves room for the second score, whatever the engine; at the usual four all three fit. A
        judgment that does not reach the frame's end is not read (``cut_off``).
        """
        return self.frames[step].replace("{width}", str(max(1, max_new_tokens - FIXED)))

    def words_before_score(self, step: Step) -> str | None:
        """Return the words with which a judgment of one response begins up to its score.

        None where reasons may stand before it.
        """
        return frame_of(self.frames[step], responses=1).before_score

    def save(self, directory: Path) -> None:
        """Write the set as ``prompts.yaml`` into a judge's directory."""
        write_text_atomic(directory / FILE, self.source)


def _filled(fragment: str, name: str, slots: Mapping[str, str]) -> str:
    """Return a fragment with its slot ``name`` filled in; empty where the slot is."""
    text = slots.get(name, "")
    if not text:
        return ""
    return fragment.replace(f"{{{name}}}", text)


def prompt_file(name_or_path: str | Path) -> Path:
    """Return the file of a prompt set: the packaged one of this name, else the path itself."""
    # A packaged name comes first, so that no file of the working directory takes its place.
    packaged = PACKAGED / f"{name_or_path}.yaml"
    if packaged.exists():
        return packaged
    return Path(name_or_path)


def prompt_path(name: str, owner: object = None) -> str:
    """Return :func:`prompt_file` as text, for the mark of configuration fields that name a prompt set."""
    return str(prompt_file(name))


def packaged_sets(dialect: Dialect) -> list[str]:
    """Return the names of the packaged sets that have every step of a dialect."""
    names = []
    for path in sorted(PACKAGED.glob("*.yaml")):
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        if all(step in raw for step in DIALECTS[dialect]):
            names.append(path.stem)
    return names


def check_reads(prompts: PromptSet, orders: Iterable[Order], key: str) -> None:
    """Refuse (ConfigError, with the ``key``) a prompt set that has no step for judgments in one of these orders."""
    if any(judgment_step(order) not in prompts.steps for order in orders):
        raise ConfigError(
            f"{key}: the prompt set {prompts.name!r} has no step 'score', by which one response is judged; "
            "add one (docs/prompts.md), or let judgments read two"
        )


def has_step(path: Path, step: str) -> bool:
    """Return whether a file is there and is a prompt set with this step."""
    if not path.is_file():
        return False
    raw = load_yaml(path.read_text(encoding="utf-8"))
    return isinstance(raw, dict) and step in raw


def load_prompt_set(name_or_path: str | Path, dialect: Dialect = "branching", key: str = "prompts") -> PromptSet:
    """Return a packaged prompt set by name, or one from a YAML file.

    Args:
        name_or_path: of a packaged set, or of a file.
        dialect: the set must have its steps. Steps of other dialects in the same file are checked and kept.
        key: the set's configuration key, for messages.

    Raises:
        ConfigError: no such set, not valid YAML, a missing step, or a template with a missing or unknown slot.
    """
    path = prompt_file(name_or_path)
    if not path.is_file():
        names = ", ".join(packaged_sets(dialect))
        raise ConfigError(f"{key}={name_or_path}: neither a packaged set ({names}) nor a YAML file")
    try:
        source = path.read_text(encoding="utf-8")
        # The text is kept beside what it holds: it is saved with every judge as it was written.
        raw = load_yaml(source)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: it is nested too deeply to be a prompt set") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping with {', '.join(DIALECTS[dialect])}")

    # First the frames, which are taken out of the steps: what is left there must be templates.
    frames = {step: _frame(raw, step, path) for step in FRAMES}
    steps: dict[str, Mapping[str, str]] = {}
    for step in SLOTS:
        if step in DIALECTS[dialect] or step in raw:
            steps[step] = _template(raw.get(step), step, path)
    templates = [text for texts in steps.values() for text in texts.values()]
    reference = ""
    # A set that shows no reference need not say how one is shown.
    if any("{reference_block}" in text for text in templates):
        reference = _fragment(raw, "reference", path)
    return PromptSet(
        name=str(raw.get("name", path.stem)),
        context=_fragment(raw, "context", path),
        reference=reference,
        steps=steps,
        source=source,
        scale=_scale(raw, steps, path),
        reply_form=_reply_form(raw, steps, path),
        frames=frames,
    )


def _frame(raw: Mapping[str, Any], step: str, path: Path) -> str:
    """Take the frame of judgments out of the step that writes them and return it, or the default without one."""
    template = raw.get(step)
    frame = FRAMES[step]
    if isinstance(template, dict):
        frame = template.pop("frame", frame)
    if not isinstance(frame, str) or not frame:
        raise ConfigError(f"{path}: step {step!r}, 'frame': expected a regular expression")
    scores = 2
    if step == "score":
        scores = 1
    try:
        # Made for its errors: a wrong frame is refused here and not at the first judgment.
        frame_of(frame, scores)
    except ValueError as error:
        raise ConfigError(f"{path}: step {step!r}, 'frame': {error}") from error
    return frame


def _template(templates: Any, step: Step, path: Path) -> Mapping[str, str]:
    """Return a step's templates by role, checked (ConfigError: names the step and what is wrong with it)."""
    if not isinstance(templates, dict) or not isinstance(templates.get("user"), str):
        raise ConfigError(f"{path}: step {step!r} needs a 'user' template")
    for role, text in templates.items():
        if role not in ("system", "user") or not isinstance(text, str):
            raise ConfigError(f"{path}: step {step!r}, {role!r}: expected 'system' or 'user' with a text")

    required = SLOTS[step]
    # The slots of all roles count together: a system prompt may hold some of them.
    used: set[str] = set()
    for text in templates.values():
        used.update(_SLOT.findall(text))
    missing = required - used
    if missing:
        raise ConfigError(f"{path}: step {step!r} lacks the slot {{{sorted(missing)[0]}}}")
    unknown = used - required - MAY
    if unknown:
        allowed = ", ".join(sorted(required | MAY))
        raise ConfigError(f"{path}: step {step!r} has an unknown slot {{{sorted(unknown)[0]}}}; allowed: {allowed}")
    return templates


def _fragment(raw: Mapping[str, Any], name: str, path: Path) -> str:
    """Return a fragment of a set (ConfigError: it has no slot of its name)."""
    fragment = raw.get(name, "")
    if not isinstance(fragment, str) or f"{{{name}}}" not in fragment:
        raise ConfigError(f"{path}: the fragment {name!r} must contain the slot {{{name}}}")
    return fragment


def _scale(raw: Mapping[str, Any], steps: Mapping[str, Any], path: Path) -> tuple[int, int] | None:
    """Return the ends of a set's scale; None without a step ``pointwise`` (ConfigError: that step without a scale)."""
    if "pointwise" not in steps:
        return None
    scale = raw.get("scale")
    # By type, as true and false are whole numbers to isinstance.
    if isinstance(scale, list) and [type(end) for end in scale] == [int, int]:
        lowest, highest = scale
        if lowest < highest:
            return lowest, highest
    raise ConfigError(f"{path}: step 'pointwise' needs scale: [lowest, highest], two whole numbers; found {scale}")


def _reply_form(raw: Mapping[str, Any], steps: Mapping[str, Any], path: Path) -> ReplyForm | None:
    """Return the form by which replies are read, where a set brings its own (ConfigError: it is another thing)."""
    if "reads" in raw:
        raise ConfigError(f"{path}: reads is called reply_form now: rename it")
    if "reply_form" not in raw:
        return None
    try:
        form = dict(raw["reply_form"])
        pattern = re.compile(form.pop("pattern"), re.IGNORECASE | re.MULTILINE)
        verdicts = form.pop("verdicts", {})
        is_valid = not form and pattern.groups == 1 and set(verdicts.values()) <= {"A", "B", "tie"}
    except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
        raise ConfigError(f"{path}: {_FORM}: {error}") from error
    if not is_valid or bool(verdicts) != ("pairwise" in steps):
        raise ConfigError(f"{path}: {_FORM}")
    # Replies are compared in small letters.
    return ReplyForm(pattern, {str(text).casefold(): verdict for text, verdict in verdicts.items()})


_FORM = (
    "reply_form: expected a pattern, a regular expression with one group in brackets; and for a step pairwise, and no "
    "other, verdicts: what the group holds -> A, B or tie"
)


def slots_of(comparison: Comparison, reference: bool = False) -> dict[str, str]:
    """Return the slots that every step's prompt has; lines of earlier turns that read like another turn are quoted.

    Args:
        comparison: what is judged.
        reference: True: with the dialogue's reference answer, where it has one.
    """
    dialogue = comparison.dialogue
    turns = tuple(replace(turn, content=turns_quoted(turn.content)) for turn in dialogue.messages)
    slots = {"query": dialogue.query, "context": replace(dialogue, messages=turns).context}
    if reference and dialogue.reference:
        slots["reference"] = dialogue.reference
    return slots


def judgment_step(order: Order) -> Step:
    """Return the step that writes a judgment in this order: ``judgment`` of two responses, ``score`` of one."""
    if order in ORDERS:
        return "judgment"
    return "score"


def judgment_slots(
    comparison: Comparison, order: Order, criterion: str, guideline: str, reference: bool = False
) -> dict[str, str]:
    """Return the slots of a judgment's prompt.

    Args:
        comparison: what is judged.
        order: BA exchanges the responses, and A or B shows one of them.
        criterion: the criterion's text.
        guideline: its scoring guideline.
        reference: True: with the dialogue's reference answer, where it has one.
    """
    slots = slots_of(comparison, reference)
    slots["criterion"] = criterion
    slots["guideline"] = guideline
    response_a = comparison.response_a
    response_b = comparison.response_b
    if order == "A":
        slots["response"] = response_a
    elif order == "B":
        slots["response"] = response_b
    elif order == "AB":
        slots["response_a"] = response_a
        slots["response_b"] = response_b
    else:
        slots["response_a"] = response_b
        slots["response_b"] = response_a
    return slots
