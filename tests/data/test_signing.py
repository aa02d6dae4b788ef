"""Signatures by the executor: the same dialogues in the same order, whoever signs them and whenever they come."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from judgetrain.artifacts.config import ExecutorConfig
from judgetrain.artifacts.executors.base import Executor, LocalExecutor, make_executor
from judgetrain.data import dedup
from judgetrain.data.config import BenchmarkConfig, DialoguesConfig, DialogueSourceConfig, SourceConfig
from judgetrain.data.dedup import signature, signed
from tests.builders.data import run_dialogues, write_lines
from tests.builders.executors import Elsewhere

WORDS = [f"{word} {number}" for word in ("why", "is", "the", "sky", "blue", "over") for number in range(30)]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "CHUNK", 7)


@pytest.mark.parametrize("executor", [LocalExecutor, Elsewhere])
def test_items_come_in_their_order_with_the_signatures_of_their_texts(executor: Callable[[], Executor]) -> None:
    items = list(range(40))
    found = list(signed(items, lambda i: [f"text {i}", f"text {i // 2}"] if i % 3 else [], executor()))
    assert [item for item, _ in found] == items
    for i, signatures in found:
        for text in (f"text {i}", f"text {i // 2}") if i % 3 else ():
            assert signatures[text].digest() == signature(text).digest()


def test_a_text_is_signed_once_in_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    times: Counter[str] = Counter()
    monkeypatch.setattr(dedup, "signature", lambda text: times.update([text]))
    list(signed(range(7), lambda i: ["one", "one", f"text {i // 2}"], LocalExecutor()))
    assert set(times.values()) == {1} and len(times) == 5


def test_no_more_is_read_than_a_chunk_ahead() -> None:
    numbers = count()
    for item, _ in signed(numbers, lambda i: [str(i)], LocalExecutor()):
        if item == 20:
            break
    assert next(numbers) == 21


def configured(root: Path) -> DialoguesConfig:
    """Dialogues of which some are duplicates, near-duplicates, too long, or hold a benchmark's query."""
    draw = random.Random(5)
    queries = [" ".join(draw.choices(WORDS, k=20)) for _ in range(60)]
    queries += [f"{draw.choice(queries)} please" for _ in range(15)] + draw.choices(queries, k=5) + [queries[0] * 9]
    draw.shuffle(queries)
    asked = [{"query": f"Well, {query}", "response_a": "x", "response_b": "y", "label": "A"} for query in queries[:5]]
    held_out = SourceConfig(name="bench", type="comparisons", path=write_lines(root / "bench.jsonl", asked))
    source = DialogueSourceConfig(
        name="src", path=write_lines(root / "in.jsonl", [{"query": query} for query in queries])
    )
    return DialoguesConfig(
        [source],
        near_dedup=True,
        max_query_chars=600,
        decontaminate=[BenchmarkConfig(name="held-out", source=held_out)],
    )


def left(root: Path, executor: Executor) -> tuple[dict[str, str], Counter[str]]:
    """What the stage writes, and what it drops."""
    root.mkdir()
    settings = configured(root)
    out = run_dialogues(root, settings, executor)
    files = {path.name: path.read_text() for path in out.directory.glob("*.jsonl")}
    return files, Counter(out.totals()["counts"]["dropped"])


@pytest.fixture
def ray() -> Iterator[Executor]:
    """Two workers of Ray, where it is installed."""
    executor = make_executor(ExecutorConfig(type="ray", workers=2))
    yield executor
    executor.close()


def check(executor: Executor, root: Path) -> None:
    here, there = left(root / "here", LocalExecutor()), left(root / "there", executor)
    assert there == here
    assert all(here[1][why] for why in ("near_duplicate", "duplicate", "contaminated", "too_long")), here[1]


def test_the_same_dialogues_are_left_wherever_they_are_signed(tmp_path: Path) -> None:
    executor = Elsewhere()
    check(executor, tmp_path)
    assert len(executor.carried) == 1 and executor.carried[0] < 2**12


@pytest.mark.ray
def test_ray_workers_leave_the_same_dialogues(tmp_path: Path, ray: Executor) -> None:
    check(ray, tmp_path)


def test_nobody_is_asked_where_no_signature_is_looked_at(tmp_path: Path) -> None:
    executor, settings = Elsewhere(), configured(tmp_path)
    settings.near_dedup, settings.decontaminate = False, []
    run_dialogues(tmp_path, settings, executor)
    assert not executor.carried


def test_signatures_that_were_sent_are_found_like_those_made_here() -> None:
    sent = pickle.loads(pickle.dumps(signature(WORDS[0])))
    index = dedup.NearIndex()
    assert index.add(WORDS[0], lambda _: sent) and not index.add(WORDS[0])
