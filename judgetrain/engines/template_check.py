"""Try a chat template from elsewhere once, in a process that can be ended, before it is used in this one.

A chat template is a program. It cannot leave Jinja's sandbox, but a single expression may ask for gigabytes, already
while it is compiled, and loops may run for years.

    python -m judgetrain.engines.template_check < REQUEST

is that process: it reads a template and a conversation as JSON, and writes nothing if the template renders.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from judgetrain.errors import EngineError

SECONDS = 20
"""Seconds of processor time that a short conversation may take."""
MEMORY = 1 << 30
"""Bytes that rendering may take beside what the process has when it begins."""
LONGEST = 1_000_000
"""Characters that the prompt of a short conversation may have; templates write some thousands around tools."""
PATIENCE = 900
"""Seconds after which the process is given up. A busy machine may take minutes to start it."""

CONVERSATION = (
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Spain?"},
)
SYSTEM = {"role": "system", "content": "Answer in one sentence."}
CONVERSATIONS = (
    *((CONVERSATION, with_prompt) for with_prompt in (True, False)),
    # Some templates take a single question alone, and would be seen to refuse only.
    (CONVERSATION[:1], True),
    # As criteria are asked for, and as judgments are trained on.
    ((SYSTEM, *CONVERSATION), True),
    ((SYSTEM, *CONVERSATION[:2]), False),
)
"""The conversations that are rendered, each with whether the beginning of an answer is to stand at its end.

A template may do harm for one form alone, and judges use all of them.
"""


def check_template(template: str, special_tokens: Mapping[str, str], path: str) -> None:
    """Raise EngineError where a chat template takes too much time or memory, or writes without end.

    A template that refuses the conversation, as some refuse a second question, is none of these.

    Args:
        template: the Jinja template.
        special_tokens: the tokenizer's, by their names in templates, as ``bos_token``.
        path: where the tokenizer is from, for the message.
    """
    fault = _fault(template, tuple(sorted(special_tokens.items())))
    if fault:
        raise EngineError(
            f"the chat template of {path} {fault} for a conversation of three short messages, so it is not used: give "
            f"the model another template (chat_template.jinja in its directory)"
        )


@cache
def _fault(template: str, special_tokens: tuple[tuple[str, str], ...]) -> str:
    """Return what is wrong with a template, as the rest of a sentence; empty if nothing is."""
    # By standard input: a template may be longer than a command line can be.
    request = json.dumps({"template": template, "special_tokens": dict(special_tokens)})
    command = [sys.executable, "-m", "judgetrain.engines.template_check"]
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"is not rendered in {PATIENCE // 60} minutes, its process's start included,"
    if done.returncode < 0:
        # The kernel ends a process at its limit of processor time.
        return f"takes longer than {SECONDS} s, or more than {MEMORY >> 20} MB"
    if done.returncode == 0:
        return done.stdout
    return f"cannot be tried ({done.stderr.strip()[-200:]})"


def _try_template(template: str, special_tokens: Mapping[str, str]) -> str:
    """Return what is wrong with a template, as the rest of a sentence; empty if nothing is."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    # After the imports: what they take is no part of the template's.
    _limit_this_process()
    for messages, with_prompt in CONVERSATIONS:
        conversation = [dict(message) for message in messages]
        try:
            rendered, _ = render_jinja_template(
                [conversation], chat_template=template, add_generation_prompt=with_prompt, **special_tokens
            )
        except TemplateError:
            # It takes no conversation of this form; with which messages it is used is seen when it is.
            continue
        except MemoryError:
            return f"takes more than {MEMORY >> 20} MB"
        except RecursionError:
            return "calls itself without end"
        except Exception as error:
            return f"fails ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        if len(rendered[0]) > LONGEST:
            return f"writes more than {LONGEST} characters"
    return ""


def _limit_this_process() -> None:
    """Limit the memory and the processor time of this process, which has imported all that it needs."""
    import resource

    # Only Linux says, and limits, how much memory a process has; elsewhere time is the limit.
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    # Whole seconds alone can be set: rounded down, of one second nothing might be left.
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used) + SECONDS,) * 2)


def main() -> None:
    """Try the template that standard input holds, and print what is wrong with it."""
    request = json.load(sys.stdin)
    print(_try_template(request["template"], request["special_tokens"]), end="")


if __name__ == "__main__":
    main()
