"""The command line: ``python -m judgetrain stage=... recipe=... key=value ...``. Imports no room."""

import atexit
import gc
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from judgetrain import __version__, rooms
from judgetrain.errors import ConfigError, TerminatedError, say_error
from judgetrain.pipeline import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_TERMINATED, groups

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
    """Return the help page: stages, examples, and the groups of conf/ and recipes/ with their options."""
    entries = rooms.stages() | rooms.commands()
    stage_lines = [f"  {name:<10} {entry.does}" for name, entry in entries.items()]
    group_lines = [f"  {group}: {', '.join(options)}" for group, options in groups().items()]
    return _TEXT.format(stages="\n".join(stage_lines), groups="\n".join(group_lines))


def main() -> int:
    """Run the command line, and return the exit code.

    It is 0, 2 for an expected error or no arguments, 130 when interrupted, or 143 after SIGTERM or SIGUSR1.
    """
    try:
        # An installed package with a room that cannot be used ends every command, with a message that names it.
        rooms.rooms()
        return _main()
    except ConfigError as error:
        say_error(error)
        return EXIT_ERROR
    except KeyboardInterrupt as error:
        # Of several processes that a launcher started the first one speaks.
        if os.environ.get("RANK", "0") == "0":
            line = "judgetrain: interrupted; what is finished is kept: run again to go on"
            _show(lambda: print(line, file=sys.stderr))
        return EXIT_TERMINATED if isinstance(error, TerminatedError) else EXIT_INTERRUPTED
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        _leave_output()
        line = "judgetrain: stopped, since what read its output has ended; what is finished is kept: run again to go on"
        _show(lambda: print(line, file=sys.stderr))
        return EXIT_ERROR


def _reader_is_gone() -> bool:
    """Return whether standard output is a pipe that nobody reads any more; other pipes break, too."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):
        # Not every system can tell, and a notebook's output or a test's is no file.
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _main() -> int:
    """Run the command line, and return the exit code 0 or 2; what needs no configuration is answered first."""
    words = sys.argv[1:]
    if not words:
        print(usage(), file=sys.stderr)
        return EXIT_ERROR
    if "--version" in words:
        print(f"judgetrain {__version__}")
        return 0
    if "--help" in words or "-h" in words:
        _show(lambda: print(usage()))
        return 0

    # A shell waits for this at every press of the tab key, so it is answered without Hydra where that can be.
    if words[0] in ("-sc", "--shell-completion") and words[1:]:
        from judgetrain.pipeline import completion

        completions = completion.answer(words[1])
        if completions is not None:
            _show(lambda: print(completions))
            return 0

    # Imported here: all of the above is answered in the time that Hydra alone takes to import.
    from judgetrain.artifacts.heartbeat import starting

    # To standard error, since a configuration that is printed may be read by another program.
    with starting(lambda line: print(line, file=sys.stderr, flush=True)):
        return _with_hydra(words)


def _with_hydra(words: list[str]) -> int:
    """Run a command line that needs Hydra, whose import alone may take long on a busy machine, and return the code."""
    from judgetrain.artifacts.console import VERBOSE, quiet_libraries
    from judgetrain.pipeline import compose, job, key_names

    # Before any of them is imported: some of them look once. Settings and models are looked at before a stage starts.
    quiet_libraries()
    if "-v" in words:
        words.remove("-v")
        # In the environment, where workers read it, too.
        os.environ[VERBOSE] = "1"
    if words[0] == "keys":
        return job.guarded(lambda: _show(lambda: key_names.show(words[1:], compose.composed_of)))
    if any(word.partition("=")[0] in ("--hydra-help", *compose.SHOWN) for word in words):
        return job.guarded(lambda: _show(lambda: job.hydra_jobs(words)))
    return job.guarded(lambda: job.hydra_jobs(words))


def _show(page: Callable[[], None]) -> None:
    """Print a page; whoever reads it through a pipe may stop early, as ``head`` does."""
    try:
        page()
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_output()


def _leave_output() -> None:
    """Write nothing more to standard output: Python flushes it once more when it exits, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command() -> int:
    """Run :func:`main` in a process of its own, which ends when it is interrupted, and return the exit code."""
    # Full collections took a sixth of the time that imports take.
    gc.set_threshold(700, 10, 100)
    code = main()
    if code in (EXIT_INTERRUPTED, EXIT_TERMINATED):
        # Imported here: a help page needs none of it.
        from judgetrain.artifacts.signals import ENDING

        # A second signal, or an exit handler that hangs, must not keep the process.
        for number in ENDING:
            signal.signal(number, lambda *_: os._exit(code))
        timer = threading.Timer(TIDYING, os._exit, [code])
        timer.daemon = True
        timer.start()
        atexit._run_exitfuncs()
        # Python would wait for threads, one of which an interrupt may have cost, and take seconds to tidy a model up.
        os._exit(code)
    return code


def leave(code: int) -> NoReturn:
    """End this process with an exit code, as Python does but for tidying up.

    Threads are awaited, and whatever is registered to run at the end is run. What Python does then, taking modules and
    a model apart, frees nothing that the process's end does not free, and takes seconds: a minute on a busy machine.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Whoever reads a pipe may have ended.
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def script() -> NoReturn:
    """Run the command line as the installed program ``judgetrain``."""
    leave(command())
