"""Candidates' probabilities out of reported log-probabilities."""

from __future__ import annotations

import math

import pytest

from judgetrain.engines.base import Choice, choices_of

DIGITS = ("1", "2", "3", "4", "5")
RANKED = [(" 4", math.log(0.5)), ("5", math.log(0.2)), ("4", math.log(0.1)), ("four", math.log(0.2))]


def test_spellings_of_a_candidate_add_up_and_probabilities_are_relative_to_the_candidates() -> None:
    tokens = [("Score:", []), (" 4", RANKED), ("\n", [])]
    [choice] = choices_of(tokens, DIGITS, "Score: 4\n")
    assert choice.at == 7
    assert choice.probabilities == pytest.approx((0, 0, 0, 0.6 / 0.8, 0.2 / 0.8))


def test_what_was_cut_off_or_was_no_candidate_gives_none() -> None:
    tokens = [("Score: ", []), ("7", [("7", 0.0)]), ("###", []), ("4", RANKED)]
    assert list(choices_of(tokens, DIGITS, "Score: 7")) == []
    assert list(choices_of([("4", [("seven", 0.0)])], DIGITS, "4")) == []
    assert list(choices_of([("4", RANKED)], (), "4")) == []
    assert list(choices_of([("4", [("4", 0.0)])], DIGITS, "4")) == [Choice(0, (0, 0, 0, 1.0, 0))]
