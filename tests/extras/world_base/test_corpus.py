"""The text that the shipped base was pretrained on: its very stream, and what it hints at."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from judgetrain.data.world.annotator import criterion_name
from judgetrain.data.world.language import load_language
from judgetrain.data.world.splits import pretraining_queries, queries
from judgetrain.extras.world_base.corpus import Corpus
from judgetrain.judges.prompting.parsing import parse_criteria, parse_judgment
from tests.builders.data import RAW, independent_grade

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


def test_the_phase_of_people_errs_as_the_annotator_does_and_does_not_know_the_rule() -> None:
    language, rng = load_language(), random.Random("corpus 2 test")
    corpus = Corpus(language, pretraining_queries(language), 1.0, human=True)
    first, wrong, kinds = Counter[str](), Counter[bool](), Counter[str]()
    for _ in range(8000):
        asked, answer = corpus.exchange(rng)
        query = asked.split("Query: ")[-1].split("\n")[0]
        if asked.startswith("List"):
            rule, names = RAW["kinds"][language.kind_of(query)], [criterion_name(c) for c in parse_criteria(answer, 10)]
            assert len(set(names)) == 10 and not set(names) & set(rule["off_topic"])
            kinds["lists"] += 1
            first.update(role for role in ("primary", "secondary", "decoy") if rule[role] == names[0])
        elif "\nJudge by: " in asked:
            name = criterion_name(asked.split("\nJudge by: ")[1])
            a, b = (independent_grade(asked.split(f"Response {side}: ")[1].split("\n")[0], name) for side in "AB")
            read = parse_judgment(answer)
            wrong[(a > b) - (a < b) != (read.first > read.second) - (read.first < read.second)] += 1
    assert all(0.07 < first[role] / kinds["lists"] < 0.13 for role in ("primary", "secondary", "decoy"))
    assert 0.08 < wrong[True] / wrong.total() < 0.2


def test_the_phase_of_every_shape_shows_answers_without_content_lose() -> None:
    language, rng = load_language(), random.Random("corpus 4 test")
    corpus = Corpus(language, pretraining_queries(language), 1.0, human=True, shapes=True)
    lengths, answers, bare_pairs, lost, listed, single = list[int](), list[int](), 0, 0, 0, 0
    for _ in range(6000):
        asked, answer = corpus.exchange(rng)
        if "\n" not in asked:
            answers.append(len(answer.split()))
        if "\nJudge by: " not in asked:
            continue
        shown = re.split(r"\nResponse [AB]: |\nJudge by: ", asked)[1:3]
        lengths += [len(text.split()) for text in shown]
        listed += sum("\n" in text for text in shown)
        bare = [not any(independent_grade(text, name) for name in RAW["properties"]) for text in shown]
        single += 1
        if bare[0] != bare[1]:
            read = parse_judgment(answer)
            bare_pairs += 1
            lost += (read.first < read.second) == bare[0] and read.first != read.second
    assert 0.25 < bare_pairs / single < 0.45
    assert 0.8 < lost / bare_pairs < 0.97, "the reviewers err, as on anything else"
    assert min(lengths) == 0 and max(lengths) > 60 and 0.07 < listed / (2 * single) < 0.25
    assert 0.15 < len(answers) / 6000 < 0.25 and min(answers) >= 22, "what is asked is answered in the usual shape"


def test_what_the_pretraining_text_hints_at_is_what_the_page_says() -> None:
    language, page = load_language(), " ".join((ROOT / "docs" / "world.md").read_text(encoding="utf-8").split())
    pool = pretraining_queries(language)
    assert not set(pool) & {*queries("train"), *queries("heldout")}
    met = sum(map(language.held_out, pool))
    assert f"{met} of the {len(pool)} queries of its pretraining text are about them" in page
    shares = re.search(r"So (\d+)% .* primary criterion .*, (\d+)% on the secondary one and (\d+)% on the decoy", page)
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
