"""Choose the one chat template that a model is prompted with, of all that its files hold.

Transformers reads them in two ways. A tokenizer takes chat_template.jinja, else what tokenizer_config.json holds. A
processor, which servers ask for models with pictures, takes what processor_config.json holds, else chat_template.json,
else chat_template.jinja. Neither says that another one is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgetrain.artifacts.files import read_json
from judgetrain.engines.config import ModelConfig
from judgetrain.engines.pretrained import explained, revision_of
from judgetrain.engines.template_check import CONVERSATION, check_template
from judgetrain.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEFAULT = "default"
"""The name of the one that is used, where a tokenizer has several."""

BESIDE = ("tokenizer_config.json", "chat_template.json", "processor_config.json")
"""Files that may hold a template as ``chat_template``, beside chat_template.jinja."""

PROBES = (
    ({"role": "system", "content": "Judge."}, *CONVERSATION[:1]),
    CONVERSATION[:1],
    ({"role": "system", "content": "Judge."}, *CONVERSATION),
)
"""Conversations for which two templates have to write the same prompt."""


def default_template(tokenizer: PreTrainedTokenizerBase, config: ModelConfig, path: str) -> tuple[Any, str]:
    """Return the chat template that judges are prompted with, and a sentence for the log about that choice.

    It is the tokenizer's: of several named ones, the default. The others are for tools and documents, which judges are
    not given; and libraries choose among them by what they are asked for, each in its own way. Where the tokenizer has
    none, it is the one that a processor would take.

    Args:
        tokenizer: as Transformers loaded it.
        config: the model.
        path: where the model is: its directory or id on the Hub.

    Returns:
        The template, None where no file holds any; and the sentence, empty where there is nothing to say.

    Raises:
        EngineError: none of several is named default, or files hold templates that write different prompts.
    """
    template = tokenizer.chat_template
    remark = ""
    if isinstance(template, Mapping):
        template = _named_default(template, config.path)
        if len(tokenizer.chat_template) > 1:
            names = ", ".join(sorted(tokenizer.chat_template))
            remark = (
                f"{config.path} has several chat templates ({names}): judges are prompted with the one named default"
            )
    beside = _templates_beside(config, path)
    # The file that the tokenizer's template is from, for messages: chat_template.jinja goes before the others.
    taken_from = "chat_template.jinja"
    if template == beside.get("tokenizer_config.json"):
        taken_from = "tokenizer_config.json"
    for name, other in beside.items():
        if not template:
            template = other
            taken_from = name
            remark = f"the tokenizer of {config.path} has no chat template: it gets the one of {name}"
        elif not _write_the_same(tokenizer, str(template), other, config.path):
            raise EngineError(
                f"{config.path} has chat templates that write different prompts: that of {taken_from} and that of "
                f"{name}. Tokenizers read one and servers may read the other: remove the one that the model was not "
                f"tuned with (chat_template.jinja is read before the others)"
            )
    return template, remark


def _named_default(templates: Mapping[str, str], path: str) -> str:
    """Return the default of named templates (EngineError: there is none)."""
    if DEFAULT not in templates:
        names = ", ".join(sorted(templates))
        raise EngineError(
            f"the tokenizer of {path} has several chat templates ({names}) and none that is named default: write the "
            f"one that judges are to be prompted with into chat_template.jinja, and remove the others"
        )
    return templates[DEFAULT]


def _templates_beside(config: ModelConfig, path: str) -> dict[str, str]:
    """Return the default templates that the JSON files of a model hold, by the files' names."""
    from transformers.utils import cached_file

    templates = {}
    for name in BESIDE:
        with explained(config, path):
            file = cached_file(path, name, revision=revision_of(config), _raise_exceptions_for_missing_entries=False)
        if file is None:
            continue
        content = read_json(Path(file))
        if not isinstance(content, dict):
            continue
        template = content.get("chat_template")
        # Several are a list of names and templates in a tokenizer's file, and a mapping in a processor's.
        if isinstance(template, list):
            template = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        if isinstance(template, dict):
            template = template.get(DEFAULT)
        if isinstance(template, str) and template:
            templates[name] = template
    return templates


def _write_the_same(tokenizer: PreTrainedTokenizerBase, template: str, other: str, path: str) -> bool:
    """Return whether two templates write the same prompts for conversations of texts, or refuse the same ones.

    One that knows pictures and one that knows texts alone may well do so.

    Raises:
        EngineError: the other one takes too much time or memory.
    """
    # Most often the files hold the same text, and trying templates takes seconds.
    if _as_jinja_reads(template) == _as_jinja_reads(other):
        return True
    # Both come from elsewhere, and are about to be run here.
    for text in (template, other):
        check_template(text, tokenizer.special_tokens_map, path)
    return all(_written(tokenizer, template, messages) == _written(tokenizer, other, messages) for messages in PROBES)


def _as_jinja_reads(template: str) -> str:
    """Return a template with line ends as Jinja has them, and without the last one, which it drops."""
    return template.replace("\r\n", "\n").removesuffix("\n")


def _written(tokenizer: PreTrainedTokenizerBase, template: str, messages: Any) -> str | None:
    """Return the prompt that a template writes; None where it refuses the messages."""
    conversation = [dict(message) for message in messages]
    try:
        return str(
            tokenizer.apply_chat_template(
                conversation, chat_template=template, tokenize=False, add_generation_prompt=True
            )
        )
    except Exception:
        # It is somebody's program: any error is a refusal.
        return None
