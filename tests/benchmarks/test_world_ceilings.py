"""The table of ceilings and floors, on the world itself: what a perfect reader reaches, and what reads nothing."""

from __future__ import annotations

from judgetrain.data.config import WorldConfig
from judgetrain.data.world import eval_comparisons
from tests.benchmarks.world_ceilings import line, reader, rows
from tests.builders.data import RAW, independent_grade

COMPARISONS = eval_comparisons(WorldConfig(eval_comparisons=240), 3)


def test_a_perfect_reader_is_a_loop_over_the_text() -> None:
    for found, comparison in zip(reader(COMPARISONS, lambda kind: kind.crucial), COMPARISONS, strict=True):
        votes = 0
        for role in ("primary", "secondary"):
            name = RAW["kinds"][comparison.group][role]
            a, b = (independent_grade(text, name) for text in (comparison.response_a, comparison.response_b))
            votes += (a > b) - (a < b)
        assert found[0] == found[1] == ("tie" if votes == 0 else "A" if votes > 0 else "B")


def test_ceilings_stand_above_floors() -> None:
    """Two crucial criteria above one, one above the annotator, whose many branches are above one; no floor tells."""
    shares = {}
    for name, verdicts in rows(COMPARISONS):
        cells = line(name, verdicts, COMPARISONS).split("|")
        shares[name] = [float(cell) for cell in cells[2:5]]
    both, primary, ten = (
        next(v for k, v in shares.items() if k.startswith(f"perfect reader of {who}"))
        for who in ("both", "the primary", "all ten")
    )
    assert 85 < both[0] < 97
    assert 65 < primary[0] < 85
    assert primary[0] > ten[0] > 55
    assert shares["annotator, 10 branches"][0] > shares["annotator, 1 branch"][0]
    assert shares["ensemble's labels, of the annotator's trees"][0] > 50
    # Half of 184 decided comparisons: standard error 3.7. A consistent rule that knows nothing has half of them.
    assert abs(shares["`longer`"][1] - 48) < 12
    assert abs(shares["`surface`"][1] - 50) < 12
    assert shares["always a tie: the share of true ties"][1] == 0
