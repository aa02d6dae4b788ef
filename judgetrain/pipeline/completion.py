"""Completion of a command line in a shell: Hydra's flag ``-sc``, answered without Hydra, which takes longer.

Only the sections whose keys are completed are imported, and none for a stage, a recipe or a group.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from judgetrain import rooms
from judgetrain.pipeline import groups

FLAGS = ("--cfg", "--config-dir", "--help", "--hydra-help", "--info", "--multirun", "--resolve", "--version")
"""The flags that are offered."""
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
"""The completion function of bash and zsh.

File names are offered where there is no candidate, and for any other use of Python."""


def answer(request: str) -> str | None:
    """Return the output of ``-sc`` for ``install=SHELL`` or ``query=SHELL``, or None for a request to Hydra itself."""
    if request in ("install=bash", "install=zsh"):
        return BASH
    if not request.startswith("query="):
        return None
    # The shell says in the environment which line is typed, and where the cursor stands.
    line = os.environ.get("COMP_LINE", "")
    cursor = int(os.environ.get("COMP_POINT", len(line)))
    words = re.split(r"\s+", line[:cursor])
    if words[1:3] == ["-m", "judgetrain"]:
        words = words[3:]
    else:
        words = words[1:]
    return "\n".join(sorted(set(candidates(words or [""]))))


def candidates(words: Sequence[str]) -> Iterator[str]:
    """Yield the completions of the last word of a command line, up to the next dot or equals sign."""
    *before, word = words
    earlier = [text for text in before if text]
    # Hydra's signs for a new key, or one to delete.
    sign = word[: len(word) - len(word.lstrip("+~"))]
    key, equals, value = word[len(sign) :].partition("=")
    if word.startswith("-"):
        yield from (flag for flag in FLAGS if flag.startswith(word))
    elif equals:
        yield from (f"{sign}{key}={option}" for option in _values(key, earlier) if option.startswith(value))
    elif not _takes_directory(earlier):
        yield from (sign + name for name in _names(key, earlier) if name.startswith(key))


def _takes_directory(earlier: Sequence[str]) -> bool:
    """Return whether the next word is the directory of a command: the shell completes that itself."""
    if len(earlier) != 1:
        return False
    command = rooms.commands().get(earlier[0])
    return command is not None and bool(command.takes)


def _names(typed: str, earlier: Sequence[str]) -> Iterator[str]:
    """Yield stages for a first word, groups and keys; groups and keys with an equals sign after them.

    Args:
        typed: the beginning of a key.
        earlier: the words before it. After ``keys`` stand prefixes of keys, without an equals sign.
    """
    if not earlier:
        yield from (*rooms.stages(), *rooms.commands(), "keys")
    if earlier[:1] == ["keys"]:
        yield from (name.removesuffix("=") for name in _keys(typed))
        return
    yield from (f"{group}=" for group in groups())
    yield from _keys(typed)


def _values(key: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the values that a key or group may have; none for numbers and free texts.

    Args:
        key: the word before the equals sign.
        words: the words before it, which may name a directory of the user's own recipes.
    """
    options = groups().get(key)
    if options is not None:
        yield from options
        # Recipes in a directory of the user's own (--config-dir) have names as the shipped ones do.
        if key == "recipe":
            for directory in re.findall(r"(?:--config-dir|-cd)[ =](\S+)", " ".join(words)):
                yield from (path.stem for path in Path(directory, "recipe").expanduser().glob("*.yaml"))
        return
    from judgetrain.pipeline.key_names import every_key

    pattern = re.sub(r"\[\d+\]", "[]", key)
    for known_key in every_key([key]):
        if known_key.name != pattern or known_key.type.startswith(("int", "float")):
            continue
        if known_key.type == "bool":
            yield from ("true", "false")
        else:
            yield from known_key.allowed.split(", ")


def _keys(typed: str) -> Iterator[str]:
    """Yield the keys that begin with a text, up to the next dot, or with an equals sign at their end."""
    from judgetrain.pipeline.key_names import every_key

    if "." not in typed:
        yield from (f"{name}." for name in rooms.sections())
    beginning = re.sub(r"\[\d+\]", "[]", typed)
    for key in every_key([typed]):
        if not key.name.startswith(beginning):
            continue
        part, dot, _ = key.name[len(beginning) :].partition(".")
        has_value = bool(key.default) or key.type.startswith("list")
        # A place in a list has a number, which cannot be guessed.
        if "[" not in part and (dot or has_value):
            yield f"{typed}{part}{dot or '='}"
