"""Scores without reasons (``judge.reasons=false``): the same numbers as with text, from one pass of the model."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from judgetrain.data.config import WorldConfig, WorldEngineConfig
from judgetrain.data.world import eval_comparisons
from judgetrain.engines.answer_tokens import token_ids
from judgetrain.engines.base import Completion, Request, Sampling
from judgetrain.engines.config import ModelConfig, OpenAIEngineConfig, TransformersEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.loading import load_model, load_tokenizer
from judgetrain.engines.local.transformers_engine import TransformersEngine
from judgetrain.engines.prompting import encode, render
from judgetrain.errors import ConfigError, EngineError
from judgetrain.extras.judge_reward import JudgeReward, best_of_n
from judgetrain.extras.server.serve import _settings
from judgetrain.judges import load_judge
from judgetrain.judges.config import JudgeConfig
from judgetrain.judges.kinds.branching import BranchingJudge
from judgetrain.judges.prompting.parsing import SCORE_FRAME, SCORES, Frame
from judgetrain.judges.prompting.prompts import load_prompt_set, prompt_path
from judgetrain.judges.saved import save_settings
from judgetrain.judging.stages import JudgeSettings
from judgetrain.pipeline.run import Pipeline
from judgetrain.schema import Candidates
from tests.builders.pipeline import configured
from tests.extras.export.test_export import learned

CRITERIA = [
    {"name": "Accuracy", "text": "what it says is right", "guideline": "5 if it is right throughout."},
    {"name": "Tone", "text": "it is polite", "guideline": "5 if it is."},
]
COMPARISONS = eval_comparisons(WorldConfig(eval_comparisons=24), 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a judge that has learned to score one response."""
    directory = tmp_path_factory.mktemp("judge") / "model"
    for part in learned():
        part.save_pretrained(directory)
    load_prompt_set("compact").save(directory)
    save_settings(
        JudgeConfig(reads="one", judgment_tokens=48, criteria_tokens=48, guideline_tokens=32), directory, criteria=4
    )
    return directory


def judge(trained: Path, **changes: Any) -> BranchingJudge:
    """Return the judge, asked as its directory says but for some changes."""
    loaded = load_judge(trained, criteria=CRITERIA, **changes)
    assert isinstance(loaded, BranchingJudge)
    return loaded


def test_scores_are_those_that_stand_before_the_reasons(trained: Path) -> None:
    """In float32, to 1e-5; whole judgments that cannot be read behind their score have one here."""
    whole = judge(trained).compare_batch(COMPARISONS)
    alone = judge(trained, reasons=False).compare_batch(COMPARISONS)
    compared = 0
    for with_text, without in zip(whole, alone, strict=True):
        for reason, score in zip(with_text.reasons, without.reasons, strict=True):
            assert score.failure is None and score.text.startswith("Score: ")
            if reason.failure is None:
                assert (score.score_a, score.score_b) == pytest.approx((reason.score_a, reason.score_b), abs=1e-5)
                compared += 1
    assert compared > 20
    spread = {round(prediction.score_a or 0.0, 2) for prediction in alone}
    assert len(spread) > 5, "they differ among responses"


def test_a_score_costs_one_token_and_one_pass(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"passes": 0}
    asked = judge(trained, reasons=False)
    forward = TransformersEngine.generate

    def counted(self: TransformersEngine, requests: list[Request], seed: int) -> list[Completion]:
        counts["passes"] += 1
        completions = forward(self, requests, seed)
        assert all(completion.generated_tokens == 1 for completion in completions)
        assert all(request.begins == "Score: " for request in requests)
        return completions

    monkeypatch.setattr(TransformersEngine, "generate", counted)
    asked.compare_batch(COMPARISONS[:3])
    assert counts["passes"] == 1, "both responses by both criteria are one batch"


def test_all_criteria_of_a_response_are_one_pass_behind_what_they_share(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[tuple[int, ...]] = []
    shapes: list[tuple[int, ...]] = []
    generate = TransformersEngine.generate

    def watched(self: TransformersEngine, requests: list[Request], seed: int) -> list[Completion]:
        prompts.extend(encode(requests, self.tokenizer, self.max_context)[0].values())
        hook = self.model.register_forward_pre_hook(
            lambda _, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
        )
        try:
            return generate(self, requests, seed)
        finally:
            hook.remove()

    asked = judge(trained, reasons=False)
    monkeypatch.setattr(TransformersEngine, "generate", watched)
    comparison = COMPARISONS[0]
    asked.score_batch([Candidates(comparison.id, comparison.dialogue, (comparison.response_a,))])
    first, *others = prompts
    shared = 0
    while all(other[: shared + 1] == first[: shared + 1] for other in others):
        shared += 1
    assert shared > 2 * len(CRITERIA) * 10, "most of what they read"
    rest = max(map(len, prompts)) - shared
    assert shapes == [(1, shared), (len(CRITERIA), rest)]


def test_single_responses_and_the_judges_own_criteria(trained: Path) -> None:
    comparison = COMPARISONS[0]
    group = Candidates(comparison.id, comparison.dialogue, (comparison.response_a, comparison.response_b))
    with_text, without = (judge(trained, reasons=reasons).score_batch([group])[0] for reasons in (True, False))
    assert [score.value for score in without] == pytest.approx([score.value for score in with_text], abs=1e-5)
    own = load_judge(trained, branches=2, reasons=False, retries=0).compare_batch(COMPARISONS[:8])
    assert any(prediction.reasons for prediction in own), "criteria and guidelines are written as ever"


def test_reasons_are_written_when_they_are_asked_for(trained: Path) -> None:
    """In float32 the score is that of the judge without text, to 1e-5."""
    alone = judge(trained, reasons=False, retries=0)
    explained = 0
    for comparison in COMPARISONS[:4]:
        query = comparison.dialogue.user_texts[-1]
        score = alone(query, comparison.response_a)
        reasoned = alone.explain(query, comparison.response_a)
        for short, long in zip(score.reasons, reasoned.reasons, strict=True):
            assert short.text.startswith("Score: ") and len(short.text) == len("Score: 3")
            if long.failure is None:
                assert len(long.text) > len(short.text) and long.score_a == pytest.approx(short.score_a, abs=1e-5)
                assert sum(short.levels or ()) == pytest.approx(1, abs=1e-5)
                explained += 1
    assert explained
    assert not alone.options.reasons, "the judge itself is as it was"


def test_rewards_are_scores_without_text_where_the_judge_gives_them(
    trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are those with text, in float32 to 1e-5, wherever the text could be read."""
    caplog.set_level(logging.INFO, "judgetrain.extras.judge_reward")
    prompts = [c.dialogue.user_texts[-1] for c in COMPARISONS]
    responses = [c.response_a for c in COMPARISONS]
    by_name = JudgeReward(trained, "score", criteria=CRITERIA, retries=0)
    loaded = judge(trained, retries=0)
    by_default = JudgeReward(loaded, "score")
    with_text = JudgeReward(loaded, "score", reasons=True)
    rewards = by_default(prompts, responses)
    assert by_name(prompts, responses) == pytest.approx(rewards, abs=1e-5)
    assert JudgeReward(loaded, "score", reasons=False)(prompts, responses) == rewards
    assert by_default(prompts[:2], responses[:2]) == pytest.approx(rewards[:2], abs=1e-5)
    assert caplog.text.count("rewards are scores without text") == 2, "once for each of the two that chose"
    pairs = zip(with_text(prompts, responses), rewards, strict=True)
    read = [(long, short) for long, short in pairs if long is not None]
    assert len(read) > 8
    for long, short in read:
        assert short == pytest.approx(long, abs=1e-5)
    assert loaded.options.reasons, "the caller's judge is as it was"
    assert len({round(reward or 0.0, 3) for reward in rewards}) > 5


def test_rewards_of_a_judge_that_needs_text_say_so_once(trained: Path, caplog: pytest.LogCaptureFixture) -> None:
    two = judge(trained, reads="two", retries=0)
    reward = JudgeReward(two)
    for _ in range(2):
        reward(["q"] * 2, ["a", "a a"])
    assert caplog.text.count("is asked as it is, with the text that it writes") == 1
    with pytest.raises(ConfigError, match="reasons=false needs a judge that reads one response"):
        JudgeReward(two, reasons=False)(["q"] * 2, ["a", "a a"])
    best_of_n(two, "q", ["a", "a a"])
    assert two.engine.generate([], 0) == [] and two.scores_alone is False, (
        "best_of_n leaves a judge open that was given"
    )


def test_the_beginning_has_the_tokens_that_training_gave_it() -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    model = load_model(ModelConfig(path="world"), "cpu").eval()
    prompts = load_prompt_set("compact")
    messages = prompts.render("score", {"query": "q", "response": "r", "guideline": "g", "criterion": "c"})
    engine = TransformersEngine(TransformersEngineConfig(model=ModelConfig(path="world")), model, tokenizer)
    request = Request(
        messages=messages, sampling=Sampling(temperature=0.0, max_new_tokens=1, candidates=SCORES), begins="Score: "
    )
    ids = encode([request], tokenizer, 512)[0][0]
    text = render(messages, tokenizer)
    assert ids == token_ids(tokenizer, text + "Score: 3")[:-1]
    (completion,) = engine.generate([request], 0)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    scores = [token_ids(tokenizer, text + f"Score: {score}")[-1] for score in SCORES]
    expected = logits[scores].softmax(-1).tolist()
    assert completion.choices[0].probabilities == pytest.approx(expected, abs=1e-4)
    assert completion.prompt_tokens == len(ids)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (SCORE_FRAME, "Score: "),
        (r"Score: [1-5]\n", "Score: "),
        (r"Analysis: [^\n]{1,{width}}\nScore: [1-5]", None),
        (r"(?:Score|Mark): [1-5]\n", None),
    ],
)
def test_words_before_the_score_are_known_or_not(frame: str, words: str | None) -> None:
    assert Frame(frame, responses=1).before_score == words


def test_what_cannot_be_read_so_is_refused_before_anything_is_asked(trained: Path) -> None:
    with pytest.raises(ConfigError, match="reasons=false needs a judge that reads one response"):
        judge(trained, reasons=False, reads="two")
    with pytest.raises(ConfigError, match="leave out score=parsed"):
        judge(trained, reasons=False, score="parsed")


@pytest.mark.parametrize(
    "config", [WorldEngineConfig(name="annotator"), OpenAIEngineConfig(base_url="http://127.0.0.1:9", model="m")]
)
def test_an_engine_that_cannot_go_on_from_a_beginning_says_so(config: Any) -> None:
    assert not config.continues and TransformersEngineConfig().continues
    request = Request(messages=({"role": "user", "content": "q"},), sampling=Sampling(), begins="Score: ")
    assert not make_engine(config).continues and TransformersEngine.continues
    with pytest.raises(EngineError, match="cannot have its model go on from the beginning of a reply"):
        make_engine(config).generate([request], 0)


def test_a_tokenizer_that_writes_a_score_in_several_tokens_is_refused() -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    sampling = Sampling(max_new_tokens=1, candidates=("1", "exactly three cups"))
    request = Request(messages=({"role": "user", "content": "q"},), sampling=sampling, begins="Score: ")
    with pytest.raises(EngineError, match="as one token: a score without reasons"):
        encode([request], tokenizer, 512)


def test_a_stage_and_the_server_choose_for_themselves() -> None:
    words = ["recipe=debug", "verdicts.judge=base", "judge.reads=one"]
    as_judge_says = JudgeSettings.of(configured(*words))
    assert as_judge_says.judge_asked.reasons
    alone = JudgeSettings.of(configured(*words, "verdicts.reasons=false"))
    assert not alone.judge_asked.reasons and alone.judge_asked.reads == "one"
    written = JudgeSettings.of(configured(*words, "judge.reasons=false", "verdicts.reasons=true"))
    assert written.judge_asked.reasons
    served = _settings(configured(*words, "serve.judge=base", "serve.reasons=false"))
    assert not served.judge_asked.reasons


ONE = "judge.reads=one"
SERVER = ("external=openai", "evaluate.external.model=m", "evaluate.external.base_url=http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("stage", "words", "message"),
    [
        (
            "evaluate",
            ["evaluate.methods=[dpo+scores]"],
            r"evaluate.methods='dpo\+scores', \+scores: needs a judge that reads",
        ),
        (
            "evaluate",
            ["evaluate.methods=[dpo]", "judge.reasons=false"],
            "'dpo', judge.reasons=false: needs a judge that",
        ),
        (
            "evaluate",
            ["evaluate.methods=[dpo,external+one+scores]", *SERVER],
            r"'external\+one\+scores', \+scores: evaluate.external.type=openai cannot have its model go on",
        ),
        (
            "judge",
            ["verdicts.judge=external", ONE, "verdicts.reasons=false", *SERVER],
            "verdicts.judge='external', verdicts.reasons=false: evaluate.external.type=openai cannot",
        ),
        (
            "judge",
            ["verdicts.judge=base", ONE, "judge.reasons=false", "judge.score=parsed"],
            "verdicts.judge='base', judge.reasons=false: reads scores by their probabilities",
        ),
    ],
)
def test_scores_alone_that_cannot_be_read_are_refused_before_the_first_stage(
    stage: str, words: list[str], message: str, tmp_path: Path
) -> None:
    pipeline = Pipeline(configured("recipe=debug", f"output_dir={tmp_path}", *words))
    with pytest.raises(ConfigError, match=message) as refusal:
        pipeline.check(stage)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "artifacts").exists()


@pytest.mark.parametrize("judge", ["base", "dpo"])
def test_prompts_whose_reasons_come_first_are_refused_before_the_first_stage(judge: str, tmp_path: Path) -> None:
    source = Path(prompt_path("compact")).read_text()
    reasons_first = tmp_path / "reasons_first.yaml"
    reasons_first.write_text(
        source.replace("\nscore:\n", "\nscore:\n  frame: 'Analysis: [^\\n]{1,{width}}\\nScore: [1-5]'\n")
    )
    assert load_prompt_set(reasons_first).frames["score"].startswith("Analysis"), "the set itself is a good one"
    words = [f"evaluate.methods=[{judge}+one+scores]", f"prompts={reasons_first}"]
    with pytest.raises(ConfigError, match=rf"'{judge}\+one\+scores', \+scores: judgments of .* give reasons before"):
        Pipeline(configured("recipe=debug", f"output_dir={tmp_path}", *words)).check("evaluate")


def test_what_does_not_read_judge_reasons_is_not_refused_for_it(tmp_path: Path) -> None:
    words = ["evaluate.methods=[dpo,pairwise:external]", ONE, "judge.reasons=false", *SERVER]
    Pipeline(configured("recipe=debug", f"output_dir={tmp_path}", *words)).check("evaluate")
    with pytest.raises(
        ConfigError, match=r"serve.judge='external', serve.reasons=false: evaluate.external.type=openai"
    ):
        _settings(configured("recipe=debug", "serve.judge=external", ONE, "serve.reasons=false", *SERVER))
