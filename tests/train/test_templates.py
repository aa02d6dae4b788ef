"""Chat templates that begin an answer otherwise than they show one, or never end it: trained as asked, with an end."""

import pickle
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from judgetrain.engines.base import Request, Sampling
from judgetrain.engines.config import ModelConfig, TransformersEngineConfig
from judgetrain.engines.lazy_model import make_engine
from judgetrain.engines.loading import end_token_ids, load_tokenizer
from judgetrain.errors import TrainingError
from judgetrain.judges.prompting.prompts import load_prompt_set
from judgetrain.thoughts import answer_of
from judgetrain.train.data import Renderer, dataset, fitting, neutral
from tests.builders.engines import encoded, word_tokenizer
from tests.builders.train import config, pair_rows, run_initial, sft_rows, templated
from tests.engines.test_prompting import marked

R1 = (  # DeepSeek-R1: the prompt opens reasoning, and turns are shown without it
    "{% for m in messages %}{% if m.role == 'user' %}<|im_start|>{{ m.content }}{% else %}<|im_end|>"
    "{{ m.content.split('</think>')[-1] }}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_end|><think>\n{% endif %}"
)
QWEN_THINKING = (  # Qwen3-Thinking-2507: the last turn is shown with empty reasoning
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
TRIMMED = (  # the prompt ends in a space that answers do not have
    "{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content }} {% else %}ASSISTANT:{{ m.content }}</s>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)
ENDLESS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
WORLD_ENDLESS = ENDLESS.replace("{{ m.role }}: ", "<{{ m.role }}>").replace("assistant: ", "<assistant>")
ROW: dict[str, Any] = {
    "prompt": [{"role": "user", "content": "Score it."}],
    "completion": [{"role": "assistant", "content": "Response A Score: 4"}],
}
PAIR = {"prompt": ROW["prompt"], "chosen": ROW["completion"], "rejected": [{"role": "assistant", "content": "no"}]}


def trained(row: dict[str, Any], tokenizer: Any, side: str, ends: Any = None) -> tuple[tuple[int, ...], list[int]]:
    """Return the prefix and the answer that the trainer gets."""
    renderer = Renderer.of(tokenizer) if ends is None else Renderer(tokenizer, ends)
    columns = dataset(fitting([row], renderer, 999, "rows"), [0])[0]
    if side == "completion":
        length = columns["completion_mask"].index(1)
        assert set(columns["completion_mask"][length:]) == {1}
        return tuple(columns["input_ids"][:length]), columns["input_ids"][length:]
    return tuple(columns["prompt_ids"]), columns[f"{side}_ids"]


@pytest.mark.parametrize("template", [R1, QWEN_THINKING, TRIMMED, ENDLESS], ids=["r1", "qwen", "trimmed", "endless"])
@pytest.mark.parametrize("side", ["completion", "chosen", "rejected"])
def test_the_prefix_that_is_trained_is_the_one_that_is_asked(template: str, side: str) -> None:
    tokenizer = marked(template)
    row = ROW if side == "completion" else PAIR
    prefix, answer = trained(row, tokenizer, side)
    assert prefix == encoded([row["prompt"]], tokenizer)[0]
    written = tokenizer.decode(answer)
    assert written.count("</think>") == ("<think>" in tokenizer.decode(prefix))
    assert row[side][0]["content"] in written
    reply = tokenizer.decode(answer, skip_special_tokens=True)
    assert str(answer_of(reply)).strip() == row[side][0]["content"]


@pytest.mark.parametrize("name", ["</s>", "<|im_end|>"])
def test_what_ends_an_answer_is_what_generation_stops_on(name: str, tmp_path: Path) -> None:
    """ChatML's end is one for models that stop on it, and none for a base model whose generation does not."""
    tokenizer = marked(QWEN_THINKING)
    tokenizer.save_pretrained(tmp_path)
    stop = tokenizer.convert_tokens_to_ids(name)
    GenerationConfig(eos_token_id=[stop]).save_pretrained(tmp_path)
    ends = end_token_ids(ModelConfig(path=str(tmp_path)), tokenizer)
    assert ends == {stop, tokenizer.eos_token_id}
    answer = trained(ROW, tokenizer, "completion", ends)[1]
    assert answer.count(stop) == 1
    assert (answer[-1] == tokenizer.eos_token_id) == (name == "</s>")


def test_without_any_end_token_nothing_is_trained() -> None:
    tokenizer = word_tokenizer(ENDLESS)
    tokenizer.eos_token = None
    with pytest.raises(TrainingError, match=r"writes no end token .*chat_template\.jinja"):
        fitting([ROW], Renderer.of(tokenizer), 999, "rows")


LIST = "1. Clarity: easy to read\n2. Accuracy: right"
SCORED = "Score: 4\nAnalysis: It is clear."
TWO = "Response A Score: 4\nAnalysis of Response A: It is clear.\nResponse B Score: 2\nAnalysis of Response B: No."
FRAMES = load_prompt_set("multi_step").frames
WRITES = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}<|im_start|>{% else %}ANSWER</s>{% endif %}"


@pytest.mark.parametrize(
    ("answer", "level", "text", "message"),
    [
        ("{{ m.content }}", "", "", ""),
        ("{{ m.content[1:] }}", "judgment", TWO, "esponse A Score: 4.*cuts answers or writes an end token"),
        ("{{ m.content | replace('\n', '</s>\n', 1) }}", "criteria", LIST, "'1. Clarity: easy to read': the chat"),
        ("{{ m.content | replace('\n', ' ') }}", "criteria", LIST, "reads 1 criterion, not 2 criteria"),
        ("{{ m.content | replace('\n', ' ') }}", "judgment", TWO, "reads no_scores, not 4 and 2"),
        ("Sure. {{ m.content }}", "judgment", SCORED, "reads no_scores, not 4"),
    ],
)
def test_what_generation_would_return_is_read_by_the_frame(answer: str, level: str, text: str, message: str) -> None:
    tokenizer = marked(WRITES.replace("ANSWER", answer) + "{% endfor %}")

    def read(level: str, text: str) -> int:
        row = ROW | {"level": level, "completion": [{"role": "assistant", "content": text}]}
        return len(fitting([row], replace(Renderer.of(tokenizer), frames=FRAMES), 999, "rows"))

    if message:
        with pytest.raises(TrainingError, match=message):
            read(level, text)
    else:
        assert all(read(*row) for row in (("criteria", LIST), ("guideline", "Look."), ("judgment", TWO)))
        assert read("judgment", SCORED)


def test_an_end_that_is_put_is_said_and_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = config(num_train_epochs=40, max_steps=60, learning_rate=3e-3)
    settings.train.base.path = templated(tmp_path / "endless", WORLD_ENDLESS)
    sentence = "the chat template ends no answer; <end> is put after each, for generation to stop"
    rows = sft_rows(8)
    for row in rows:
        row["completion"][0]["content"] = "it gives a clear example"
    initial = run_initial(tmp_path, settings, rows)
    assert capsys.readouterr().out.count(f"initial: {sentence}") == 1
    model = str(initial.path("model"))
    assert "<end>" not in load_tokenizer(ModelConfig(path=model)).chat_template
    engine = make_engine(TransformersEngineConfig(model=ModelConfig(path=model)), model_path=model)
    greedy = Sampling(temperature=0.0, max_new_tokens=24)
    [reply] = engine.generate([Request(messages=tuple(rows[0]["prompt"]), sampling=greedy)], seed=0)
    assert (reply.text.strip(), reply.finish_reason) == ("gives a clear example", "stop"), "a turn begins without 'it'"


class Made(list[int]):
    """Rows that are made when they are gone through; ``words``: how long they are."""

    words = 5

    def __iter__(self) -> Iterator[Any]:
        for i in super().__iter__():
            text = "".join((f"{i} ", "the cat reads " * self.words))
            sides = ("user", text), ("assistant", "it gives"), ("assistant", text)
            rows = [[{"role": role, "content": content}] for role, content in sides]
            yield dict(zip(("prompt", "chosen", "rejected"), rows, strict=True))


@pytest.mark.parametrize("rows", [sft_rows(30), pair_rows(30)], ids=["supervised", "pairs"])
def test_the_table_on_disk_is_the_one_in_memory(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    here = fitting(rows, Renderer.of(tokenizer), 256, "rows")
    on_disk = fitting(rows, Renderer.of(tokenizer), 256, "rows", tmp_path / "rows.arrow")
    assert on_disk.data.to_list() == here.data.to_list() and on_disk.lengths == here.lengths and len(here) == 30
    assert not here.data.cache_files and on_disk.data.cache_files == [{"filename": str(tmp_path / "rows.arrow")}]
    order = [3, 3, 0, 29]
    assert dataset(on_disk, order).to_list() == [dataset(here, [i])[0] for i in order]
    if "pair" in here.data.column_names:
        assert len(set(here.data["pair"])) == len({str(neutral(row, tokenizer)) for row in rows}), "one for equal ids"
        assert "pair" not in dataset(on_disk, order).column_names, "TRL's trainer gets what it reads"


def test_what_is_held_of_a_row_is_its_length(tmp_path: Path) -> None:
    """600 pairs of some 850 tokens, which were 40 MB as lists of numbers."""
    tokenizer = load_tokenizer(ModelConfig(path="world"))
    fitting(Made(range(5)), Renderer.of(tokenizer), 4096, "pairs", tmp_path / "warm.arrow")
    rows = Made(range(600))
    rows.words = 140
    tracemalloc.start()
    examples = fitting(rows, Renderer.of(tokenizer), 4096, "pairs", tmp_path / "rows.arrow")
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(examples) == 600 and sum(examples.lengths) > 480_000
    assert kept < 1_000_000 and peak < 15_000_000, (kept, peak)
    assert len(pickle.dumps(examples)) < 100_000, "another process gets the file's name, and the lengths"
