"""What a shell offers while a command line is typed: Hydra's flag ``-sc``, answered without Hydra, which takes longer.

Imports the sections whose keys are asked for, and none where a stage, a recipe or a group is.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from judgetrain import rooms
from judgetrain.pipeline import groups

FLAGS = ("--cfg", "--config-dir", "--help", "--hydra-help", "--info", "--multirun", "--resolve", "--version")
BASH = r"""
[ -n "$ZSH_VERSION" ] && autoload -U +X compinit bashcompinit && compinit && bashcompinit
_judgetrain() {
  local IFS=$'\n' line="${COMP_LINE:0:$COMP_POINT}" word asked=("$1")
  word="${line##*[[:space:]]}"
  if [[ "${1##*/}" == python* ]]; then
    [[ "$line" =~ ^[^[:space:]]+[[:space:]]+-m[[:space:]]+judgetrain[[:space:]] ]] || return 0
    asked+=(-m judgetrain)
  fi
  COMPREPLY=($(COMP_LINE="$line" "${asked[@]}" -sc query=bash 2>/dev/null))
  case "${COMPREPLY[*]}" in *[=.]) compopt -o nospace 2>/dev/null ;; esac
  # what follows the last = is a word of its own to bash
  [[ -z "$BASH_VERSION" || "$COMP_WORDBREAKS" != *=* || "$word" != *=* ]] || COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}")
}
complete -o bashdefault -o default -F _judgetrain judgetrain python python3
"""
"""File names are offered where nothing is known, and for any other use of Python."""


def answer(asked: str) -> str | None:
    """What ``-sc`` prints for ``install=SHELL`` and ``query=SHELL``; None for anything else, which Hydra answers."""
    if asked in ("install=bash", "install=zsh"):
        return BASH
    if not asked.startswith("query="):
        return None
    words = re.split(r"\s+", os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", 1 << 30))])
    words = words[words.index("judgetrain") + 1 :] if words[1:3] == ["-m", "judgetrain"] else words[1:]
    return "\n".join(sorted(set(candidates(words or [""]))))


def candidates(words: Sequence[str]) -> Iterator[str]:
    """What the last word of a command line may become, up to the next dot or equals sign."""
    *before, word = words
    commands = rooms.commands()
    named = [text for text in before if text]
    sign = word[: len(word) - len(word.lstrip("+~"))]
    key, equals, value = word[len(sign) :].partition("=")
    if word.startswith("-"):
        yield from (flag for flag in FLAGS if flag.startswith(word))
    elif len(named) == 1 and named[0] in commands and commands[named[0]].takes and not equals:
        return  # a directory
    elif equals:
        yield from (f"{sign}{key}={option}" for option in _values(key, named) if option.startswith(value))
    else:
        keys = named[:1] == ["keys"]
        stages = [*rooms.stages(), *commands, "keys"]
        for text in (*(() if named else stages), *(() if keys else (f"{group}=" for group in groups())), *_keys(key)):
            if text.startswith(key):
                yield sign + (text.removesuffix("=") if keys else text)


def _values(key: str, words: Sequence[str]) -> Iterator[str]:
    if key in (there := groups()):
        yield from there[key]
        if key == "recipe":
            for place in re.findall(r"(?:--config-dir|-cd)[ =](\S+)", " ".join(words)):
                yield from (path.stem for path in Path(place, "recipe").expanduser().glob("*.yaml"))
        return
    from judgetrain.pipeline.key_names import every_key

    for found in every_key([key]):
        if found.name == re.sub(r"\[\d+\]", "[]", key):
            numbers = found.type.startswith(("int", "float"))
            yield from ["true", "false"] if found.type == "bool" else [] if numbers else found.allowed.split(", ")


def _keys(typed: str) -> Iterator[str]:
    """The keys that begin so, up to the next dot."""
    from judgetrain.pipeline.key_names import every_key

    yield from (f"{name}." for name in rooms.sections() if "." not in typed)
    begun = re.sub(r"\[\d+\]", "[]", typed)
    for key in every_key([typed]):
        part, dot, _ = key.name[len(begun) :].partition(".")
        if key.name.startswith(begun) and "[" not in part and (dot or key.default or key.type.startswith("list")):
            yield f"{typed}{part}{dot or '='}"
