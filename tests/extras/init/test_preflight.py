"""``stage=preflight``: everything that is missing at once, and estimates that add up."""

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.engines.config import ModelConfig, engines_in
from judgetrain.extras.init import preflight, rehearsal
from judgetrain.extras.init.preflight import Play
from judgetrain.extras.init.rehearsal import Ledger, Rehearsed, RehearsedConfig, reply
from judgetrain.pipeline.run import Pipeline
from tests.builders.pipeline import configured, here


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    words = "recipe=pairs", f"data_dir={tmp_path}", "train.base.path=./no-model", "teacher=given"
    for stage in ("preflight", "evaluate"):
        done = here(f"stage={stage}", *words, "cluster.encoder=./no-encoder", f"output_dir={tmp_path / 'o'}")
        assert done.returncode == 2
        for key in ("dialogues.sources[0].path", "train.base.path=./no-model", "cluster.encoder=./no-encoder"):
            assert len(re.findall(re.escape(key), done.stderr)) == 1, done.stderr
    assert not (tmp_path / "o" / "artifacts").exists()


def asked(i: int, criterion: str, *responses: str) -> Request:
    a, b = responses or ("left", "right")
    return Request(
        messages=(),
        sampling=Sampling(max_new_tokens=6 + i % 5 * 4, candidates=("1", "2", "3", "4", "5")),
        step="judgment",
        slots={"response_a": a, "response_b": b, "criterion": criterion},
    )


def test_one_pretended_judge_judges_by_chance_and_one_is_sure() -> None:
    # The sure one says the same of either order; of two responses most of its criteria agree, as a rule.
    share = []
    for n in range(40):
        counts = [reply(asked(0, str(i), f"x{n}", f"y{n}"), i, True).count("A is") for i in range(20)]
        back = [reply(asked(0, str(i), f"y{n}", f"x{n}"), -i, True).count("A is") for i in range(20)]
        assert [1 - prompt for prompt in back] == counts
        share.append(max(sum(counts), sum(back)) / 20)
    assert 0.65 < fmean(share) < 0.95
    assert 120 < sum(reply(asked(0, "one"), draw, False).count("A is") for draw in range(300)) < 180


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say how long a thread waited for a core")
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_clock_stands_still_while_others_use_the_core(in_thread: bool) -> None:
    """A caller that sleeps until a thread of its own has computed loses what that thread lost."""
    took: list[float] = []
    computed = threading.Event()
    looked = threading.Event()
    if not in_thread:
        looked.set()

    def compute() -> None:
        began = time.thread_time()
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 1_000_000)
        took.append(time.thread_time() - began)
        computed.set()
        # Threads of a matrix product go on, too: what an ended one waited is not to be read any more.
        looked.wait()

    cores = os.sched_getaffinity(0)
    lost = rehearsal.Lost()
    # The other process has the same core, and so takes half of it or more.
    os.sched_setaffinity(0, {min(cores)})
    other = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        began = time.monotonic()
        lost_before = lost()
        if in_thread:
            threading.Thread(target=compute).start()
            computed.wait()
        else:
            compute()
        passed = time.monotonic() - began
        lost_here = lost() - lost_before
    finally:
        looked.set()
        other.kill()
        other.wait()
        os.sched_setaffinity(0, cores)
    assert passed > 1.3 * took[0]
    assert passed - lost_here == pytest.approx(took[0], rel=0.2)


def cost(tokens: Sequence[tuple[int, int]]) -> float:
    """Return what the engine below takes for a batch of eight at most: by steps, prompt tokens and new tokens."""
    new = [n for _, n in tokens]
    return 0.1 * max(max(new), sum(new) / min(8, len(new))) + 0.001 * sum(p for p, _ in tokens) + 0.01 * sum(new)


class Timed:
    """An engine that moves a clock by what it costs to write texts half as long as they may be."""

    max_context = 100
    tokenizer = None

    def __init__(self) -> None:
        self.now = 0.0

    def generate(self, requests: list[Request], seed: int) -> list[Completion]:
        done = [
            Completion(
                text="?",
                finish_reason="stop",
                prompt_tokens=len(request.slots["criterion"]),
                generated_tokens=max(1, request.sampling.max_new_tokens // 2),
            )
            for request in requests
        ]
        self.now += cost([(request.prompt_tokens, request.generated_tokens) for request in done])
        return done


@pytest.mark.parametrize("number", [3, 100])
def test_what_is_not_asked_counts_by_its_length(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short prompts are asked first, for a few tokens; long prompts and answers are reckoned with."""
    engine = Timed()
    ledger = Ledger("base", batch=8, lengths={"judgment": [5, 7]})
    prompts = [((*range(80), last), 4) for last in (1, 2, 2)]
    assert ledger.sizes(prompts) == [4, 82, 12], "what prompts begin with alike is read once"
    ledger.engine = engine
    monkeypatch.setattr(rehearsal, "now", lambda: engine.now)
    texts = [(i % 7 + i * 9) * "x" for i in range(number)]
    fits = {i: (i,) * len(text) for i, text in enumerate(texts)}
    monkeypatch.setattr(rehearsal, "encode", lambda requests, *_: (fits, {}))
    requests = [asked(i, text) for i, text in enumerate(texts)]
    completions = Rehearsed(RehearsedConfig(model=ModelConfig("judge"), ledger=ledger)).generate(requests, 0)
    measured = len(ledger.answers["judgment", False, False])
    assert measured <= min(number, 24)
    sizes = [(len(text), min(5 + i % 2 * 2, 6 + i % 5 * 4)) for i, text in enumerate(texts)]
    few = number == 3  # two batches do not say what step, prompt token and new token take
    assert ledger.pending + engine.now == pytest.approx(cost(sizes), rel=0.1 if few else 1e-3)
    assert sum(ledger.cut.values()) == sum(i % 2 == 1 and i % 5 == 0 for i in range(number))
    for completion in completions:
        first, second = re.findall(r"Score: (\d)", completion.text)
        assert {first, second} == {"2", "4"}
        assert [choice.probabilities.index(1.0) + 1 for choice in completion.choices] == [int(first), int(second)]


def test_scores_alone_are_measured_by_themselves_and_nothing_of_them_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of the same step were asked before, for as long as is enough: they take longer than one pass."""
    engine = Timed()
    ledger = Ledger("base", batch=8, lengths={"judgment": [5, 7]})
    ledger.engine = engine
    monkeypatch.setattr(rehearsal, "now", lambda: engine.now)
    texts = [(i % 7 + i * 9) * "x" for i in range(100)]
    fits = {i: (i,) * len(text) for i, text in enumerate(texts)}
    monkeypatch.setattr(rehearsal, "encode", lambda requests, *_: (fits, {}))
    rehearsed = Rehearsed(RehearsedConfig(model=ModelConfig("judge"), ledger=ledger))
    judgments = [
        replace(asked(i, text), step="score", slots={"response": "x", "criterion": text})
        for i, text in enumerate(texts)
    ]
    rehearsed.generate(judgments, 0)
    cut_before = ledger.cut.copy()
    seconds_before = ledger.pending + engine.now
    alone = Sampling(max_new_tokens=1, candidates=("1", "2", "3", "4", "5"))
    scores = [replace(request, sampling=alone, begins="Score:") for request in judgments]
    completions = rehearsed.generate(scores, 0)
    assert {completion.generated_tokens for completion in completions} == {1}
    assert ledger.cut == cut_before
    assert ledger.answers["score", False, True], "the model was asked for some of them"
    expected = cost([(len(text), 1) for text in texts])
    assert ledger.pending + engine.now - seconds_before == pytest.approx(expected, rel=0.05)


PAID = "{type: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}"


def test_nothing_that_may_be_paid_for_is_asked(tmp_path: Path) -> None:
    models = f"responses.models=[{{name: a, engine: {PAID}}}, {{name: b, engine: {PAID}}}]"
    others = [f"{place}={PAID}" for place in ("teacher.engine", "label.external.engine", "evaluate.external")]
    methods = "evaluate.methods=[dpo,pairwise:external,external,pairwise:teacher]"
    config = configured("recipe=debug", models, *others, "label.source=external", methods)
    play = Play(config, "evaluate", tmp_path)

    def paid(pipeline: Pipeline) -> list[str]:
        stages = "responses", "teacher", "label", "evaluate"
        return [stage for stage in stages if any(e.paid for e in engines_in(pipeline.settings(stage)))]

    assert paid(Pipeline(config)) == ["responses", "teacher", "label", "evaluate"]
    assert paid(play._played) == []


@pytest.mark.parametrize("until", [0.0, math.inf])
def test_a_run_is_played_through_and_nothing_of_it_stays(
    until: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the time is over before the model was asked, it is asked once, and all else is reckoned.
    words = "recipe=debug", "track.tracker=none", "evaluate.methods=[base,dpo]", f"output_dir={tmp_path / 'out'}"
    config = configured(*words, "label.source=external", f"label.external.engine={PAID}")
    play = Play(config, "evaluate", tmp_path / "played", until)
    play.run()
    stages = ["dialogues", "cluster", "responses", "teacher", "initial", "tree", "label", "sft", "reference", "dpo"]
    assert [*play.seconds] == [*stages, "evaluate"]
    assert all(
        len(stage_seconds) == 1 + (stage in stages[5:])
        for stage, stage_seconds in play.seconds.items()
        if stage != "evaluate"
    )
    assert all(seconds >= 0 for stage_seconds in play.seconds.values() for seconds in stage_seconds)
    assert min(play.seconds["tree"]) > 0 and (len(play.ledger.seen) == 1) == play.ledger.late == (not until)
    assert play.of["label"] == "and what referee takes" and play.of["initial"].endswith("tokens each")
    assert (play.of["teacher"], play.of["tree"]) == ("24 comparisons", "16 trees")
    assert set(play.more.values()) == {1.0}, "all is played"
    by_chance, sure = play.counts["sft"]
    assert by_chance < sure
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(preflight, "lost", lambda: play._busy + 30)
    page_lines = "\n".join(map(str, play.lines(60)))
    assert "50% of the time, which is not counted: if they go on, a run takes 2.0 times as long" in page_lines
    assert ("the time was over" in page_lines) == (not until)


def test_single_responses_are_counted_among_what_is_measured(tmp_path: Path) -> None:
    rows = [json.dumps({"query": f"q{i}", "response": f"answer {i}", "label": i % 2}) for i in range(500)]
    (tmp_path / "rated.jsonl").write_text("\n".join(rows))
    benchmarks = f"evaluate.benchmarks=[{{name: mine, source: {{path: {tmp_path / 'rated.jsonl'}}}}}]"
    config = configured("recipe=debug", benchmarks, "judge.reads=one", "evaluate.methods=[initial]")
    play = Play(config, "evaluate", tmp_path / "played")
    play._note_benchmarks()
    assert play.of["evaluate"] == "1 method, 500 responses"
    assert play.more["evaluate"] == 500 / preflight.ROWS
