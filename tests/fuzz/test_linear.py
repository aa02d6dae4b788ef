"""No text hangs a reader: every regular expression of the package is linear in what it is given."""

import subprocess
import sys

from judgetrain.extras.server.openrlhf import shown_response
from judgetrain.judges.prompting.parsing import parse_criteria, parse_judgment
from judgetrain.judges.prompting.verdicts import read_rating, read_verdict
from judgetrain.thoughts import shown
from tests.fuzz.patterns import HEADS, UNITS


def test_every_pattern_of_the_package_is_linear() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.fuzz.patterns"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stderr.split(" patterns tried")[0].split()[-1]) > 80
    assert [line for line in done.stdout.splitlines() if "is not linear" in line] == []


def test_readers_are_linear() -> None:
    # Loops over what patterns find are no pattern, so that they are timed by themselves.
    code = f"""
import signal
from tests.fuzz.test_linear import read_all
for head in {["", *HEADS]!r}:
    for unit in {UNITS!r}:
        print(repr((head, unit)), flush=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
        read_all(head + unit * (15_000 // len(unit)) + chr(1))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout.splitlines()[-1:] + done.stderr.splitlines()[-3:]


def read_all(text: str) -> None:
    """Call every reader of a judge's replies and of responses on a text that is the reply and what is judged."""
    parse_judgment(text, [text])
    parse_criteria(text, 10, text)
    read_verdict(text, text)
    read_rating(text, 1, 10, text)
    shown(text)
    shown_response(text, text)
