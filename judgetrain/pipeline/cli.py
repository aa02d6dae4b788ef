"""The command line: ``python -m judgetrain stage=... recipe=... key=value ...``. Imports no room."""

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable

from judgetrain import __version__, rooms
from judgetrain.errors import ConfigError
from judgetrain.pipeline import EXIT_ERROR, EXIT_INTERRUPTED, groups

TIDYING = 30.0
"""Seconds that an interrupted process has for what is registered to run at its end."""
_TEXT = """judgetrain: train your own LLM judge by branching preference learning.

python -m judgetrain stage=STAGE recipe=RECIPE key=value ...     or, for short, judgetrain STAGE key=value ...

Stages (each makes whatever it needs first):
{stages}

Examples:
  python -m judgetrain stage=evaluate                        the quickstart, end to end
  python -m judgetrain stage=dpo recipe=pairs data_dir=DIR   your own comparisons
  python -m judgetrain judge verdicts.judge=DIR verdicts.source.path=FILE    a judge's verdicts on your comparisons
  python -m judgetrain stage=status
  python -m judgetrain stage=dpo recipe=path/to/mine.yaml train=lora teacher=openai
  python -m judgetrain -m stage=dpo train.dpo.beta=0.05,0.1,0.5
  python -m judgetrain recipe=sweeps/beta_learning_rate sweep=joblib
  python -m judgetrain --cfg job --resolve                   the whole configuration
  python -m judgetrain keys train.dpo                        what its keys mean, with defaults and ranges
  eval "$(judgetrain -sc install=bash)"                      completion, also of python -m judgetrain (zsh too)

Groups, selected as group=option:
{groups}

Why rows and replies were left out: -v
Every key with its type, default, range and meaning: python -m judgetrain keys [PREFIX]
Flags of Hydra: python -m judgetrain --hydra-help"""


def usage() -> str:
    """Stages, examples, and the groups of conf/ and recipes/ with their options."""
    makes = {name: entry.does for name, entry in (rooms.stages() | rooms.commands()).items()}
    return _TEXT.format(
        stages="\n".join(f"  {name:<10} {what}" for name, what in makes.items()),
        groups="\n".join(f"  {group}: {', '.join(options)}" for group, options in groups().items()),
    )


def main() -> int:
    """Run the command line; the exit code is 0, 2 for an expected error or no arguments, 130 when interrupted."""
    try:
        rooms.rooms()  # an installed package that names a room which cannot be used ends every command
        return _main()
    except ConfigError as error:
        print(f"judgetrain: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        _show(lambda: print("judgetrain: interrupted; what is finished is kept: run again to go on", file=sys.stderr))
        return EXIT_INTERRUPTED


def _main() -> int:
    if not (given := sys.argv[1:]):
        print(usage(), file=sys.stderr)
        return EXIT_ERROR
    if "--version" in given:
        print(f"judgetrain {__version__}")
        return 0
    if {"--help", "-h"}.intersection(given):
        _show(lambda: print(usage()))
        return 0
    if given[0] in ("-sc", "--shell-completion") and given[1:]:
        from judgetrain.pipeline import completion

        if (said := completion.answer(given[1])) is not None:
            _show(lambda: print(said))
            return 0
    from judgetrain.artifacts.console import VERBOSE
    from judgetrain.pipeline import compose, job, key_names

    if "-v" in given:
        given.remove("-v")
        os.environ[VERBOSE] = "1"  # workers have it too
    if given[0] == "keys":
        return job.guarded(lambda: _show(lambda: key_names.show(given[1:], compose.composed_of)))
    if any(word.partition("=")[0] in ("--hydra-help", *compose.SHOWN) for word in given):
        return job.guarded(lambda: _show(lambda: job.hydra_jobs(given)))
    return job.guarded(lambda: job.hydra_jobs(given))


def _show(page: Callable[[], None]) -> None:
    """Print a page; whoever reads it through a pipe may stop early, as ``head`` does."""
    try:
        page()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the rest fails once more at exit


def command() -> int:
    """:func:`main` for a process of its own, which ends when it is interrupted."""
    gc.set_threshold(700, 10, 100)  # full collections took a sixth of the time that imports take
    if (code := main()) == EXIT_INTERRUPTED:
        signal.signal(signal.SIGINT, lambda *_: os._exit(code))
        late = threading.Timer(TIDYING, os._exit, [code])
        late.daemon = True
        late.start()
        atexit._run_exitfuncs()
        # Python would wait for threads, one of which an interrupt may have cost, and take seconds to tidy a model up.
        os._exit(code)
    return code
