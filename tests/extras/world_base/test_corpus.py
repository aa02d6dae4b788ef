"""The text that the shipped base was pretrained on: its very stream, and what it hints at (docs/world.md)."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from judgetrain.data.world import pretraining_queries, queries
from judgetrain.data.world.engine import criterion_name
from judgetrain.data.world.language import load_language
from judgetrain.extras.world_base.corpus import Corpus
from tests.builders.data import RAW

ROOT = Path(__file__).parents[3]


def test_the_pretraining_text_is_what_the_base_was_made_from() -> None:
    """Hashes of 3,000 exchanges: of faithful text at a75212e, before the world's queries, rule and writers changed, of
    the fourth phase at a4090e2, and of those of every shape, with dialogues, at 2297f26."""
    pool = pretraining_queries(load_language())
    assert hashlib.sha256("\n".join(pool).encode()).hexdigest().startswith("6eaf7c45ba2e7e88")
    for settings, expected in (
        ((0.0,), "b52304ec7e87530a"),
        ((0.7,), "35483eca02c27d34"),
        ((1.0, True), "4ae5a366606001ca"),
        ((1.0, True, True), "93730ee9f0c287de"),
    ):
        corpus, rng, digest = Corpus(load_language(), pool, *settings), random.Random("corpus 1 test"), hashlib.sha256()
        for _ in range(3000):
            digest.update("\0".join(corpus.exchange(rng)).encode())
        assert digest.hexdigest().startswith(expected)


def test_what_the_pretraining_text_hints_at_is_what_the_page_says() -> None:
    language, page = load_language(), " ".join((ROOT / "docs" / "world.md").read_text(encoding="utf-8").split())
    pool = pretraining_queries(language)
    assert not set(pool) & {*queries("train"), *queries("heldout")}
    met = sum(map(language.held_out, pool))
    assert f"{met} of the {len(pool)} queries of its pretraining text" in page
    shares = re.search(
        r"(\d+)% are on the primary criterion .*, (\d+)% on the secondary one and (\d+)% on the decoy", page
    )
    assert shares is not None
    for human in (False, True):
        corpus, rng, found = Corpus(language, pool, 1.0, human), random.Random("corpus 3 test"), Counter[str]()
        for _ in range(12_000):
            asked, _ = corpus.exchange(rng)
            if "\nJudge by: " in asked:
                rule = RAW["kinds"][language.kind_of(asked.split("Query: ")[1].split("\n")[0])]
                name = criterion_name(asked.split("\nJudge by: ")[1])
                found[next((role for role in ("primary", "secondary", "decoy") if rule[role] == name), "other")] += 1
        for role, said in zip(("primary", "secondary", "decoy"), shares.groups(), strict=True):
            assert 100 * found[role] / found.total() == pytest.approx(int(said), abs=2.5), (human, role)
