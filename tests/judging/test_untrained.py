"""``recipe=untrained``: what a base that never learned to judge says, and how that is told."""

from dataclasses import replace
from pathlib import Path

import pytest

from judgetrain.artifacts.console import Console
from judgetrain.judges.kinds.aggregation import Rule, verdict
from judgetrain.judging import stage as judging
from judgetrain.judging.rows import verdict_report
from judgetrain.pipeline.run import Pipeline
from tests.builders.data import write_lines
from tests.builders.label import tree_of
from tests.builders.pages import parse
from tests.builders.pipeline import configured

RUBRIC = "- {name: time, text: says how long it takes, weight: 3}\n- {name: tone, text: is polite}\n"


def rows(tmp_path: Path) -> str:
    texts = [("use cups of warm water .", "no ."), ("the map will be ready .", "fun ."), ("it is cheap .", "it is .")]
    values = [
        {"query": f"how do i cook cake {i} ?", "response_a": a, "response_b": b} for i, (a, b) in enumerate(texts)
    ]
    return write_lines(tmp_path / "mine.jsonl", values)


def test_who_judged_by_what_weights_is_said_and_a_small_margin_is_a_tie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rubric = tmp_path / "rubric.yaml"
    rubric.write_text(RUBRIC)
    words = ["recipe=untrained", "train.base.path=world", f"verdicts.source.path={rows(tmp_path)}"]
    words += [f"criteria={rubric}", f"output_dir={tmp_path / 'out'}", "stage=judge"]
    directory = Pipeline(configured(*words), Console()).run("judge")
    printed = capsys.readouterr().out
    assert "kept after every row" in printed
    page = parse((directory / "verdicts.html").read_text()).text()
    for text in (printed, page):
        assert "at chance" in text and "time (weight 3), tone (weight 1)" in text
        assert "he judge is world, which never learned to judge" in text


@pytest.mark.parametrize(("difference", "expected"), [(0.05, "tie"), (0.49, "tie"), (0.6, "A")])
def test_a_twentieth_of_a_level_is_a_tie(difference: float, expected: str) -> None:
    (criterion,) = tree_of(("A?",)).criteria
    (guideline,) = criterion.guidelines
    # Texts that both say 1: what the model might say differs by less than half a level.
    judgments = tuple(replace(one, score_a=1.0 + difference, score_b=1.0) for one in guideline.judgments[:1])
    criterion = replace(criterion, guidelines=(replace(guideline, judgments=judgments),))
    tie = configured("recipe=untrained").judge.tie
    assert verdict([criterion], "AB", Rule(True, tie)) == expected


def test_a_run_that_is_stopped_keeps_the_rows_that_it_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["recipe=untrained", "train.base.path=world", f"verdicts.source.path={rows(tmp_path)}", "stage=judge"]
    config = configured(*words, f"output_dir={tmp_path / 'out'}")
    shard_of = judging.shard_of

    def stopped_at_the_third(*arguments: object) -> object:
        process = shard_of(*arguments)  # type: ignore[arg-type]

        def shard(index: int, items: object) -> object:
            if index == 2:
                raise KeyboardInterrupt
            return process(index, items)  # type: ignore[arg-type]

        return shard

    monkeypatch.setattr(judging, "shard_of", stopped_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        Pipeline(config, Console()).run("judge")
    (file,) = tmp_path.glob("out/artifacts/judge/*/verdicts.jsonl")
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("ends", "ties", "coin"),
    [
        ((0.4, 0.6), 0, "50%"),
        ((0.2, 0.45), 0, "50%"),
        ((0.55, 0.8), 0, ""),
        # A coin is right of half of the 24 labels that are no ties: 12 of 40.
        ((0.4, 0.6), 16, ""),
        ((0.2, 0.45), 16, "30%"),
    ],
)
def test_an_agreement_that_a_coin_may_have_is_said_to_be(ends: tuple[float, float], ties: int, coin: str) -> None:
    summary = {
        "judge": "base", "rows": 40, "verdicts": {"A": 20, "B": 20, "unreadable": 0}, "failures": {}, "unreadable": {},
        "consistency": 1.0, "labelled": 40, "agreed": 20, "labelled_ties": ties, "labelled_prompts": 40,
        "agreement_ci": ends, "calls": 0, "decisions": None, "spent": {}, "partly_read": 0,
    }  # fmt: skip
    text = "\n".join(str(line) for line in verdict_report(summary))
    assert ("chance" in text) == bool(coin)
    assert f"not shown to be above chance, as a coin agrees with {coin}" in text or not coin
