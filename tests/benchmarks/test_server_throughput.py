"""The benchmark of the server: many clients get several times as many verdicts, and requests leave no memory behind."""

from __future__ import annotations

from pathlib import Path

from judgetrain.schema import Comparison
from tests.benchmarks.server_throughput import MIB, Throughput, memory, seconds, throughput
from tests.builders.served import SLOW, served


def test_64_clients_get_at_least_three_times_what_one_gets(tmp_path: Path) -> None:
    """Of a judge that takes as long for a batch as for one comparison, as models with idle units do."""
    rows = [Comparison.of(f"query {i}", "a" * (i % 5), "bb") for i in range(264)]
    with served([*SLOW, str(tmp_path), "0", "0.2"], tmp_path / "log") as server:
        seconds(server.url, rows[:8], 8)
        part = rows[8:40]
        one = seconds(server.url, part, 1)
        many = seconds(server.url, rows[40:], 64)
        found = Throughput(len(part) / one, (len(rows) - 40) / many)
    assert found.times >= 3, found
    judged = (tmp_path / "judged.txt").read_text().split()
    assert sorted(judged) == sorted(row.id for row in rows), "each was judged once"


def test_requests_leave_memory_where_it_was(tmp_path: Path) -> None:
    with served([*SLOW, str(tmp_path), "0", "0"], tmp_path / "log") as server:
        first, last = memory(server, 2000)
    assert last - first < 8 * MIB, f"{first / MIB:.1f} MiB, then {last / MIB:.1f} MiB"


def test_both_halves_are_judged_by_different_rows(tmp_path: Path) -> None:
    rows = [Comparison.of(f"query {i}", "a" * (i % 5), "bb") for i in range(8)]
    with served([*SLOW, str(tmp_path), "0", "0.05"], tmp_path / "log") as server:
        found = throughput(server.url, rows, 4)
    assert found.after_another <= 1 / 0.05 and str(found).endswith("times as many")
    assert len({*(tmp_path / "judged.txt").read_text().split()}) == 8
