"""What a judge's card says of how far it can be relied on."""

from __future__ import annotations

from pathlib import Path

from judgetrain.artifacts.files import read_json
from judgetrain.extras.guarantees.gate import FILE as GATE
from judgetrain.extras.guarantees.gate import Rule
from judgetrain.extras.guarantees.worth import FILE as WORTH
from judgetrain.judges.method import Method

_LEGEND = """What was asked of it before it went out (`guarantees.required`). Beats: more agreement on the same
comparisons by the paired bootstrap over prompts; matches: not shown to have less; floors: every baseline that was
measured. n: comparisons."""


def _gate(directory: Path, judge: str) -> str:
    """The checks of ``gate.json`` that are of the judge, however it was asked.

    A rule that could be tested nowhere is one that failed, on 0 comparisons of no benchmark.
    """
    found = read_json(directory / GATE) or {"checks": (), "untested": ()}
    checks = [check for check in found["checks"] if Method.parse(check["first"]).target == judge]
    nowhere = {"benchmark": "no benchmark", "n": 0, "passed": False, "told": "it could be tested nowhere"}
    untested = (rule for rule in found["untested"] if Method.parse(Rule.parse(rule).judge).target == judge)
    checks += [{"rule": rule, **nowhere} for rule in untested]
    if not checks:
        return ""
    held = sum(check["passed"] for check in checks)
    whole = "It passed" if held == len(checks) else "It did not pass"
    lines = [f"{_LEGEND}\n**{whole}**: {held} of {len(checks)} hold.\n"]
    for c in checks:
        passed = "passed" if c["passed"] else "**failed**"
        lines.append(f"- {passed}, {c['benchmark']} (n = {c['n']}), {c['rule']}: {c['told']}")
    return "\n".join(lines)


def _worth(directory: Path, judge: str) -> str:
    """Whether training it paid, a line a benchmark."""
    found = [w for w in read_json(directory / WORTH) or () if Method.parse(w["judge"]).target == judge]
    return "\n".join(f"- {w['benchmark']} (n = {w['n']}): {w['told']}" for w in found)


PARTS = {"Worth training": _worth, "Gate": _gate}
"""By its title a section of the card: its text of what a finished artifact holds of a judge, empty for nothing."""
