"""The text that the shipped base was pretrained on: its very stream, and what it hints at (docs/world.md)."""

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
    """Hashes of 3,000 exchanges of each phase's text, since reviews name guideline and criterion last."""
    pool = pretraining_queries(load_language())
    assert hashlib.sha256("\n".join(pool).encode()).hexdigest().startswith("6eaf7c45ba2e7e88")
    for settings, expected in (
        ((0.0,), "680c8fa30b605605"),
        ((0.7,), "e8f1f75fd835c440"),
        ((1.0, True), "c42c0d86e4773f58"),
        ((1.0, True, True), "ab8d352e58b8134a"),
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
            if asked.startswith("Review") and "\nCriterion: " in asked:
                rule = RAW["kinds"][language.kind_of(asked.split("Query: ")[1].split("\n")[0])]
                name = criterion_name(asked.split("\nCriterion: ")[1])
                found[next((role for role in ("primary", "secondary", "decoy") if rule[role] == name), "other")] += 1
        for role, said in zip(("primary", "secondary", "decoy"), shares.groups(), strict=True):
            assert 100 * found[role] / found.total() == pytest.approx(int(said), abs=2.5), (human, role)
