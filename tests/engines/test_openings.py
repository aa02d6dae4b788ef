"""What a chat template writes between a prompt and its answer stands there wherever an answer is read.

A model was tuned on it and a judge was trained behind it, so that an answer without it has other tokens.
"""

from typing import Any

import pytest

from judgetrain.engines.answer_tokens import answer_ids, opening_of, token_ids
from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.prompting import encode, render
from judgetrain.scorers.encode import Sample, Tokens, encode_samples
from judgetrain.train.data import Renderer
from tests.engines.test_continuation import LINES, sentencepiece
from tests.engines.tokenizers import byte_level

QUESTION = [{"role": "user", "content": "the cat"}]
ANSWER = "Response A"
BLANK = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content }} ASSISTANT:"
    "{% else %}{{ ' ' + m.content + ' </s>' }}{% endif %}{% endfor %}"
)
"""As Vicuna's, Llama 2's and DeepSeek's: the blank is written with the answer."""
TURNS = (
    "{% for m in messages %}[{{ m.role }}]\n{% if m.role == 'assistant' %}OPENS{% endif %}{{ m.content }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]\nPROMPTED{% endif %}"
)
OPENINGS = {
    # The template, and the opening by hand.
    "blank": (BLANK, " "),
    "nothing": (TURNS.replace("OPENS", "").replace("PROMPTED", ""), ""),
    "empty reasoning, as Qwen3's": (
        TURNS.replace("OPENS", "<think>\n\n</think>\n\n").replace("PROMPTED", ""),
        "<think>\n\n</think>\n\n",
    ),
    "reasoning that the prompt opens, as DeepSeek R1's": (
        TURNS.replace("OPENS", "").replace("PROMPTED", "<think>\n"),
        "\n</think>\n\n",
    ),
    "a channel, as gpt-oss's": (
        TURNS.replace("OPENS", "{{ '<|channel|>final<|message|>' }}").replace("PROMPTED", ""),
        "<|channel|>final<|message|>",
    ),
    "a template that takes no answers": ("{{ messages[0].content }}{{ raise_exception('no') if messages[1] }}", ""),
}
TOKENIZERS = {
    "SentencePiece": lambda: sentencepiece("always"),
    "Llama 2": lambda: sentencepiece(None),
    "bytes": lambda: byte_level(None, ["see: Response A"] * 20 + LINES),
}


def tokenizer_of(name: str, template: str) -> Any:
    """Return a tokenizer with a chat template."""
    tokenizer = TOKENIZERS[name]()
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize("kind", OPENINGS)
def test_the_opening_is_what_the_template_writes(kind: str) -> None:
    template, opening = OPENINGS[kind]
    tokenizer = tokenizer_of("bytes", template)
    assert opening_of(tokenizer) == opening
    # Another template of the same tokenizer has another one.
    tokenizer.chat_template = BLANK
    assert opening_of(tokenizer) == " "


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", [kind for kind in OPENINGS if kind != "a template that takes no answers"])
def test_scorers_read_the_tokens_that_are_trained(kind: str, name: str) -> None:
    """Only the answer is scored; what is before it is read as it was trained."""
    tokenizer = tokenizer_of(name, OPENINGS[kind][0])
    renderer = Renderer(tokenizer, {tokenizer.eos_token_id or 0})
    trained_answer = renderer.answer(QUESTION, [{"role": "assistant", "content": ANSWER}])
    assert trained_answer is not None
    prompt_ids, trained_ids = renderer.tokens(renderer.prompt(QUESTION), trained_answer)
    [tokens] = encode_samples([Sample(tuple(QUESTION), ANSWER)], tokenizer, 10**6, 999)
    assert isinstance(tokens, Tokens)
    whole = [*prompt_ids, *trained_ids]
    assert whole[: len(tokens)] == [*tokens.prompt, *tokens.response]
    assert tokenizer.decode(list(tokens.response)).strip() == ANSWER


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("kind", ["blank", "empty reasoning, as Qwen3's", "a channel, as gpt-oss's"])
def test_a_score_alone_stands_where_a_written_one_does(kind: str, name: str) -> None:
    tokenizer = tokenizer_of(name, OPENINGS[kind][0])
    renderer = Renderer(tokenizer, {tokenizer.eos_token_id or 0})
    judgment = renderer.answer(QUESTION, [{"role": "assistant", "content": "Score: 4"}])
    assert judgment is not None
    prompt_ids, judgment_ids = renderer.tokens(renderer.prompt(QUESTION), judgment)
    whole = [*prompt_ids, *judgment_ids]
    sampling = Sampling(max_new_tokens=1, candidates=("4",))
    requests = [Request(messages=tuple(QUESTION), sampling=sampling, begins="Score: ")]
    [read] = encode(requests, tokenizer, 999)[0].values()
    assert list(read) == whole[: len(read)]
    # The next token writes the score.
    assert tokenizer.decode([whole[len(read)]]).strip() == "4"


def test_an_answer_that_brings_its_blank_or_its_thoughts_gets_no_second_opening() -> None:
    blank = tokenizer_of("bytes", BLANK)
    prompt = render(QUESTION, blank)
    prompt_ids = token_ids(blank, prompt)
    assert answer_ids(blank, prompt, prompt_ids, f" {ANSWER}") == answer_ids(blank, prompt, prompt_ids, ANSWER)
    thinking = tokenizer_of("bytes", OPENINGS["empty reasoning, as Qwen3's"][0])
    prompt = render(QUESTION, thinking)
    text = f"<think>hm</think>\n\n{ANSWER}"
    before, answer = answer_ids(thinking, prompt, token_ids(thinking, prompt), text)
    assert thinking.decode([*before, *answer]) == prompt + text
