"""Training rows as the tokens that a judge is asked with and has to write: one prefix for both, and an end."""

from __future__ import annotations

import itertools
import unicodedata
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from judgetrain.engines.prompting import continuation, token_ids
from judgetrain.engines.thinking import opened_by
from judgetrain.errors import TrainingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = Sequence[Mapping[str, str]]


@dataclass
class Renderer:
    """Renders rows with a chat template, exactly as engines render the prompt.

    A template may render an answer otherwise than its own prompt begins it; the answer then follows the prompt all the
    same. Reasoning that the prompt opens is closed at once (``<think>``, ``</think>``), which is how Qwen3 writes an
    answer without any: a judge is taught answers, not thoughts.

    ``ends``: the token ids on which generation stops. An answer after which the template writes none of them gets the
    tokenizer's end token, as a judge that never saw it would write to its token limit.
    """

    tokenizer: PreTrainedTokenizerBase
    ends: Collection[int]
    remarks: dict[str, None] = field(default_factory=dict)
    """What training does beyond the template, in sentences for the log."""

    def prompt(self, messages: Messages) -> str:
        """The prompt's text, ending where the answer begins."""
        return self._rendered(messages, add_generation_prompt=True)

    def answer(self, messages: Messages, answer: Messages) -> str | None:
        """What follows the prompt: the answer and what the template writes after it; None if it renders nothing."""
        before, whole = self.prompt(messages), self._rendered([*messages, *answer])
        if before.startswith(whole):
            return None
        if whole.startswith(before):
            after = whole[len(before) :]
        else:
            content = answer[-1]["content"].strip()
            place = whole.rfind(content)
            if not content or place < 0:
                return None
            after = whole[place:]
        closing = opened_by(before)
        if closing and not after.lstrip().startswith(closing):
            self.remarks["the chat template opens reasoning; answers are trained after its end"] = None
            return f"\n{closing}\n\n{after}"
        return after

    def tokens(self, prompt: str, answer: str) -> tuple[array[int], array[int]]:
        """Token ids of a prompt and of the answer that follows it, with an end token.

        Raises:
            TrainingError: the template writes no end token, and there is none to put.
        """
        before = token_ids(self.tokenizer, prompt)
        after = continuation(self.tokenizer, prompt, before, answer)
        if not any(token in self.ends for token in after):
            after += (self._end(),)
        return array("i", before), array("i", after)

    def check(self, answer: str, tokens: Sequence[int]) -> None:
        """Check that generation which wrote these tokens would return the answer, up to blanks and letter case.

        Raises:
            TrainingError: the chat template cuts or ends it early, or the tokenizer does not give it back.
        """
        written = [*itertools.takewhile(lambda token: token not in self.ends, tokens)]
        reply = str(self.tokenizer.decode(written, skip_special_tokens=True))
        known = self.tokenizer.unk_token_id not in written  # it stands for many words
        if known and _letters(answer) not in _letters(reply):
            raise TrainingError(
                f"of the answer {answer[:60]!r} generation would return {reply[:60]!r}: the chat template cuts answers "
                "or writes an end token before theirs; give the model a chat_template.jinja that does not"
            )

    def _end(self) -> int:
        end = self.tokenizer.eos_token_id
        if end is None and not self.ends:
            raise TrainingError(
                "the chat template writes no end token after an answer, and the tokenizer has none: a judge trained so "
                "would never stop; give the model a chat_template.jinja that ends answers"
            )
        end = min(self.ends) if end is None else end
        name = self.tokenizer.convert_ids_to_tokens(end)
        self.remarks[f"the chat template ends no answer; {name} is put after each, for generation to stop"] = None
        return int(end)

    def _rendered(self, messages: Messages, **options: Any) -> str:
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, **options))


def _letters(text: str) -> str:
    """The text without what tokenizers change."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())
