"""The scorers' prompts, as data: the pool of system prompts, the revision prompts and the self-rating prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from judgetrain.errors import ConfigError
from judgetrain.scorers.encode import Messages, Sample

PACKAGED = Path(__file__).parent / "prompt_sets"
_SLOT = re.compile(r"\{(\w+)\}")
_SLOTS = {"prompt", "response"}


@dataclass(frozen=True)
class ScorerPrompts:
    """``system_prompts``: the pool; ``self_generation`` and each ``revision``: templates with prompt and response.

    ``again`` asks for the same answer once more.
    """

    system_prompts: tuple[str, ...]
    self_generation: str
    revision: Mapping[str, str]
    again: str = "Please answer the same question once more."


def load_scorer_prompts(name_or_path: str = "default") -> ScorerPrompts:
    """A packaged prompt set by name, or one from a YAML file.

    Raises:
        ConfigError: no such set, not valid YAML, or a part that is missing or lacks a slot; names file and part.
    """
    path = prompt_file(name_or_path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"scorer prompts {name_or_path!r}: {path} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected the keys system_prompts, self_generation and revision")
    pool, revision = raw.get("system_prompts"), raw.get("revision")
    if not isinstance(pool, list) or not pool or not all(isinstance(p, str) and p.strip() for p in pool):
        raise ConfigError(f"{path}: system_prompts: expected a list of texts, at least one")
    if not isinstance(revision, dict) or not revision:
        raise ConfigError(f"{path}: revision: expected templates by name, at least one")
    return ScorerPrompts(
        tuple(pool),
        _template(raw.get("self_generation"), f"{path}: self_generation"),
        {str(name): _template(text, f"{path}: revision.{name}") for name, text in revision.items()},
        str(raw.get("again") or ScorerPrompts.again),
    )


def revision_prompt(name_or_path: str, name: str) -> str:
    """The prompt of a set that ProbDiff revises with.

    Raises:
        ConfigError: the set has none of this name.
    """
    found = load_scorer_prompts(name_or_path).revision
    if name not in found:
        raise ConfigError(f"scorer.revision_prompt={name!r}: allowed are {', '.join(found)}")
    return found[name]


def prompt_file(name_or_path: str) -> Path:
    """The file of a prompt set."""
    packaged = PACKAGED / f"{name_or_path}.yaml"
    return packaged if packaged.exists() else Path(name_or_path).expanduser()


def _template(text: Any, where: str) -> str:
    if not isinstance(text, str) or set(_SLOT.findall(text)) != _SLOTS:
        raise ConfigError(f"{where}: expected a text with the slots {{prompt}} and {{response}} and no others")
    return text


def fill(template: str, prompt: str | Messages, response: str) -> Messages:
    """The chat that asks about a response: one user message; braces in the values stay as they are."""
    values = {"prompt": prompt_text(prompt), "response": response}
    return ({"role": "user", "content": _SLOT.sub(lambda match: values[match[1]], template)},)


def prompt_text(prompt: str | Messages) -> str:
    """A prompt as text: the query of a single turn, else every turn as ``Role: text``."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0]["content"]
    return "\n".join(f"{m['role'].capitalize()}: {m['content']}" for m in prompt)


def with_system(sample: Sample, system: str) -> Sample:
    """The same sample under a system prompt; one that is there already is put after it, in the same message."""
    if isinstance(sample.prompt, str):
        return Sample(f"{system}\n\n{sample.prompt}", sample.response, sample.reference)
    rest = sample.prompt
    if rest and rest[0]["role"] == "system":
        system, rest = f"{system}\n\n{rest[0]['content']}", rest[1:]
    return Sample(({"role": "system", "content": system}, *rest), sample.response, sample.reference)


def with_illustration(sample: Sample) -> Sample:
    """The sample with its own query and reference put before it as an example (glass-box paper, section 3.1).

    The example stands right before the last user message, as one more exchange.
    """
    assert sample.reference is not None
    if isinstance(sample.prompt, str):
        example = f"{sample.prompt}{sample.reference}\n\n"
        return Sample(example + sample.prompt, sample.response, sample.reference)
    *before, query = sample.prompt
    shown = ({"role": "user", "content": query["content"]}, {"role": "assistant", "content": sample.reference})
    return Sample((*before, *shown, query), sample.response, sample.reference)
