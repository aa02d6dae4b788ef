"""The client against a local server that fails in the ways real ones do."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from judgetrain.engines.answers import AnswerStore
from judgetrain.engines.base import Choice, Request, Sampling
from judgetrain.engines.config import OpenAIEngineConfig
from judgetrain.engines.openai import engine as openai_engine
from judgetrain.engines.openai.engine import OUTAGE, OpenAIEngine, chat_body, with_parameters
from judgetrain.errors import EngineError
from judgetrain.judges import BranchingJudge
from judgetrain.judges.kinds.pairwise import PairwiseJudge
from judgetrain.judges.kinds.pointwise import PointwiseJudge
from judgetrain.judges.options import JudgeOptions
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.rubrics import Criterion, Rubric
from judgetrain.schema import Comparison
from tests.builders.engines import PausesOnly, ask
from tests.builders.faulty_server import KEY, FaultyServer
from tests.builders.judges import SAMPLING
from tests.builders.unopening import unopening


@pytest.fixture
def config(server, monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setattr(openai_engine, "RETRIES", 3)
    address = f"http://127.0.0.1:{server.server_port}/v1"
    return OpenAIEngineConfig(model="judge-model", base_url=address, api_key_env="TEST_KEY", concurrency=4, timeout=1.0)


@pytest.fixture
def engine(config):
    engine = OpenAIEngine(config)
    engine._clock = PausesOnly()
    return engine


def test_answers_in_order_with_usage_and_parameters(server, engine):
    assert chat_body("m", ask("half \ud83d"), 1, "max_tokens")["messages"][0]["content"] == "half ?"
    out = engine.generate(
        [ask(f"q{i}", temperature=0.5, top_p=0.9, max_new_tokens=9, stop=("END",)) for i in range(20)], seed=3
    )
    assert [c.text for c in out] == [f"you said q{i}" for i in range(20)]
    assert {(c.prompt_tokens, c.generated_tokens, c.finish_reason) for c in out} == {(7, 3, "stop")}
    assert server.most <= 4
    body = next(b for b in server.bodies if b["messages"][0]["content"] == "q2")
    assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"], body["stop"], body["seed"]) == (
        "judge-model", 0.5, 0.9, 9, ["END"], 5,
    )  # fmt: skip
    assert set(server.headers) == {f"Bearer {KEY}"}
    assert engine.generate([], seed=1) == []


@pytest.mark.parametrize("fault", [500, "slow", "drop", "not json", '{"choices": {}}', "[1]"])
def test_passing_faults_are_tried_again(server, engine, fault):
    server.faults["q"] = [fault, fault]
    good, other = engine.generate([ask("q"), ask("other")], seed=1)
    assert (good.text, other.text) == ("you said q", "you said other")
    assert server.tries == {"q": 3, "other": 1}


@pytest.mark.parametrize("fault", [500, "slow", "not json"])
def test_lasting_fault_is_one_error_completion(server, engine, fault):
    server.faults["q"] = [fault] * 99
    bad, good = engine.generate([ask("q"), ask("fine")], seed=1)
    assert bad.finish_reason == "error" and bad.text == "" and bad.error
    assert KEY not in bad.error
    assert good.text == "you said fine"
    assert server.tries["q"] == (3 if fault == "not json" else 4), "fewer of answers that may be charged"


def test_a_server_that_refuses_everything_is_said_with_its_reason(server, engine):
    texts = [f"q{i}" for i in range(OUTAGE)]
    for text in texts:
        server.faults[text] = [422]
    with pytest.raises(EngineError, match=r"answers no request, 8 in a row \(HTTP 422: .*\[key\].*judge-model"):
        engine.generate([ask(t) for t in texts], seed=1)
    server.faults = {t: [422] for t in texts}
    assert engine.generate([ask("fine")], seed=1)[0].finish_reason == "stop"
    done = engine.generate([ask(t) for t in texts], seed=1)
    assert [c.finish_reason for c in done] == ["error"] * OUTAGE, "where it answers others, each is an error"


@pytest.mark.parametrize("status", [401, 403, 404, None])
def test_refused_key_or_model_ends_the_run(server, engine, status, monkeypatch):
    if status:
        server.faults["q"] = [status] * 9
    else:
        monkeypatch.setenv("TEST_KEY", f"{KEY}\u2019")
    with pytest.raises(
        EngineError, match=f"{status} for model judge-model.*TEST_KEY" if status else "TEST_KEY"
    ) as caught:
        engine.generate([ask("q"), ask("other")], seed=1)
    assert KEY not in str(caught.value)


def test_server_that_went_away_ends_the_run_so_that_no_unfinished_shard_is_written(server, engine, config):
    engine.generate([ask("q")], seed=1)
    config.base_url = "http://127.0.0.1:9/v1"
    with pytest.raises(EngineError, match="1 in a row .cannot reach http://127.0.0.1:9/v1.*base_url.*same command"):
        engine.generate([ask("q")], seed=1)


def test_server_that_only_fails_ends_the_run_and_a_few_failures_do_not(server, engine):
    requests = [ask(f"q{i}") for i in range(OUTAGE)]
    server.faults |= {f"q{i}": [(503, {})] * 8 for i in range(OUTAGE)}
    with pytest.raises(EngineError, match="8 in a row .HTTP 503.: check that it runs"):
        engine.generate(requests, seed=1)
    out = engine.generate(requests[1:], seed=1)
    assert [(c.finish_reason, c.error) for c in out] == [("error", "HTTP 503")] * (OUTAGE - 1)


def test_newer_name_of_the_length_limit(server, engine):
    server.faults["q"] = [(400, {}, "Unsupported parameter: use 'max_completion_tokens'")]
    assert engine.generate([ask("q", max_new_tokens=5)], seed=1)[0].text == "you said q"
    assert "max_tokens" not in server.bodies[-1] and server.bodies[-1]["max_completion_tokens"] == 5


REFUSALS = {
    "of a model that thinks": [
        (
            "temperature",
            {"error": {"message": "Unsupported value: 'temperature' does not support 0.", "param": "temperature"}},
        ),
        ("top_p", {"error": {"message": "Unsupported parameter.", "code": "unsupported_parameter", "param": "top_p"}}),
    ],
    "of one of two": [("top_p", {"error": {"message": "`temperature` and `top_p` cannot both be specified."}})],
    "by a schema": [("seed", {"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"]}]}})],
    "of stop strings": [("stop", {"error": {"message": "'stop' is not supported with this model."}})],
    "of two that are not taken together": [
        ("top_p", {"message": "`top_p` can't be used together with `temperature`"}),
        ("temperature", {"error": {"message": "temperature: range: 0..1"}}),
    ],
    "in a list, as Google's servers do": [
        ("seed", [{"error": {"message": 'Unknown name "seed": Cannot find field.'}}])
    ],
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_a_server_refuses_is_named_with_the_key_that_leaves_it_out(server, config, engine, what):
    sent = {"temperature": 0.0, "top_p": 0.9, "stop": ("END",), "max_new_tokens": 5}
    server.faults["q"] = [(422, {}, json.dumps(body)) for _, body in REFUSALS[what]]
    first = REFUSALS[what][0][0]
    with pytest.raises(EngineError, match=rf"refuses the parameter {first}.*drop_refused=true.*\{{{first}: null\}}"):
        engine.generate([ask("q", **sent)], seed=1)

    server.tries.clear()
    server.faults["q"] = [(422, {}, json.dumps(body)) for _, body in REFUSALS[what]]
    left_out = {name for name, _ in REFUSALS[what]}
    config.drop_refused = True
    done = engine.generate([ask("q", **sent)], seed=1)[0]
    assert (done.text, server.tries["q"]) == ("you said q", 1 + len(left_out))
    assert not left_out & set(server.bodies[-1])
    assert {"temperature", "top_p", "seed", "stop"} - left_out <= set(server.bodies[-1]), "nothing else is left out"
    engine.generate([ask("another", **sent)], seed=1)
    assert server.tries["another"] == 1, "later requests go without it at once"


@pytest.mark.parametrize("status", [400, 403])
def test_log_probabilities_that_a_model_does_not_give_are_named_and_left_out_with_their_number(
    server, config, engine, status
):
    words = "You are not allowed to request logprobs from this model"
    refusal = (status, {}, json.dumps({"error": {"message": words}}))
    request = Request(messages=ask("q").messages, sampling=Sampling(candidates=("1", "2")))
    server.faults["q"] = [refusal]
    with pytest.raises(EngineError, match=rf"refuses the parameter logprobs.*HTTP {status}.*judge\.score=parsed"):
        engine.generate([request], seed=1)

    config.drop_refused = True
    server.faults["q"] = [refusal]
    assert engine.generate([request], seed=1)[0].choices == ()
    assert not {"logprobs", "top_logprobs"} & set(server.bodies[-1]), "servers refuse the one without the other"

    server.faults["q"] = [(403, {}, "You may not use it; only others: top_p, seed")]
    with pytest.raises(EngineError, match="answered 403.*the key may not use it"):
        engine.generate([request], seed=1)


@pytest.mark.parametrize("name", ["response_format", "structured_outputs"])
def test_what_a_key_asks_for_is_refused_with_the_name_of_the_key(server, engine, name):
    key = {"response_format": "json_schema=false", "structured_outputs": "judge.constrained=false"}[name]
    server.faults["q"] = [(400, {}, f"This {name} type is unavailable now")]
    with pytest.raises(EngineError, match=rf"refuses the parameter {name} .*: {key}"):
        engine.generate([ask("q")], seed=1)


def test_a_limit_that_a_schema_does_not_know_goes_by_its_newer_name(server, engine):
    detail = [{"type": "extra_forbidden", "loc": ["body", "max_tokens"], "msg": "Extra inputs are not permitted"}]
    server.faults["q"] = [(422, {}, json.dumps({"detail": detail}))]
    assert engine.generate([ask("q", max_new_tokens=5)], seed=1)[0].text == "you said q"
    assert server.bodies[-1]["max_completion_tokens"] == 5


def test_a_limit_that_is_out_of_bounds_keeps_its_name(server, engine):
    server.faults["q"] = [(400, {}, "max_tokens must be at least 1, got -5")]
    assert engine.generate([ask("q"), ask("other")], seed=1)[0].finish_reason == "error"
    assert all("max_tokens" in body for body in server.bodies)


def test_as_many_of_the_likeliest_tokens_are_asked_for_as_the_server_gives(server, engine):
    server.faults["q"] = [
        (400, {}, "top_logprobs must be between 0 and 7"),
        (400, {}, "Requested sample logprobs of 7, which is greater than max allowed: 5"),
    ]
    engine.generate([Request(messages=ask("q").messages, sampling=Sampling(candidates=("1", "2")))], seed=1)
    assert [body["top_logprobs"] for body in server.bodies] == [20, 7, 5]


def test_a_name_that_stands_in_the_prompt_is_no_refusal(server, engine):
    text = "what is the temperature ?"
    server.faults[text] = [(400, {}, f"invalid request: {text}")]
    done = engine.generate([ask(text, temperature=0.0), ask("other")], seed=1)[0]
    assert (done.finish_reason, done.error) == ("error", f"HTTP 400: invalid request: {text}")


def test_another_name_of_the_model_is_taken_where_the_user_says_so(server, config, engine):
    reply = {"model": "gpt-4o-2024-08-06", "choices": [{"message": {"content": "yes"}}]}
    server.faults["q"] = [(200, {}, json.dumps(reply))] * 9
    with pytest.raises(EngineError, match="answers_as=gpt-4o-2024-08-06 if that is the model behind this name"):
        engine.generate([ask("q")], seed=1)
    for name in ("gpt-4o", "any"):
        config.answers_as = name
        assert engine.generate([ask("q")], seed=1)[0].text == "yes"
    config.answers_as = "gpt-4.1"
    with pytest.raises(EngineError, match="gpt-4o-2024-08-06 answered"):
        engine.generate([ask("q")], seed=1)


FILTERED = {
    "no choice": ({"choices": []}, "the server's filter seems to have taken it"),
    "no message": ({"choices": [{"message": None, "finish_reason": "content_filter"}]}, "finish_reason content_filter"),
    "no choices": ({"choices": None}, "the server's filter seems to have taken it"),
    "no first choice": ({"choices": [None]}, "the server's filter seems to have taken it"),
    "no text, refused": (
        {"choices": [{"message": {"content": "", "refusal": "I can not", "reasoning": "hm"}, "finish_reason": "stop"}]},
        "the model refused: I can not",
    ),
    "no text, refused in a part": (
        {"choices": [{"message": {"content": [{"type": "refusal", "refusal": "I can not"}]}}]},
        "the model refused: I can not",
    ),
    "no text, filtered": (
        {"choices": [{"message": {"content": "", "reasoning": "A"}, "finish_reason": "content_filter"}]},
        "the server's filter",
    ),
    "no text, cut": (
        {"choices": [{"message": {"content": ""}, "finish_reason": "MAX_TOKENS"}]},
        "raise max_new_tokens",
    ),
    "no text, a call": (
        {"choices": [{"message": {"content": None, "tool_calls": [{"id": "1"}]}, "finish_reason": "tool_calls"}]},
        "the model called a tool",
    ),
    "reasoning in a list": (
        {"choices": [{"message": {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "[[A]]"}]}}]},
        "all of it stands in the reasoning",
    ),
    "reasoning alone": (
        {"choices": [{"message": {"content": "", "reasoning_content": "A. [[A]]"}, "finish_reason": "stop"}]},
        "all of it stands in the reasoning",
    ),
    "reasoning and line ends": (
        {"choices": [{"message": {"content": "\n\n", "reasoning": "A. [[A]]"}, "finish_reason": "stop"}]},
        "all of it stands in the reasoning",
    ),
    "a cut thought": (
        {"choices": [{"message": {"content": None, "reasoning_content": "A"}, "finish_reason": "length"}]},
        "raise max_new_tokens",
    ),
}


@pytest.mark.parametrize("what", FILTERED)
def test_an_answer_without_content_is_the_request_s_and_says_why(server, engine, what):
    answer, reason = FILTERED[what]
    server.faults["q"] = [(200, {}, json.dumps(answer))] * 9
    done, other = engine.generate([ask("q"), ask("other")], seed=1)
    expected = "no_content" if what.startswith("no ") else "reasoning_alone"
    assert done.finish_reason == expected and reason in done.error
    assert (other.text, server.tries["q"]) == ("you said other", 1)


def test_a_prompt_that_the_server_cut_is_not_answered(server, engine):
    long = "one two three four five " * 800
    usage = {"prompt_tokens": 2999, "completion_tokens": 2}
    answer = {"choices": [{"message": {"content": "[[A]]"}, "finish_reason": "stop"}], "usage": usage}
    server.faults[long] = [(200, {}, json.dumps(answer))]
    done = engine.generate([ask(long)], seed=1)[0]
    assert (done.text, done.finish_reason) == ("", "too_long")
    assert "read 2,999 tokens of a prompt of some 4,000 words" in done.error and "num_ctx" in done.error

    for counts in (
        {"prompt_tokens": 3000},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 2995}},
        {"prompt_tokens": 10, "cache_read_input_tokens": 2000, "cache_creation_input_tokens": 995},
    ):
        server.faults[long] = [(200, {}, json.dumps(answer | {"usage": counts}))]
        assert engine.generate([ask(long)], seed=1)[0].text == "[[A]]", "it may have read everything"


KOREAN = "이 답변은 질문에 정확하게 대답하고 있습니다 "
"""Six words of 19 characters: no tokenizer joins words, and most make ten tokens or so."""


@pytest.mark.parametrize(("text", "tokens"), [(KOREAN, 6), ("这个回答正确地回答了问题", 4)])
def test_words_of_scripts_with_and_without_blanks_are_counted_once(server, engine, text, tokens):
    long = text * 200
    usage = {"prompt_tokens": tokens * 200 * 4 // 5, "completion_tokens": 2}
    answer = {"choices": [{"message": {"content": "[[A]]"}, "finish_reason": "stop"}], "usage": usage}
    server.faults[long] = [(200, {}, json.dumps(answer))]
    assert engine.generate([ask(long)], seed=1)[0].text == "[[A]]"


CONTEXT = 2048
"""The tokens to which the server of the tests below cuts prompts, as Ollama does to ``num_ctx``."""


def answered(server, words, tokens):
    """Have the server answer a prompt of so many words, and say that it read so many tokens; return the request."""
    text = " ".join(f"w{words}" for _ in range(words))
    usage = {"prompt_tokens": tokens, "completion_tokens": 2}
    answer = {"choices": [{"message": {"content": "[[A]]"}, "finish_reason": "stop"}], "usage": usage}
    server.faults[text] = [(200, {}, json.dumps(answer))] * 9
    return ask(text)


def test_prompts_that_were_cut_to_one_count_of_tokens_are_not_answered(server, engine):
    """Each has 1.25 tokens a word, so that 1,639 words and more are cut, the longest to three quarters."""
    requests = [answered(server, words, min(words * 5 // 4, CONTEXT)) for words in (900, 1500, 1700, 1900, 2184)]
    read = engine.generate(requests, seed=1)
    assert [completion.finish_reason for completion in read] == ["stop"] * 2 + ["too_long"] * 3
    assert [completion.text for completion in read] == ["[[A]]"] * 2 + [""] * 3
    assert "2,048 tokens of prompts of 10,199 and of 13,103 characters alike" in read[-1].error
    assert "num_ctx" in read[-1].error

    # One more is known at once.
    assert engine.generate([answered(server, 1800, CONTEXT)], seed=1)[0].finish_reason == "too_long"


@pytest.mark.parametrize(
    "counts",
    [
        {1700: CONTEXT, 1900: CONTEXT},
        {1700: CONTEXT, 1720: CONTEXT, 1740: CONTEXT},
        {1700: CONTEXT, 1900: CONTEXT, 2184: CONTEXT, 2200: CONTEXT + 1},
        {100: 150, 200: 150, 300: 150},
    ],
    ids=["two alone", "of like length", "another has more", "short"],
)
def test_prompts_that_may_have_as_many_tokens_by_chance_are_answered(server, engine, counts):
    read = engine.generate([answered(server, words, tokens) for words, tokens in counts.items()], seed=1)
    assert {completion.text for completion in read} == {"[[A]]"}


def test_counts_of_what_stood_in_no_cache_tell_nothing_of_a_context(server, engine):
    """Gateways to Claude count the few tokens behind the cached ones by themselves, the same few each time."""
    requests = []
    for words in (1700, 1900, 2184):
        request = answered(server, words, 4)
        usage = {"prompt_tokens": 4, "completion_tokens": 2, "cache_creation_input_tokens": words * 5 // 4}
        answer = {"choices": [{"message": {"content": "[[A]]"}, "finish_reason": "stop"}], "usage": usage}
        server.faults[request.messages[-1]["content"]] = [(200, {}, json.dumps(answer))]
        requests.append(request)
    assert {completion.text for completion in engine.generate(requests, seed=1)} == {"[[A]]"}


def short_ones(server, number, tokens_a_word=1.25):
    """Return requests of some 300 words each, of which the server reads so many tokens."""
    return [answered(server, words, round(words * tokens_a_word)) for words in range(300, 300 + number)]


def test_one_prompt_that_was_cut_to_seventy_percent_is_not_answered(server, engine):
    """It would have 2,730 tokens, of which 1,911 are left; no other prompt has as many."""
    requests = [answered(server, 2184, 1911), *short_ones(server, 9), answered(server, 1520, 1900)]
    read = engine.generate(requests, seed=1)
    assert [completion.finish_reason for completion in read] == ["too_long"] + ["stop"] * 10
    assert "read 1,911 tokens of a prompt of 2,184 words and ends of sentences" in read[0].error
    assert "num_ctx" in read[0].error


def test_the_end_of_a_sentence_is_a_token(server, engine):
    """Of 2,300 words 2,300 tokens may be all, but not where the words are 460 sentences."""
    plain = answered(server, 2300, 2300)
    assert engine.generate([plain, *short_ones(server, 10)], seed=1)[0].finish_reason == "stop"
    sentences = ask("It is so (he said). " * 460)
    server.faults[sentences.messages[-1]["content"]] = server.faults[plain.messages[-1]["content"]]
    assert engine.generate([sentences], seed=1)[0].finish_reason == "too_long"


@pytest.mark.parametrize(
    ("tokens_a_word", "others", "longest"),
    [(0.85, 10, {}), (1.25, 8, {}), (1.25, 10, {1600: 2000}), (1.25, 10, {"cache_read_input_tokens": 300})],
    ids=["words are joined", "few others", "another has more", "cached apart"],
)
def test_a_prompt_that_may_have_so_few_tokens_is_answered(server, engine, tokens_a_word, others, longest):
    requests = [answered(server, 2184, 1856), *short_ones(server, others, tokens_a_word)]
    for words, tokens in longest.items():
        if isinstance(words, int):
            requests.append(answered(server, words, tokens))
        else:
            usage = {"prompt_tokens": 1856, "completion_tokens": 2, words: tokens}
            answer = {"choices": [{"message": {"content": "[[A]]"}, "finish_reason": "stop"}], "usage": usage}
            server.faults[requests[0].messages[-1]["content"]] = [(200, {}, json.dumps(answer))]
    assert {completion.text for completion in engine.generate(requests, seed=1)} == {"[[A]]"}


def test_a_prompt_that_is_known_to_be_cut_by_later_ones_is_told_and_asked_for_again(server, config, tmp_path, caplog):
    cut = answered(server, 2184, 1911)
    others = short_ones(server, 10)
    engine = OpenAIEngine(config, AnswerStore(tmp_path, seed=0))
    assert engine.generate([cut], seed=1)[0].text == "[[A]]"
    assert {completion.text for completion in engine.generate(others, seed=1)} == {"[[A]]"}
    assert "1 prompt before, whose answers count, seem to have been cut as well" in caplog.text

    # Another run knows it from the answers that are kept, and keeps this one no longer.
    again = OpenAIEngine(config, AnswerStore(tmp_path, seed=0)).generate([cut, *others], seed=1)
    assert [completion.finish_reason for completion in again] == ["too_long"] + ["stop"] * 10
    whole = [answered(server, 2184, 2730), *others]
    more = OpenAIEngine(config, AnswerStore(tmp_path, seed=0)).generate(whole, seed=1)
    assert more[0].prompt_tokens == 2730


def test_answers_to_prompts_that_were_cut_are_asked_for_again(server, config, tmp_path, caplog):
    """The first two were given out before a third one showed it; with more room all are read."""
    first = [answered(server, words, CONTEXT) for words in (1700, 1900)]
    third = answered(server, 2184, CONTEXT)
    engine = OpenAIEngine(config, AnswerStore(tmp_path, seed=0))
    assert {completion.text for completion in engine.generate(first, seed=1)} == {"[[A]]"}
    assert engine.generate([third], seed=1)[0].finish_reason == "too_long"
    assert "2 prompts before, whose answers count, seem to have been cut as well" in caplog.text

    # The answers that are kept show it in another run, which keeps none of them.
    again = OpenAIEngine(config, AnswerStore(tmp_path, seed=0)).generate([*first, third], seed=1)
    assert [completion.finish_reason for completion in again] == ["too_long"] * 3
    caplog.clear()
    requests = [answered(server, words, words * 5 // 4) for words in (1700, 1900, 2184)]
    more = OpenAIEngine(config, AnswerStore(tmp_path, seed=0)).generate(requests, seed=1)
    assert [completion.prompt_tokens for completion in more] == [2125, 2375, 2730]
    assert not caplog.text


def test_a_server_that_falls_silent_is_not_waited_for_longer_than_the_limit(server, config, engine):
    config.read_timeout = 0.2
    config.timeout = 60.0
    server.faults["q"] = ["slow"] * 9
    done = engine.generate([ask("q"), ask("other")], seed=1)[0]
    assert (done.finish_reason, done.error) == ("error", "the server sent nothing for 0.2 s")


def test_a_server_that_never_opens_a_connection_is_waited_for_once(config):
    """Once, and not once a try and row: 4 tries here of 40 rows, 8 at a time, are 20 limits and more."""
    with unopening() as address:
        config.base_url = f"{address}/v1"
        config.connect_timeout = 1.0
        config.timeout = 60.0
        engine = OpenAIEngine(config)
        started_at = time.monotonic()
        with pytest.raises(EngineError, match=r"answers no request.*no connection within 1 s"):
            engine.generate([ask(f"q{i}") for i in range(40)], seed=1)
        # One request that waited for the whole answer's limit alone would take as long.
        assert 1 <= time.monotonic() - started_at < config.timeout


def test_a_server_that_has_answered_is_tried_again_where_no_connection_opens(server, config, engine):
    assert engine.generate([ask("q")], seed=1)[0].text == "you said q"
    with unopening() as address:
        config.base_url = f"{address}/v1"
        config.connect_timeout = 0.2
        config.timeout = 60.0
        started_at = time.monotonic()
        with pytest.raises(EngineError, match=r"no connection within 0\.2 s"):
            engine.generate([ask("other")], seed=1)
        assert time.monotonic() - started_at >= 0.2 * (openai_engine.RETRIES + 1)


def test_further_parameters_are_sent_and_what_is_none_is_left_out():
    body = chat_body("m", ask("q", top_k=5), 1, "max_tokens")
    body_sent = with_parameters(body, {"reasoning_effort": "low", "temperature": None, "top_p": 0.5})
    assert body_sent["extra_body"] == {"top_k": 5, "reasoning_effort": "low", "top_p": 0.5}
    assert set(body) - set(body_sent) == {"temperature", "top_p"} and with_parameters(body, {}) == body


def test_what_the_client_would_take_from_the_environment_is_not_sent(server, engine, monkeypatch):
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"):
        monkeypatch.setenv(f"OPENAI_{name}", KEY if "KEY" in name else "http://127.0.0.1:9/v1")
    monkeypatch.delenv("TEST_KEY")
    assert engine.generate([ask("q")], seed=1)[0].text == "you said q"
    assert server.headers == [None], "a server without a key gets none, and not one for another"
    assert not {"openai-organization", "openai-project"} & server.header_names


def saying(text, **parts):
    answer = {"choices": [{"message": {"content": text}, **parts}]}
    return json.dumps(answer, ensure_ascii=False).encode()


CAFE = saying("caf\u00e9")
TOO_LONG = "This model's maximum context length is 4096 tokens"
LENGTHS = (
    (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    (400, "the request exceeds the available context size (4096 tokens), try increasing it"),
    (400, "prompt is too long: 209488 tokens > 200000 maximum"),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."),
    (400, "This model's maximum prompt length is 131072 but the request contains 300000 tokens."),
    (400, "Input is too long for requested model."),
    (422, "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens"),
    (413, "Request Entity Too Large"),
)
"""Words of vLLM, llama.cpp, Claude, Gemini, xAI, Bedrock, TGI and a proxy."""
THOUGHT_PARTS = [{"type": "reasoning", "text": "hm [[B]]"}, {"type": "text", "text": "[[A]]"}]
UPSTREAM = {"choices": [{"error": {"code": 502, "message": "overloaded"}, "message": {"content": "half"}}]}
NO_COMPLETION = {
    "an empty one": (b"", ", it is empty"),
    "a page": (b"<!doctype html>", ", but a page: check that base_url ends where the server's API begins"),
    "a stream": (b'data: {"choices": []}', ", but a stream of events"),
    "another API's": (b'{"content": [], "stop_reason": "end_turn"}', ", but of Anthropic's messages API"),
    "another": (b'{"hello": "' + KEY.encode() + b'"}', ', it begins with {"hello": "[key]"}'),
}
PARTS = [{"type": "text", "text": "caf"}, {"type": "text", "text": "\u00e9"}]
HALF = json.dumps({"choices": [{"message": {"content": "a\ud83d"}}]})
NO_UTF8 = 'the answer is not a chat completion, it begins with {"choices": [{"message": {"content": "\ufffd\xe9"}}]}'
TYPES = {"Content-Type": "application/json"}, {"Content-Type": "text/plain; charset=utf-16"}
LITELLM = json.dumps({"error": {"message": "litellm.BadRequestError: no such format", "code": "500"}})
PROXY = json.dumps({"error": {"message": "upstream: Error code: 422 - bad body", "type": "server_error"}})
SECOND = {"index": 0, "message": {"content": "[[A]]"}, "finish_reason": "stop"}
OUT_OF_ORDER = {"choices": [{"index": 1, "message": {"content": "[[B]]"}}, SECOND]}
NUMBERED_HALF = {"choices": [{"message": {"content": "[[B]]"}}, SECOND]}
ANSWERS = {
    "choices out of order": (json.dumps(OUT_OF_ORDER), "[[A]]", "stop", None, 1),
    "choices without all numbers": (json.dumps(NUMBERED_HALF), "[[B]]", "stop", None, 1),
    "a refusal in a server's error": (
        (500, {}, LITELLM),
        "",
        "error",
        "HTTP 400: litellm.BadRequestError: no such format",
        1,
    ),
    "a status in a server's error": (
        (503, {}, PROXY),
        "",
        "error",
        "HTTP 422: upstream: Error code: 422 - bad body",
        1,
    ),
    "a length in a server's error": (
        (500, {}, json.dumps({"error": {"code": 400, "message": TOO_LONG}})),
        "",
        "too_long",
        f"HTTP 400: {TOO_LONG}",
        1,
    ),
    "a server's own fault": ((500, {}, "ResponseValidationError"), "", "error", "HTTP 500: ResponseValidationError", 4),
    "a bad request": (400, "", "error", "HTTP 400: bad key [key]", 1),
    "a context that is too short": ((400, {}, TOO_LONG), "", "too_long", f"HTTP 400: {TOO_LONG}", 1),
    "a redirect": ((307, {"Location": "/v1/chat/completions"}, "{}"), "", "error", "HTTP 307: {}", 1),
    **{f"status {n}": ((n, {}, CAFE), "", "error", f"HTTP {n}", 1) for n in (201, 202, 206)},
    **{f"UTF-8 as {n}": ((200, header, CAFE), "caf\u00e9", "stop", None, 1) for n, header in enumerate(TYPES)},
    "UTF-8 with a mark": ((200, TYPES[1], b"\xef\xbb\xbf" + CAFE), "caf\u00e9", "stop", None, 1),
    "no UTF-8": ((200, {}, CAFE.replace(b"caf", b"\xff")), "", "error", NO_UTF8, 3),
    "half of a surrogate pair": (HALF, "a?", "stop", None, 1),
    "a stop string that is left": ((200, {}, saying("a END b", finish_reason="length")), "a ", "stop", None, 1),
    "text in parts": ((200, {}, saying(PARTS)), "caf\u00e9", "stop", None, 1),
    "logprobs that are none": ((200, {}, saying("b", logprobs={"content": [{"token": 1}]})), "b", "stop", None, 1),
    **{
        f"a length, {n}": ((status, {}, words), "", "too_long", f"HTTP {status}: {words}", 1)
        for n, (status, words) in enumerate(LENGTHS)
    },
    "text beside thoughts in parts": ((200, {}, saying(THOUGHT_PARTS)), "[[A]]", "stop", None, 1),
    "an end in capitals": ((200, {}, saying("b", finish_reason="STOP")), "b", "stop", None, 1),
    "an error in its choice": ((200, {}, json.dumps(UPSTREAM)), "", "error", "HTTP 502: overloaded", 4),
    "an odd finish": ((200, {}, saying("b", finish_reason=["odd"])), "b", "length", None, 1),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_what_becomes_of_an_answer(server, engine, what):
    fault, text, finish, error, tries = ANSWERS[what]
    server.faults["q"] = [fault] * 9
    done = engine.generate([ask("q", stop=("END",))], seed=1)[0]
    assert (done.text, done.finish_reason, done.error, server.tries["q"]) == (text, finish, error, tries)


def test_a_refused_parameter_in_a_server_s_error_is_named_and_left_out(server, config, engine):
    body = json.dumps(
        {"error": {"message": "OpenAIException: 'temperature' does not support 0", "type": "BadRequestError"}}
    )
    server.faults["q"] = [(500, {}, body)] * 2
    with pytest.raises(EngineError, match=r"refuses the parameter temperature.*drop_refused=true"):
        engine.generate([ask("q", temperature=0.0)], seed=1)
    assert server.tries["q"] == 1
    config.drop_refused = True
    assert engine.generate([ask("q", temperature=0.0)], seed=1)[0].text == "you said q"


def test_a_limit_on_the_rate_in_a_server_s_error_is_waited_for(server, engine):
    body = json.dumps({"error": {"message": "litellm.RateLimitError: slow down", "code": "500"}})
    server.faults["q"] = [(500, {}, body)] * 6
    assert engine.generate([ask("q")], seed=1)[0].text == "you said q"
    assert server.tries["q"] == 7, "more often than what fails is tried again"


def test_words_of_a_refusal_that_stand_in_the_prompt_are_none(server, engine):
    text = "What does BadRequestError mean? Error code: 400"
    server.faults[text] = [(500, {}, json.dumps({"error": {"message": f"worker died over: {text}"}}))] * 2
    assert engine.generate([ask(text)], seed=1)[0].text == f"you said {text}"


@pytest.mark.parametrize("what", NO_COMPLETION)
def test_an_answer_that_is_no_completion_says_what_it_is(server, engine, what):
    body, reason = NO_COMPLETION[what]
    server.faults["q"] = [(200, {}, body)] * 9
    done = engine.generate([ask("q"), ask("other")], seed=1)[0]
    assert done.finish_reason == "error"
    assert done.error.startswith(f"the answer is not a chat completion{reason}") and KEY not in done.error


def test_an_unforeseen_error_waits_for_answers_under_way_and_keeps_them(server, config, tmp_path, monkeypatch):
    answers = AnswerStore(tmp_path, 0)
    engine = OpenAIEngine(config, answers)
    engine._clock = PausesOnly()
    for text in ("q1", "q2", "q3"):
        server.faults[text] = ["slow"]
    server.slow = 0.4
    requests = [ask("q0"), ask("q1"), ask("q2"), ask("q3"), ask("unforeseen"), ask("never sent")]

    def unforeseen(headers):
        raise RecursionError

    server.faults["unforeseen"] = [(429, {})]
    monkeypatch.setattr("judgetrain.engines.openai.gate.retry_after", unforeseen)
    with pytest.raises(RecursionError):
        engine.generate(requests, seed=1)
    kept = [answers.get(content) for content in answers.contents("judge-model", requests, config.base_url)]
    assert [c.text if c else None for c in kept] == [*(f"you said q{i}" for i in range(4)), None, None]
    assert sum(server.tries.values()) == 5 and "never sent" not in server.tries


def test_probabilities_of_candidates_and_patterns_are_asked_for_and_read(server, engine):
    logprobs = {
        "content": [
            {"token": "Score:", "logprob": 0.0, "top_logprobs": []},
            {"token": " 2", "logprob": -1.0, "top_logprobs": [{"token": " 2", "logprob": -1.0}]},
        ]
    }
    answer = {"choices": [{"message": {"content": "Score: 2"}, "finish_reason": "stop", "logprobs": logprobs}]}
    server.faults["q"] = [(200, {}, json.dumps(answer))]
    limits = Sampling(candidates=("1", "2"), pattern="Score: [12]")
    done = engine.generate([Request(messages=ask("q").messages, sampling=limits)], seed=1)[0]
    assert done.choices == (Choice(7, (0.0, 1.0)),)
    body = server.bodies[-1]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    assert body["structured_outputs"] == {"regex": "Score: [12]"}
    assert not {"logprobs", "structured_outputs"} & set(chat_body("m", ask("q"), 1, "max_tokens"))


def ranked(*tokens):
    return [{"token": token, "logprob": logprob} for token, logprob in tokens]


LIKELIEST = {
    "in another order": (ranked(("1", -2.0), ("2", -1.0)), (0.268941, 0.731059)),
    "one of them twice": (ranked(("2", -1.0), ("2", -1.0), ("1", -2.0)), (0.268941, 0.731059)),
    "two of one text": (ranked(("2", -1.0), ("2", -2.0), ("1", -1.0)), (0.422319, 0.577681)),
    "without the one that was generated": (ranked(("1", -2.0)), (0.268941, 0.731059)),
    "no number": (ranked(("1", float("nan")), ("2", -1.0)), None),
    "logits": (ranked(("1", 3.0), ("2", 5.0)), None),
    "null": (ranked(("1", None), ("2", -1.0)), None),
}
"""The likeliest tokens where "2" was generated with -1, and the probabilities of "1" and "2" (worked out by hand)."""


@pytest.mark.parametrize("what", LIKELIEST)
def test_the_likeliest_tokens_are_read_however_they_stand(server, engine, what):
    likeliest, probabilities = LIKELIEST[what]
    logprobs = {"content": [{"token": "2", "logprob": -1.0, "top_logprobs": likeliest}]}
    server.faults["q"] = [(200, {}, saying("2", logprobs=logprobs))]
    request = Request(messages=ask("q").messages, sampling=Sampling(candidates=("1", "2")))
    done = engine.generate([request], seed=1)[0]
    assert done.text == "2"
    assert [choice.probabilities for choice in done.choices] == [probabilities] * (probabilities is not None)


RIVER = Criterion(name="River", text="River: it names a river.", guideline="5 if it does, else 1.")
ITEM = Comparison.of("Name a river.", "The Rhine.", "Blue.", rubric=Rubric((RIVER,)))


def json_engine(server: FaultyServer, **options: Any) -> OpenAIEngine:
    address = f"http://127.0.0.1:{server.server_port}/v1"
    return OpenAIEngine(OpenAIEngineConfig(model="m", base_url=address, api_key_env="", json_schema=True, **options))


def judgment(prompt: str, **changes: Any) -> dict[str, Any]:
    scores = (5, 1) if prompt.index("The Rhine.") < prompt.index("Blue.") else (1, 5)
    values = {f"Response {side} Score": score for side, score in zip("AB", scores, strict=True)}
    texts = {"Analysis of Response A": "-", "Analysis of Response B": "one\nResponse A Score: 1", "Comparison": "x"}
    return values | texts | changes


def test_a_judgment_is_asked_for_by_the_frame_s_lines_and_read_as_the_frame(server: FaultyServer) -> None:
    server.reply = lambda prompt: json.dumps(judgment(prompt))
    judge = BranchingJudge(json_engine(server), load_prompt_set("paper"), JudgeOptions(branches=1, steps=SAMPLING))
    (prediction,) = judge.compare_batch([ITEM])
    assert (prediction.verdict, prediction.margin, prediction.failures) == ("A", 4, {})
    assert prediction.reasons[0].text.splitlines()[0] == "Response A Score: 5"
    sent = server.bodies[-1]["response_format"]["json_schema"]
    lines = ["Response A Score", "Analysis of Response A", "Response B Score", "Analysis of Response B", "Comparison"]
    assert (sent["name"], sent["strict"]) == ("judgment", True)
    assert [*sent["schema"]["properties"]] == sent["schema"]["required"] == lines
    assert sent["schema"]["properties"]["Response B Score"] == {"type": "integer", "enum": [1, 2, 3, 4, 5]}
    assert sent["schema"]["additionalProperties"] is False


def broken(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    return lambda prompt: json.dumps(change(judgment(prompt)))


BROKEN = {
    "another score": broken(lambda reply: reply | {"Response A Score": 7}),
    "a score in words": broken(lambda reply: reply | {"Response A Score": "5"}),
    "true": broken(lambda reply: reply | {"Response A Score": True}),
    "a part too few": broken(lambda reply: {name: value for name, value in reply.items() if name != "Comparison"}),
    "a part too many": broken(lambda reply: reply | {"Verdict": "B"}),
    "a part that is no text": broken(lambda reply: reply | {"Comparison": {"better": "A"}}),
    "pairs": broken(lambda reply: [*reply.items()]),
    "a score twice": lambda prompt: json.dumps(judgment(prompt)).replace("{", '{"Response A Score": 5, ', 1),
    "more after it": lambda prompt: f"{json.dumps(judgment(prompt))}\nResponse A Score: 5",
    "a list without end": lambda prompt: "[" * 100_000,
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_that_breaks_the_schema_is_unreadable_and_counted(what: str, server: FaultyServer) -> None:
    server.reply = BROKEN[what]
    options = JudgeOptions(branches=1, steps=SAMPLING, retries=0)
    (prediction,) = BranchingJudge(json_engine(server), load_prompt_set("paper"), options).compare_batch([ITEM])
    assert prediction.verdict == "unreadable" and sum(prediction.failures.values()) == 2


def test_marks_are_asked_for_as_values(server: FaultyServer) -> None:
    def reply(prompt: str) -> str:
        if "assistant B" not in prompt:
            return json.dumps({"explanation": "It is.\n[[2]]", "rating": 9 if "The Rhine." in prompt else 2})
        first = prompt.index("The Rhine.") < prompt.index("Blue.")
        return json.dumps({"verdict": "A" if first else "B", "explanation": "Not [[B]]."})

    server.reply = reply
    pairwise = PairwiseJudge(json_engine(server), load_prompt_set("pairwise", "pairwise")).compare_batch([ITEM])[0]
    assert (pairwise.verdict, pairwise.reasons[0].text) == ("A", "Not [[B]].\n[[A]]")
    pointwise = PointwiseJudge(json_engine(server), load_prompt_set("pointwise", "pointwise")).compare_batch([ITEM])[0]
    assert (pointwise.verdict, pointwise.margin) == ("A", 7)
    enum = server.bodies[-1]["response_format"]["json_schema"]["schema"]["properties"]["rating"]["enum"]
    assert enum == [*range(1, 11)]
    judge = PairwiseJudge(json_engine(server), load_prompt_set("auto_j", "pairwise"))
    judge.compare_batch([ITEM])
    assert "response_format" not in server.bodies[-1], "a model's own form stays its own"
