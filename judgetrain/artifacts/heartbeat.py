"""Say what a run is doing while it prints nothing else: a line every ten seconds, made by time and not by rows.

Whoever begins something that may take long says so by :func:`doing`. Lines come from a thread of the command alone
(:func:`beating`), so that nothing is printed where the package is used from Python.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

SILENCE = 7.0
"""Seconds without a line after which one comes, so that ten seconds are never silent.

An import may hold the interpreter, and a look comes late by as much: seconds on a busy machine."""
LOOKS = 0.5
"""Seconds between two looks."""


def duration(seconds: float) -> str:
    """Return seconds as text: ``12.3 s``, and minutes from 100 s on."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


@dataclass(eq=False)
class Activity:
    """Something that a run is doing.

    Args:
        what: in words, as ``loading the model``.
        total: how many units it has; 0: it has none.
        unit: the units' name in the plural.
        done: how many of them are finished.
        shown: whether a progress bar shows it, so that it needs no line.
        started: when it began, on the monotonic clock.
        thread: that began it.
    """

    what: str
    total: int = 0
    unit: str = ""
    done: int = 0
    shown: bool = False
    started: float = field(default_factory=lambda: time.monotonic())
    thread: int = field(default_factory=threading.get_ident)
    done_before: int = field(init=False)

    def __post_init__(self) -> None:
        """Remember what an earlier run finished: it took none of this run's time."""
        self.done_before = self.done

    def advance(self, number: int = 1) -> None:
        """Count finished units."""
        self.done += number

    def text(self, now: float) -> str:
        """Return what is done, how much of it, and how long it still takes, or how long it has taken so far."""
        seconds = now - self.started
        so_far = f"{duration(seconds)} so far"
        if not self.total:
            return f"{self.what}, {so_far}"
        progress = f"{self.what}: {self.done:,} of {self.total:,} {self.unit}"
        done_here = self.done - self.done_before
        # Until a unit is finished, nothing tells how long the others take.
        if not done_here > 0 or self.done >= self.total:
            return f"{progress}, {so_far}"
        return f"{progress}, about {duration(seconds / done_here * (self.total - self.done))} left"


_activities: list[Activity] = []
"""What this process is doing, the outermost first."""
_last_line = time.monotonic()
_thread: threading.Thread | None = None
"""The thread that prints lines; one at most."""


def noticed() -> None:
    """Remember that something was printed just now."""
    global _last_line
    _last_line = time.monotonic()


@contextmanager
def doing(what: str, total: int = 0, unit: str = "", done: int = 0, shown: bool = False) -> Iterator[Activity]:
    """Say that this process is doing something as long as the context lasts, and yield the activity.

    Arguments as of :class:`Activity`.
    """
    activity = Activity(what, total, unit, done, shown)
    _activities.append(activity)
    try:
        yield activity
    finally:
        # With it what it began and did not end, as the steps of a training that failed. Other threads' stay.
        begun_since = _activities[_activities.index(activity) :] if activity in _activities else []
        for other in begun_since:
            if other.thread == activity.thread:
                _activities.remove(other)


def line(now: float) -> str | None:
    """Return what this process is doing in one line: the innermost activity, and the one around it that has units.

    None where nothing is known to be done, or a progress bar shows it.
    """
    activities = [*_activities]
    if not activities or activities[-1].shown:
        return None
    parts = [activities[-1].text(now)]
    for activity in reversed(activities[:-1]):
        if activity.total and not activity.shown:
            parts.insert(0, f"{activity.what}: {activity.done:,} of {activity.total:,} {activity.unit}")
            break
    return "; ".join(parts)


@contextmanager
def beating(say: Callable[[str], object]) -> Iterator[None]:
    """Have a line printed after every ten seconds of silence, as long as the context lasts.

    Within another such context nothing changes.

    Args:
        say: prints one line.
    """
    global _thread
    # A forked process has no thread of its parent's.
    if _thread is not None and _thread.is_alive():
        yield
        return
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(LOOKS):
            now = time.monotonic()
            message = line(now)
            if message is not None and now - _last_line >= SILENCE:
                # Whatever reads the lines may have ended.
                with suppress(OSError, ValueError):
                    say(message)
                noticed()

    noticed()
    _thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    _thread.start()
    try:
        yield
    finally:
        ended.set()
        _thread.join(timeout=LOOKS)
        _thread = None


@contextmanager
def starting(say: Callable[[str], object]) -> Iterator[None]:
    """Have a line printed after every ten seconds in which a command has said nothing at all yet.

    It ends with the context, or as soon as anything else is printed: from then on :func:`beating` says what is done.

    Args:
        say: prints one line.
    """
    began = time.monotonic()
    before = _last_line
    ended = threading.Event()

    def watch() -> None:
        latest = began
        while not ended.wait(LOOKS) and _last_line == before:
            now = time.monotonic()
            if now - latest >= SILENCE:
                # Whatever reads the lines may have ended.
                with suppress(OSError, ValueError):
                    say(f"judgetrain: starting, {duration(now - began)} so far")
                latest = now

    thread = threading.Thread(target=watch, name="starting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=LOOKS)
