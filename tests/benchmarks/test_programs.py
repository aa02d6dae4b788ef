"""Every program starts, and of some the figures are right where they can be worked out by hand.

Not part of the default run: ``pytest tests/benchmarks``.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from tests.benchmarks.quickstart_claims import Seed, claims
from tests.benchmarks.world_ceilings import line, rows

HERE = Path(__file__).parent
NO_PROGRAMS = {"__init__", "common", "quickstart_claims", "train_speed_table"}
PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NO_PROGRAMS)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("test_")])
def test_a_program_starts(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program = importlib.import_module(f"tests.benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0 and "usage:" in capsys.readouterr().out


def test_decoding_speed_has_both_arms(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.benchmarks.decoding_speed import main

    main(["--requests", "8", "--samples", "4", "--tokens", "6", "--batch-size", "8"])
    found = re.findall(
        r"^\| (model\.generate, \d at once|TransformersEngine) \| (\d+) \| .* \| ([\d.]+)x \|$",
        capsys.readouterr().out,
        re.M,
    )
    assert [name for name, *_ in found][1] == "TransformersEngine" and found[0][2] == "1.00"
    assert all(8 <= int(tokens) <= 8 * 6 for _, tokens, _ in found)


def test_ceilings_stand_above_floors() -> None:
    comparisons = eval_comparisons(WorldConfig(eval_comparisons=240), 3)
    shares = {name: float(line(name, verdicts, comparisons).split("|")[2]) for name, verdicts in rows(comparisons)}
    both, primary, ten = (
        next(v for k, v in shares.items() if k.startswith(f"perfect reader of {who}"))
        for who in ("both", "the primary", "all ten")
    )
    assert 97 > both > 85 > primary > 65 and primary > ten > 55
    assert shares["annotator, 10 branches"] > shares["annotator, 1 branch"]


def test_claims_by_hand() -> None:
    """Whoever is better is right on all that the others are right on, and more; targets reached exactly are met."""
    values = {("initial", 1): 0.3, ("initial", 10): 0.4, ("sft", 1): 0.4, ("sft", 10): 0.5, ("dpo", 1): 0.6}
    values |= {("dpo", 10): 0.6, ("surface", 0): 0.2}
    named = {"consistency": 0.93, "n": 200, "unreadable_verdicts": 0}
    found = {
        key: {**named, "agreement": a, "generated_tokens": 700 if key[1] == 10 else 105} for key, a in values.items()
    }
    right = {key: [i < round(200 * a) for i in range(200)] for key, a in values.items()}
    told = claims([Seed(rows=found, right=right, one=0.75, both=0.80)])
    assert all(claim.met for claim in told)
    assert "- dpo@1 at least 80% of a perfect reader of one criterion: 80.0%: **met** (1 of 1 seeds)" in map(str, told)
    right["dpo", 1], found["dpo", 1]["agreement"] = right["sft", 10], 0.5
    missed = [c.text for c in claims([Seed(rows=found, right=right, one=0.75, both=0.80)]) if not c.met]
    assert any(text.startswith("dpo@1 above sft@1 by at least 12 points: +10.0") for text in missed)
