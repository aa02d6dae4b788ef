"""ProbDiff with scripted revisions and real log-probabilities, each recomputed the plain way; confidence by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgetrain.engines.base import Completion, Request
from judgetrain.errors import ConfigError
from judgetrain.scorers.config import ScorerConfig
from judgetrain.scorers.encode import Sample, Tokens, Unscored
from judgetrain.scorers.probdiff import Discrepancy, average, confidence, confidence_sweep, discrepancies
from judgetrain.scorers.statistics import TokenScorer
from tests.builders import scorers as plain

CAT = ({"role": "user", "content": "the cat"},)
DOG = ({"role": "user", "content": "list a dog"},)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    return plain.prompt_set(tmp_path, full="F|{prompt}|{response}", simple="S|{prompt}|{response}")


class Reviser:
    """Writes what a table says about the response it is shown."""

    def __init__(self, table: dict[str, str]) -> None:
        self.table, self.requests = table, []  # type: ignore[var-annotated]

    def generate(self, requests: Sequence[Request], seed: int) -> list[Completion]:
        self.requests += requests
        done = []
        for request in requests:
            shown = request.messages[0]["content"].rsplit("|", 1)[1]
            text = self.table[shown]
            reason = "length" if text.endswith("…") else "stop"
            done.append(Completion(text=text.rstrip("…"), prompt_tokens=7, generated_tokens=3, finish_reason=reason))  # type: ignore[arg-type]
        return done


def logprob(scorer: TokenScorer, prompt: Any, text: str) -> float:
    (tokens,) = scorer.encode([Sample(prompt, text)])
    assert isinstance(tokens, Tokens)
    return float(plain.statistics(scorer.model, tokens)["logprob"].mean())


@pytest.fixture
def revising(scorer: TokenScorer, monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(table: dict[str, str]) -> Reviser:
        reviser = Reviser(table)
        monkeypatch.setitem(vars(scorer), "engine", reviser)
        return reviser

    return use


def test_discrepancy_is_the_difference_of_mean_logprobs_of_one_prompt(
    scorer: TokenScorer, revising: Any, prompts: str
) -> None:
    reviser = revising({"the dog sat": " a fast dog \n", "mat": "mat"})
    samples = [Sample(CAT, "the dog sat"), Sample(DOG, " mat\n")]
    differences = discrepancies(scorer, samples, ScorerConfig(prompts=prompts))
    expected = logprob(scorer, CAT, "a fast dog") - logprob(scorer, CAT, "the dog sat")
    assert isinstance(differences[0], Discrepancy) and isinstance(differences[1], Discrepancy)
    assert differences[0].d == pytest.approx(expected, abs=1e-5)
    assert differences[0].revision == "a fast dog"
    assert differences[1].d == 0.0, "a response that is left as it is has no discrepancy"
    assert [r.messages[0]["content"] for r in reviser.requests] == ["F|the cat|the dog sat", "F|list a dog|mat"]
    assert {(r.sampling.temperature, r.sampling.max_new_tokens) for r in reviser.requests} == {(0.1, 256)}


def test_what_gives_no_revision_is_counted_and_the_rest_scored(
    scorer: TokenScorer, revising: Any, prompts: str
) -> None:
    reviser = revising({"the dog": "", "a cat": "the cat " * 300, "mat": "mat and…"})
    samples = [Sample(CAT, text) for text in ("", "the dog", "a cat", "mat")]
    differences = discrepancies(scorer, samples, ScorerConfig(prompts=prompts))
    assert differences[:3] == [Unscored("empty_response"), Unscored("no_revision"), Unscored("revision_too_long")]
    assert isinstance(differences[3], Discrepancy) and differences[3].cut
    assert len(reviser.requests) == 3


def test_an_unknown_revision_prompt_is_refused(scorer: TokenScorer, prompts: str) -> None:
    with pytest.raises(ConfigError, match="full, simple"):
        discrepancies(scorer, [], ScorerConfig(revision_prompt="short", prompts=prompts))


def test_real_revisions_are_the_same_for_a_seed(scorer: TokenScorer, prompts: str) -> None:
    samples = [Sample(CAT, "the dog sat on"), Sample(DOG, "a mat")]
    settings = ScorerConfig(revision_temperature=1.0, max_new_tokens=8, prompts=prompts)
    one, two = (discrepancies(scorer, samples, settings, seed=3) for _ in range(2))
    assert one == two
    assert one != discrepancies(scorer, samples, settings, seed=4)


def test_revisions_may_have_the_temperature_of_what_they_revise(
    scorer: TokenScorer, revising: Any, prompts: str
) -> None:
    """Appendix D, table 9: the second round's temperature consistent with the first."""
    reviser = revising({"the dog sat": "mat", "mat": "list"})
    samples = [Sample(CAT, "the dog sat", temperature=0.7), Sample(DOG, "mat", temperature=0.0)]
    settings = ScorerConfig(revision_temperature=None, prompts=prompts)
    discrepancies(scorer, samples, settings)
    assert [r.sampling.temperature for r in reviser.requests] == [0.7, 0.0]
    with pytest.raises(ConfigError, match="revision_temperature=null: the temperature .* is not known"):
        discrepancies(scorer, [Sample(CAT, "mat")], settings)


D = [0.2, -0.05, -0.06, None, -0.2, 0.0]


def test_confidence_at_the_papers_thresholds() -> None:
    assert confidence(D) == 3 / 5
    assert confidence_sweep(D) == {0.0: 2 / 5, -0.05: 3 / 5, -0.1: 4 / 5}
    assert confidence([None]) is None and average([None]) is None
    assert average(D) == pytest.approx(-0.022)
